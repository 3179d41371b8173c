// The reference's warm-up: ratios as a list, written down apart from codec/warmup.hpp.
#pragma once

#include "reference.hpp"

namespace gradsieve::codec::reference {

/// The same input with the ratio of its step: one of those above the selector's, all for as many steps.
[[nodiscard]] Input warmed(const Input& input);

}  // namespace gradsieve::codec::reference
