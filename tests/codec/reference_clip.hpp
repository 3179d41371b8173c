// What local clipping makes of an input, slowly and by the definition in codec/local_clip.hpp. Tests only.
#pragma once

#include "reference.hpp"

namespace gradsieve::codec::reference {

/// The same input with the weights that clipping leaves, and a pipeline that does not clip.
[[nodiscard]] Input clipped(const Input& input);

}  // namespace gradsieve::codec::reference
