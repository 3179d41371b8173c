// Payload kernels of dithering. Part of payload_kernels.inl.
#pragma once

#include "codec/dither_kernel.inl"
#include "codec/payload_kernels.hpp"

namespace gradsieve::codec {
namespace {

inline constexpr std::uint32_t kGroupLanes = 4 * 32;  ///< elements of a stretch that its squares fold onto first

/// Sums of pairs: of a square and its neighbour's, or (the second time) of those; a's, then b's.
#if defined(__AVX512F__)
[[gnu::always_inline]] inline Doubles pair_squares(Doubles a, Doubles b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14) +
           __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}
[[gnu::always_inline]] inline Doubles pair_pairs(Doubles a, Doubles b) { return pair_squares(a, b); }
#elif defined(__AVX2__)
// Two instructions instead of four: pairs come in the order a0, b0, a1, b1, which the second time undoes.
[[gnu::always_inline]] inline Doubles pair_squares(Doubles a, Doubles b) {
    return __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7);
}
[[gnu::always_inline]] inline Doubles pair_pairs(Doubles a, Doubles b) {
    return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
}
#else
[[gnu::always_inline]] inline Doubles pair_squares(Doubles a, Doubles b) {
    return __builtin_shufflevector(a, b, 0, 2) + __builtin_shufflevector(a, b, 1, 3);
}
[[gnu::always_inline]] inline Doubles pair_pairs(Doubles a, Doubles b) { return pair_squares(a, b); }
#endif

[[gnu::always_inline]] inline Doubles squares_at(const float* values) {
    HalfFloats narrow;
    __builtin_memcpy(&narrow, values, sizeof(narrow));
    const Doubles wide = __builtin_convertvector(narrow, Doubles);
    return wide * wide;
}
/// Of a whole stretch, in the order that codec/stages/dither.hpp states.
[[gnu::always_inline]] inline double stretch_square_sum(const float* values) {
    constexpr unsigned kVectors = 32 / kLongLanes;  // of sums of four
    Doubles sums[kVectors];
#pragma GCC unroll 16
    for (unsigned j = 0; j < kVectors; ++j) {
        Doubles folded[4];
#pragma GCC unroll 4
        for (unsigned part = 0; part < 4; ++part) {
            const float* at = values + (4 * j + part) * kLongLanes;
            folded[part] = squares_at(at) + squares_at(at + kGroupLanes);
        }
        sums[j] = pair_pairs(pair_squares(folded[0], folded[1]), pair_squares(folded[2], folded[3]));
    }
#pragma GCC unroll 4
    for (unsigned half = kVectors / 2; half > 0; half /= 2)
        for (unsigned j = 0; j < half; ++j) sums[j] += sums[j + half];
    double lane[kLongLanes];
    __builtin_memcpy(lane, sums, sizeof(lane));
    for (unsigned half = kLongLanes / 2; half > 0; half /= 2)
        for (unsigned i = 0; i < half; ++i) lane[i] += lane[i + half];
    return lane[0];
}

double square_sum(const float* values, std::uint32_t count) {
    double sums[kTileElements / kSquareStretch] = {};
    std::uint32_t stretch = 0;
    for (; (stretch + 1) * kSquareStretch <= count; ++stretch)
        sums[stretch] = stretch_square_sum(values + stretch * kSquareStretch);
    if (const std::uint32_t rest = count % kSquareStretch; rest > 0) {
        float padded[kSquareStretch] = {};
        __builtin_memcpy(padded, values + stretch * kSquareStretch, rest * sizeof(float));
        sums[stretch] = stretch_square_sum(padded);
    }
    for (unsigned half = kTileElements / kSquareStretch / 2; half > 0; half /= 2)
        for (unsigned i = 0; i < half; ++i) sums[i] += sums[i + half];
    return sums[0];
}

void dither_dense(const DitherStep& shared_step, const float* values, std::uint32_t count, std::byte* ret_codes,
                  float* ret_decoded, float* ret_left) {
    const DitherStep step = shared_step;
    for (std::uint32_t first = 0; first < count; first += kRunElements) {
        const std::uint32_t valid = count - first < kRunElements ? count - first : kRunElements;
        Floats run[kRunVectors] = {};
        copy_part<float, kRunElements>(run, values + first, valid);
        const DitheredRun dithered = dither_run(step, step.first_element + first, run);
        if (ret_left != nullptr) {
            Floats left[kRunVectors];
            for (unsigned j = 0; j < kRunVectors; ++j) left[j] = run[j] - dithered.decoded[j];
            copy_part<float, kRunElements>(ret_left + first, left, valid);
        }
        if (ret_decoded != nullptr) copy_part<float, kRunElements>(ret_decoded + first, dithered.decoded, valid);
        std::byte* out = ret_codes + std::size_t{first} / 8 * step.bits;
        if (valid == kRunElements) {
            pack_run(dithered.codes, step.bits, out);
        } else {
            std::byte packed[kRunElements + 8];
            pack_run(dithered.codes, step.bits, packed);
            copy_bytes(out, packed, (valid * step.bits + 7) / 8);
        }
    }
}

std::uint32_t dither_list(const DitherStep& shared_step, const float* values, const std::uint32_t* indices,
                          std::uint32_t count, float* ret_decoded, std::uint8_t* ret_codes) {
    const DitherStep step = shared_step;
    std::uint32_t sent = 0;
    for (std::uint32_t first = 0; first < count; first += kLanes) {
        const std::uint32_t valid = count - first < kLanes ? count - first : kLanes;
        Floats value = {};
        std::uint32_t index[kLanes] = {};
        copy_part<float, kLanes>(&value, values + first, valid);
        copy_part<std::uint32_t, kLanes>(index, indices + first, valid);
        const DitheredLanes lanes = dither_lanes(step, value, random_words_at(step.random, step.first_element, index));
        const Octets codes = __builtin_convertvector(lanes.codes, Octets);
        copy_part<float, kLanes>(ret_decoded + first, &lanes.decoded, valid);
        copy_part<std::uint8_t, kLanes>(ret_codes + first, &codes, valid);
        for (std::uint32_t i = 0; i < valid; ++i) sent += codes[i] != 0 ? 1U : 0U;
    }
    return sent;
}

void decode_levels(const std::uint8_t* __restrict codes, std::uint32_t count, unsigned bits, float scale,
                   float* __restrict ret_values) {
    const std::uint32_t level_mask = (1U << (bits - 1U)) - 1U;
    for (std::uint32_t i = 0; i < count; ++i) {
        const float size = static_cast<float>(static_cast<std::int32_t>(codes[i] & level_mask)) * scale;
        ret_values[i] = float_of(bits_of(size) | static_cast<std::uint32_t>(codes[i] >> (bits - 1U)) << 31U);
    }
}

}  // namespace
}  // namespace gradsieve::codec
