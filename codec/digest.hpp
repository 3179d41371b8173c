// The step digest: one number that two nodes share exactly if their averages have the same bits. A sum, so the order of
// elements, chunks and tensors does not matter. Part of the wire format: changes only with its version. Any thread.
#pragma once

#include "base/id.hpp"

#include <cstdint>

namespace gradsieve::codec {

/// What is common to the elements of one chunk: mix64(mix64(mix64(tensor) + step) + chunk_index), sums mod 2^64.
[[nodiscard]] constexpr std::uint64_t digest_key(TensorId tensor, Step step, std::uint32_t chunk_index) noexcept {
    return mix64(mix64(mix64(tensor) + step) + chunk_index);
}

/// One touched element: mix64(key + (local_index << 32 | bits)); `local_index` counts from the start of the chunk,
/// `bits` is the fp32 result. The digest of a step is the sum of these over all touched elements of all tensors, mod
/// 2^64.
[[nodiscard]] constexpr std::uint64_t element_digest(std::uint64_t key, std::uint32_t local_index,
                                                     std::uint32_t bits) noexcept {
    return mix64(key + ((std::uint64_t{local_index} << 32U) | bits));
}

}  // namespace gradsieve::codec
