// Random words of elements in vectors. For files that are compiled once per instruction set (payload_kernels.inl,
// dense_pass_kernel.hpp); internal linkage. The same operations as codec/philox.hpp, lane by lane.
#pragma once

#include "codec/random_rounds.hpp"
#include "codec/vector_types.inl"

namespace gradsieve::codec {
namespace {

/// The product of each long's low halves.
[[gnu::always_inline]] inline Longs wide_product(Longs a, std::uint32_t b) {
    const Longs factor = Longs{} + b;
#if defined(__AVX512F__)
    return reinterpret_cast<Longs>(
        _mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(factor)));
#elif defined(__AVX2__)
    return reinterpret_cast<Longs>(
        _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(factor)));
#elif defined(__SSE2__)
    return reinterpret_cast<Longs>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(factor)));
#else
    return (a & 0xFFFFFFFFU) * factor;
#endif
}

inline constexpr unsigned kLongLanes = kLanes / 2;

/// Philox of as many counters as there are longs; their low halves are words, the upper ones mean nothing.
struct PhiloxLanes {
    Longs words[4];
};
template <std::uint32_t kPurpose = kRoundingPurpose>
[[gnu::always_inline]] inline PhiloxLanes philox_lanes(Longs block, const RandomRounds& random) {
    PhiloxLanes state;
    state.words[0] = block;
    state.words[1] = (block >> 32U) | kPurpose;
    state.words[2] = Longs{} + random.stream.step_low;
    state.words[3] = Longs{} + random.stream.step_high;
#pragma GCC unroll 10
    for (unsigned round = 0; round < kPhiloxRounds; ++round) {
        const Longs product0 = wide_product(state.words[0], kPhiloxMultiplier0);
        const Longs product1 = wide_product(state.words[2], kPhiloxMultiplier1);
        state.words[0] = (product1 >> 32U) ^ state.words[1] ^ (Longs{} + random.keys[round][0]);
        state.words[1] = product1;
        state.words[2] = (product0 >> 32U) ^ state.words[3] ^ (Longs{} + random.keys[round][1]);
        state.words[3] = product0;
    }
    return state;
}

/// Blocks of the lanes: those of the first vector lie in the even ones, where the unpacking below looks for them.
#if defined(__AVX512F__)
constexpr Longs kBlockOfLane = {0, 4, 1, 5, 2, 6, 3, 7};
#elif defined(__AVX2__)
constexpr Longs kBlockOfLane = {0, 2, 1, 3};
#else
constexpr Longs kBlockOfLane = {0, 1};
#endif

/// Random words of 2 kLanes consecutive elements from `element` on, a multiple of that.
struct RandomPair {
    Words first, second;
};
template <std::uint32_t kPurpose = kRoundingPurpose>
[[gnu::always_inline]] inline RandomPair random_pair(const RandomRounds& random, std::uint64_t element) {
    const PhiloxLanes lanes = philox_lanes<kPurpose>(kBlockOfLane + element / 4, random);
    const Longs low = (lanes.words[0] & 0xFFFFFFFFU) | (lanes.words[1] << 32U);
    const Longs high = (lanes.words[2] & 0xFFFFFFFFU) | (lanes.words[3] << 32U);
#if defined(__AVX512F__)
    return {reinterpret_cast<Words>(__builtin_shufflevector(low, high, 0, 8, 2, 10, 4, 12, 6, 14)),
            reinterpret_cast<Words>(__builtin_shufflevector(low, high, 1, 9, 3, 11, 5, 13, 7, 15))};
#elif defined(__AVX2__)
    return {reinterpret_cast<Words>(__builtin_shufflevector(low, high, 0, 4, 2, 6)),
            reinterpret_cast<Words>(__builtin_shufflevector(low, high, 1, 5, 3, 7))};
#else
    return {reinterpret_cast<Words>(__builtin_shufflevector(low, high, 0, 2)),
            reinterpret_cast<Words>(__builtin_shufflevector(low, high, 1, 3))};
#endif
}

/// Random words of as many elements as there are longs.
[[gnu::always_inline]] inline HalfWords half_words_at(const RandomRounds& random, std::uint64_t first_element,
                                                      const std::uint32_t* indices) {
    HalfWords index;
    __builtin_memcpy(&index, indices, sizeof(index));
    const Longs element = __builtin_convertvector(index, Longs) + first_element;
    const PhiloxLanes lanes = philox_lanes(element >> 2U, random);
    const auto is_odd = (element & 1U) != 0;
    const Longs low = is_odd ? lanes.words[1] : lanes.words[0];
    const Longs high = is_odd ? lanes.words[3] : lanes.words[2];
    return __builtin_convertvector((element & 2U) != 0 ? high : low, HalfWords);
}

/// Random words of the elements `first_element` + index of each lane.
[[gnu::always_inline]] inline Words random_words_at(const RandomRounds& random, std::uint64_t first_element,
                                                    const std::uint32_t (&indices)[kLanes]) {
    const HalfWords halves[2] = {half_words_at(random, first_element, indices),
                                 half_words_at(random, first_element, indices + kLongLanes)};
    Words words;
    __builtin_memcpy(&words, halves, sizeof(words));
    return words;
}

}  // namespace
}  // namespace gradsieve::codec
