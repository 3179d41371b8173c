// Payload kernels of random selectors: the same draws as codec/random_selection.hpp, lane by lane. Part of
// payload_kernels.inl.
#pragma once

#include "codec/payload_kernels.hpp"
#include "codec/random_kernel.inl"
#include "codec/random_selection.hpp"

namespace gradsieve::codec {
namespace {

/// A bit for each lane, set where its word is at most `limit`.
[[gnu::always_inline]] inline std::uint32_t lanes_within(Words words, std::uint32_t limit) {
#if defined(__AVX512F__)
    return _mm512_cmple_epu32_mask(reinterpret_cast<__m512i>(words), _mm512_set1_epi32(static_cast<int>(limit)));
#else
    // Signed, since that is what these vectors can compare.
    const auto shifted = reinterpret_cast<Integers>(words ^ 0x80000000U);
    const auto is_within = shifted <= static_cast<std::int32_t>(limit ^ 0x80000000U);
#if defined(__AVX2__)
    return static_cast<std::uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(is_within)));
#elif defined(__SSE2__)
    return static_cast<std::uint32_t>(_mm_movemask_ps(reinterpret_cast<__m128>(is_within)));
#else
    std::uint32_t bits = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane) bits |= (is_within[lane] != 0 ? 1U : 0U) << lane;
    return bits;
#endif
#endif
}

std::uint32_t draw_kept(const RandomRounds& shared_random, std::uint32_t first, std::uint32_t count,
                        std::uint32_t limit, std::uint32_t* ret_words) {
    const RandomRounds random = shared_random;
    std::uint32_t kept = 0;
    for (std::uint32_t begin = 0; begin < count; begin += kRunElements) {
        std::uint32_t word = 0;
#pragma GCC unroll 4
        for (unsigned j = 0; j < kRunVectors; j += 2) {
            const RandomPair pair = random_pair<kKeepPurpose>(random, first + begin + j * kLanes);
            word |= lanes_within(pair.first, limit) << (j * kLanes);
            word |= lanes_within(pair.second, limit) << ((j + 1) * kLanes);
        }
        if (count - begin < kRunElements) word &= (1U << (count - begin)) - 1U;
        ret_words[begin / kRunElements] = word;
        kept += static_cast<std::uint32_t>(__builtin_popcount(word));
    }
    return kept;
}

}  // namespace
}  // namespace gradsieve::codec
