// What rotations ask of the reference. Tests only.
#pragma once

#include "codec/philox.hpp"
#include "reference.hpp"

namespace gradsieve::codec::reference {

/// The key of the chunk whose first element this is.
[[nodiscard]] PhiloxKey chunk_rotation(const Input& input, ElementCount first);
/// The largest element of the first tile with one that is too large to be rotated; nothing without a rotation.
[[nodiscard]] std::optional<NonFinite> find_too_large(const Input& input, const std::vector<float>& residual);

}  // namespace gradsieve::codec::reference
