// What random selectors send, slowly and by the definitions on docs/payload-format.md. Tests only.
#pragma once

#include "codec/random_selection.hpp"
#include "reference.hpp"

#include <vector>

namespace gradsieve::codec::reference {

/// The rule of the chunk that begins at `first`; of selectors without a key an empty one.
[[nodiscard]] SelectionRule keyed_rule(const Input& input, ElementCount first);
/// What the keys of all chunks stand for.
[[nodiscard]] std::vector<ElementCount> keyed_selection(const Input& input);
/// What is coded of an element: with feedback=none the value over its probability.
[[nodiscard]] float raised(const Input& input, float value);
/// Of the candidates, those that adaptive_random draws.
void keep_drawn_of_blocks(const Input& input, const std::vector<float>& residual,
                          std::vector<ElementCount>& inout_selected);

}  // namespace gradsieve::codec::reference
