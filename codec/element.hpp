// The arithmetic of one element, once for the CPU's forms and the GPU's: plain functions of numbers, every product and
// sum rounded to fp32 in the order written. Must hold no state, no memory access and nothing of one form. Any thread.
#pragma once

#include <cfloat>
#include <cstdint>

#if defined(__CUDACC__)
#define GRADSIEVE_HOST_DEVICE __host__ __device__
#else
#define GRADSIEVE_HOST_DEVICE
#endif

namespace gradsieve::codec::element {

inline constexpr std::uint32_t kMagnitudeMask = 0x7FFFFFFFU;
inline constexpr std::uint32_t kExponentMask = 0x7F800000U;
inline constexpr std::uint32_t kSmallestNormal = 0x00800000U;
inline constexpr std::uint32_t kHalfOctave = 0x00400000U;
/// fp32 bits of the largest finite and the least normal number in half precision, 65504 and 2^-14.
inline constexpr std::uint32_t kLargestF16 = 0x477FE000U;
inline constexpr std::uint32_t kLeastNormalF16 = 0x38800000U;
/// What the biases of the two exponents differ by, in place.
inline constexpr std::uint32_t kF16ExponentOffset = (127U - 15U) << 23U;

GRADSIEVE_HOST_DEVICE inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
GRADSIEVE_HOST_DEVICE inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
GRADSIEVE_HOST_DEVICE inline std::uint32_t magnitude_bits(float value) { return bits_of(value) & kMagnitudeMask; }
GRADSIEVE_HOST_DEVICE inline float magnitude(float value) { return float_of(magnitude_bits(value)); }
GRADSIEVE_HOST_DEVICE inline bool is_finite(float value) { return (bits_of(value) & kExponentMask) != kExponentMask; }

/// min(value, FLT_MAX); NaN saturates too.
GRADSIEVE_HOST_DEVICE inline float saturated(float value) {
#if defined(__CUDA_ARCH__)
    return fminf(value, FLT_MAX);  // one instruction, which takes the number where the other is none
#else
    return value < FLT_MAX ? value : FLT_MAX;
#endif
}

/// One sample's term of S: w * ((h - gbar) * (h - gbar)).
GRADSIEVE_HOST_DEVICE inline float deviation_term(float weight, float sample, float mean) {
    const float deviation = sample - mean;
    return weight * (deviation * deviation);
}
/// What v grows by, of groups: s2 * noise_share + g2 * mean_share, g2 saturated.
GRADSIEVE_HOST_DEVICE inline float group_increment(float s2, float mean, float noise_share, float mean_share) {
    return s2 * noise_share + saturated(mean * mean) * mean_share;
}
/// What v grows by, of second moments summed over the ranks.
GRADSIEVE_HOST_DEVICE inline float moment_increment(float moment_sum, float moment_scale) {
    const float scaled = moment_sum * moment_scale;
    return scaled > 0.0F ? scaled : 0.0F;
}
/// r or v of the step before, its scale changed by `factor`, and this step's part.
GRADSIEVE_HOST_DEVICE inline float carried(float factor, float before, float part) { return factor * before + part; }

/// What a low-pass keeps of an error: keep * before + take * left, cut off at the largest finite numbers.
GRADSIEVE_HOST_DEVICE inline float low_passed(float keep, float before, float take, float left) {
    const float mixed = keep * before + take * left;
    return mixed > FLT_MAX ? FLT_MAX : mixed < -FLT_MAX ? -FLT_MAX : mixed;
}

/// r^2 > factor v, both sides in fp32; an r whose square overflows passes.
GRADSIEVE_HOST_DEVICE inline bool passes_variance_test(float residual, float factor, float variance) {
    return residual * residual > saturated(factor * variance);
}

/// v after sending `decoded` of `value` in the hybrid, from (a - t)^2 = a^2 - 2 a t + t^2 with a taken before the
/// subtraction.
GRADSIEVE_HOST_DEVICE inline float reduced_variance(float variance, float value, float decoded) {
    const float quantum = magnitude(decoded);
    const float cross = (2.0F * magnitude(value)) * quantum;
    const float reduced = (variance - cross) + quantum * quantum;
    return reduced > 0.0F ? reduced : 0.0F;
}

/// The upper half of fp32, nearest even; what would become infinity is the largest finite number.
GRADSIEVE_HOST_DEVICE inline std::uint32_t bf16_bits(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t rounded = ((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U) & 0xFFFFU;
    return (rounded & 0x7FFFU) == 0x7F80U ? rounded - 1U : rounded;
}

/// Bits of IEEE half precision, nearest even; beyond its range the largest finite number. `value` is finite.
GRADSIEVE_HOST_DEVICE inline std::uint32_t f16_bits(float value) {
    const std::uint32_t exact = magnitude_bits(value);
    const std::uint32_t size = exact < kLargestF16 ? exact : kLargestF16;
    const std::uint32_t normal = (size - kF16ExponentOffset + 0xFFFU + ((size >> 13U) & 1U)) >> 13U;
    // The last place of 1/2 is 2^-24, that of subnormal halves: the sum is rounded as they are.
    const std::uint32_t subnormal = bits_of(float_of(size) + 0.5F) - bits_of(0.5F);
    return (size < kLeastNormalF16 ? subnormal : normal) | (bits_of(value) >> 31U) << 15U;
}
/// fp32 bits of a number in half precision, which may be infinite or none.
GRADSIEVE_HOST_DEVICE inline std::uint32_t f16_value_bits(std::uint32_t half) {
    const std::uint32_t size = half & 0x7FFFU;
    const std::uint32_t normal = ((size << 13U) + kF16ExponentOffset) | (size >= 0x7C00U ? kExponentMask : 0U);
    const std::uint32_t subnormal = bits_of(float_of(bits_of(0.5F) + size) - 0.5F);
    return (size < 0x400U ? subnormal : normal) | (half & 0x8000U) << 16U;
}

/// A power of two in a tile whose biased exponent is `top`, as receivers decode it; +0: not sent, being more than
/// `range` octaves below, or subnormal. The middle of an octave goes up, and nothing goes above 2^(top - 127).
GRADSIEVE_HOST_DEVICE inline float pow2_decoded(float value, std::uint32_t top, std::uint32_t range) {
    const std::uint32_t size = magnitude_bits(value);
    const std::uint32_t nearest = (size + kHalfOctave) >> 23U;
    const std::uint32_t exponent = nearest < top ? nearest : top;
    const bool is_sent = top != 0 && size >= kSmallestNormal && exponent + range >= top;
    return is_sent ? float_of((bits_of(value) & ~kMagnitudeMask) | (exponent << 23U)) : 0.0F;
}
/// The code of what pow2_decoded returned: sign above the octaves below the tile's exponent.
GRADSIEVE_HOST_DEVICE inline std::uint32_t pow2_code(float decoded, std::uint32_t top, std::uint32_t bits) {
    return ((bits_of(decoded) >> 31U) << (bits - 1U)) | (top - (magnitude_bits(decoded) >> 23U));
}

}  // namespace gradsieve::codec::element
