// What the signatures of similarity.hpp add up: which sign and bucket an element has, and in which order the sums go
// on. Rows of 1,024 elements are added up in order within a group, groups in order within a chunk, and chunks in order,
// so that a GPU can give each group a block and each chunk's sums by themselves. Any thread; plain values.
#pragma once

#include "codec/philox.hpp"

namespace gradsieve::codec {

inline constexpr std::uint32_t kSignatureBuckets = 1024;
/// Rows that are added up together, one after the other.
inline constexpr std::uint32_t kSignatureGroupRows = 64;
inline constexpr std::uint32_t kSignatureGroupElements = kSignatureGroupRows * kSignatureBuckets;
static_assert(kChunkElements % kSignatureGroupElements == 0);

/// Sign bits of one row: bit e % 32 of word e / 32 is element e's; set: it counts negative.
inline constexpr std::uint32_t kSignatureWords = kSignatureBuckets / 32;
inline constexpr std::uint32_t kSignatureWordsPerDraw = 4;
/// The last one has the offset.
inline constexpr std::uint32_t kSignatureDrawsPerRow = kSignatureWords / kSignatureWordsPerDraw + 1;
/// In the counter's upper half of the second word, as kRoundingPurpose.
inline constexpr std::uint32_t kSignaturePurpose = 7U << 24U;

/// Of all draws of a tensor.
[[nodiscard]] inline PhiloxKey signature_key(TensorId tensor) noexcept {
    const std::uint64_t key = mix64(tensor);
    return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32U)};
}
/// Four words of signs of a row; of the last draw, what signature_offset is of.
GRADSIEVE_HOST_DEVICE inline PhiloxBlock signature_draw(PhiloxKey key, std::uint64_t row, std::uint32_t draw) {
    const std::uint64_t number = row * kSignatureDrawsPerRow + draw;
    return philox(
        {{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32U) | kSignaturePurpose, 0, 0}},
        key);
}
/// By which the buckets of a row are turned: element e of it goes to bucket (e + offset) % kSignatureBuckets.
GRADSIEVE_HOST_DEVICE inline std::uint32_t signature_offset(const PhiloxBlock& last_draw) {
    return last_draw.words[0] % kSignatureBuckets;
}

}  // namespace gradsieve::codec
