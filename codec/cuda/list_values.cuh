// One element's value in a list payload, for the kernel that lists elements and the one that reads bitmaps in place.
// Any thread.
#pragma once

#include "codec/cuda/bit_section.cuh"
#include "codec/cuda/decode_tables.hpp"
#include "codec/stages/exponential_dither.hpp"
#include "codec/stages/integer.hpp"
#include "codec/stages/natural.hpp"

namespace gradsieve::codec::cuda {

inline constexpr std::uint32_t kExponentBits = 0x7F800000U;

/// fp32 bits of a power of two; `inout_is_bad` if it lies below the normal range. `exponent`: the tile's, biased.
__device__ inline std::uint32_t pow2_bits_of(std::uint32_t code, unsigned width, std::uint32_t exponent,
                                             bool& inout_is_bad) {
    const std::uint32_t octaves = code & ((1U << (width - 1)) - 1);
    inout_is_bad |= octaves >= exponent;
    return ((code >> (width - 1)) << 31U) | ((exponent - octaves) << 23U);
}

__device__ inline std::uint32_t exponential_value_bits(const DevicePayload& payload, std::uint32_t code, float scale) {
    return exponential_decoded_bits(code, payload.code_bits, payload.base, scale);
}

/// fp32 bits of element `element` of a list (not of the paper's words); `inout_is_bad` if there is no such value.
/// `tile_scale`: the tile's exponent (pow2), scale (sign, dither) or both scales (two means). Kernels of payloads
/// without exponential_dither and integer do not have their registers.
template <bool kMayBeExponential>
__device__ inline std::uint32_t value_bits_of(const DevicePayload& payload, const BitSection& values,
                                              std::uint32_t element, std::uint32_t tile_scale, bool& inout_is_bad) {
    if (payload.quantizer == QuantizerKind::kPow2)
        return pow2_bits_of(values.read(element * payload.code_bits, payload.code_bits), payload.code_bits, tile_scale,
                            inout_is_bad);
    if (payload.quantizer == QuantizerKind::kSign) return tile_scale | (values.read(element, 1) << 31U);
    if (payload.quantizer == QuantizerKind::kTwoMean)
        return values.read(element, 1) != 0 ? tile_scale >> 16U << 16U | 0x80000000U : tile_scale << 16U;
    if (payload.quantizer == QuantizerKind::kDither)
        return dither_decoded_bits(values.read(element * payload.code_bits, payload.code_bits), payload.code_bits,
                                   __uint_as_float(tile_scale));
    if constexpr (kMayBeExponential)
        if (payload.quantizer == QuantizerKind::kExponentialDither)
            return exponential_value_bits(payload, values.read(element * payload.code_bits, payload.code_bits),
                                          __uint_as_float(tile_scale));
    if constexpr (kMayBeExponential)
        if (payload.quantizer == QuantizerKind::kInteger)
            return integer_decoded_bits(values.read(element * payload.code_bits, payload.code_bits), payload.code_bits,
                                        payload.base);
    if (payload.quantizer == QuantizerKind::kNatural) return natural_decoded_bits(values.read(8 * element, 8));
    std::uint32_t bits = 0;
    if (payload.quantizer == QuantizerKind::kF32)
        bits = values.word_at(32 * element);
    else if (payload.quantizer == QuantizerKind::kF16)
        bits = element::f16_value_bits(values.read(16 * element, 16));
    else
        bits = values.read(16 * element, 16) << 16U;
    inout_is_bad |= (bits & kExponentBits) == kExponentBits;
    return bits;
}

}  // namespace gradsieve::codec::cuda
