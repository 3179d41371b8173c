// Payload kernels of estimated thresholds: a tile's sums, counts and lists. Part of payload_kernels.inl.
#pragma once

#include "codec/payload_kernels_list.inl"

namespace gradsieve::codec {
namespace {

inline constexpr std::uint32_t kSumLanes = 32;

[[gnu::always_inline]] inline double fold_lanes(double (&lane)[kSumLanes]) {
    for (std::uint32_t width = kSumLanes / 2; width > 0; width /= 2)
        for (std::uint32_t i = 0; i < width; ++i) lane[i] += lane[i + width];
    return lane[0];
}

double signed_sums(const float* values, std::uint32_t count, double* ret_squares) {
    double sums[kSumLanes] = {};
    double squares[kSumLanes] = {};
    const auto add = [&](std::uint32_t first, std::uint32_t lanes) {
        for (std::uint32_t i = 0; i < lanes; ++i) {
            const double value = static_cast<double>(values[first + i]);
            sums[i] += value;
            squares[i] += value * value;
        }
    };
    const std::uint32_t whole = count / kSumLanes * kSumLanes;
    for (std::uint32_t first = 0; first < whole; first += kSumLanes) add(first, kSumLanes);
    add(whole, count - whole);
    *ret_squares = fold_lanes(squares);
    return fold_lanes(sums);
}

double sum_above(const float* values, std::uint32_t count, std::uint32_t floor, std::uint32_t* inout_least) {
    double sums[kSumLanes] = {};
    const auto limit = static_cast<std::int32_t>(floor);  // signed, since that is what baseline vectors can compare
    auto least = static_cast<std::int32_t>(*inout_least & 0x7FFFFFFFU);
    const auto add = [&](std::uint32_t first, std::uint32_t lanes) {
        for (std::uint32_t i = 0; i < lanes; ++i) {
            const auto size = static_cast<std::int32_t>(bits_of(values[first + i]) & 0x7FFFFFFFU);
            const std::int32_t kept = size >= limit ? size : 0;
            sums[i] += static_cast<double>(float_of(static_cast<std::uint32_t>(kept)));
            const std::int32_t candidate = size >= limit ? size : 0x7FFFFFFF;
            least = candidate < least ? candidate : least;
        }
    };
    const std::uint32_t whole = count / kSumLanes * kSumLanes;
    for (std::uint32_t first = 0; first < whole; first += kSumLanes) add(first, kSumLanes);
    add(whole, count - whole);
    *inout_least = static_cast<std::uint32_t>(least);
    return fold_lanes(sums);
}

std::uint32_t count_above(const float* values, std::uint32_t count, std::uint32_t floor) {
    const auto limit = static_cast<std::int32_t>(floor);
    std::uint32_t above = 0;
    for (std::uint32_t i = 0; i < count; ++i)
        above += static_cast<std::int32_t>(bits_of(values[i]) & 0x7FFFFFFFU) >= limit ? 1U : 0U;
    return above;
}

/// Bit i: magnitude i of 64 is at least the floor.
[[gnu::always_inline]] inline std::uint64_t word_above(const float* values, std::uint32_t floor) {
    std::uint64_t word = 0;
#if defined(__AVX512F__)
    for (unsigned part = 0; part < 4; ++part) {
        const __m512i sizes = _mm512_and_si512(_mm512_loadu_si512(values + 16 * part), _mm512_set1_epi32(0x7FFFFFFF));
        const auto above = _mm512_cmpge_epi32_mask(sizes, _mm512_set1_epi32(static_cast<int>(floor)));
        word |= static_cast<std::uint64_t>(above) << (16 * part);
    }
#elif defined(__AVX2__)
    for (unsigned part = 0; part < 8; ++part) {
        const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + 8 * part));
        const __m256i sizes = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
        const __m256i above = _mm256_cmpgt_epi32(sizes, _mm256_set1_epi32(static_cast<int>(floor) - 1));
        word |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(above))))
                << (8 * part);
    }
#else
    for (unsigned i = 0; i < 64; ++i)
        word |= static_cast<std::uint64_t>((bits_of(values[i]) & 0x7FFFFFFFU) >= floor ? 1U : 0U) << i;
#endif
    return word;
}

std::uint32_t list_above(const float* values, std::uint32_t count, std::uint32_t floor, std::uint32_t first_index,
                         std::uint32_t* ret_indices) {
    std::uint32_t* out = ret_indices;
    std::uint32_t first = 0;
    for (; first + 64 <= count; first += 64) out = append_ones(word_above(values + first, floor), first_index + first, out);
    for (; first < count; ++first) {
        *out = first_index + first;
        out += (bits_of(values[first]) & 0x7FFFFFFFU) >= floor ? 1 : 0;
    }
    return static_cast<std::uint32_t>(out - ret_indices);
}

}  // namespace
}  // namespace gradsieve::codec
