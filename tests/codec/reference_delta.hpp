// delta once more, slowly: the codec behind it, of the gradient less what was sent.
#pragma once

#include "reference.hpp"

namespace gradsieve::codec::reference {

/// As encode, of a pipeline with delta: the state's residual is what was sent.
[[nodiscard]] Output encode_difference(const Input& input, const State& before);

}  // namespace gradsieve::codec::reference
