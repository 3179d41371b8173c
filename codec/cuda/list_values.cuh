// One element's value in a list payload, for the kernel that lists elements and the one that reads bitmaps in place.
// Any thread.
#pragma once

#include "codec/cuda/bit_section.cuh"
#include "codec/cuda/decode_tables.hpp"
#include "codec/stages/exponential_dither.hpp"
#include "codec/stages/integer.hpp"
#include "codec/stages/natural.hpp"
#include "codec/stages/quantizer_list.hpp"

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

/// What an element of a list decodes to, by its quantizer: a specialization of each that sends lists.
///   value_bits: fp32 bits of element `element` of the value section (not of the paper's words); `inout_is_bad` if
///   there is no such value. `tile_scale`: what the element's tile says: exponent, scale, or both scales
template <QuantizerKind kQuantizer>
struct ReadForm;
__device__ inline std::uint32_t finite_bits(std::uint32_t bits, bool& inout_is_bad) {
    inout_is_bad |= (bits & kExponentBits) == kExponentBits;
    return bits;
}
__device__ inline std::uint32_t field_of(const DevicePayload& payload, const BitSection& values,
                                         std::uint32_t element) {
    return values.read(element * payload.code_bits, payload.code_bits);
}
template <>
struct ReadForm<stages::F32::kFacts.kind> {
    static __device__ std::uint32_t value_bits(const DevicePayload& /*payload*/, const BitSection& values,
                                               std::uint32_t element, std::uint32_t /*tile_scale*/,
                                               bool& inout_is_bad) {
        return finite_bits(values.word_at(32 * element), inout_is_bad);
    }
};
template <>
struct ReadForm<stages::F16::kFacts.kind> {
    static __device__ std::uint32_t value_bits(const DevicePayload& /*payload*/, const BitSection& values,
                                               std::uint32_t element, std::uint32_t /*tile_scale*/,
                                               bool& inout_is_bad) {
        return finite_bits(element::f16_value_bits(values.read(16 * element, 16)), inout_is_bad);
    }
};
template <>
struct ReadForm<stages::Bf16::kFacts.kind> {
    static __device__ std::uint32_t value_bits(const DevicePayload& /*payload*/, const BitSection& values,
                                               std::uint32_t element, std::uint32_t /*tile_scale*/,
                                               bool& inout_is_bad) {
        return finite_bits(values.read(16 * element, 16) << 16U, inout_is_bad);
    }
};
template <>
struct ReadForm<stages::Pow2::kFacts.kind> {
    static __device__ std::uint32_t value_bits(const DevicePayload& payload, const BitSection& values,
                                               std::uint32_t element, std::uint32_t tile_scale, bool& inout_is_bad) {
        return pow2_bits_of(field_of(payload, values, element), payload.code_bits, tile_scale, inout_is_bad);
    }
};
template <>
struct ReadForm<stages::Sign::kFacts.kind> {
    static __device__ std::uint32_t value_bits(const DevicePayload& /*payload*/, const BitSection& values,
                                               std::uint32_t element, std::uint32_t tile_scale,
                                               bool& /*inout_is_bad*/) {
        return tile_scale | (values.read(element, 1) << 31U);
    }
};
template <>
struct ReadForm<stages::TwoMean::kFacts.kind> {
    static __device__ std::uint32_t value_bits(const DevicePayload& /*payload*/, const BitSection& values,
                                               std::uint32_t element, std::uint32_t tile_scale,
                                               bool& /*inout_is_bad*/) {
        return values.read(element, 1) != 0 ? tile_scale >> 16U << 16U | 0x80000000U : tile_scale << 16U;
    }
};
template <>
struct ReadForm<stages::Natural::kFacts.kind> {
    static __device__ std::uint32_t value_bits(const DevicePayload& /*payload*/, const BitSection& values,
                                               std::uint32_t element, std::uint32_t /*tile_scale*/,
                                               bool& /*inout_is_bad*/) {
        return natural_decoded_bits(values.read(8 * element, 8));
    }
};
template <>
struct ReadForm<stages::Dither::kFacts.kind> {
    static __device__ std::uint32_t value_bits(const DevicePayload& payload, const BitSection& values,
                                               std::uint32_t element, std::uint32_t tile_scale,
                                               bool& /*inout_is_bad*/) {
        return dither_decoded_bits(field_of(payload, values, element), payload.code_bits, __uint_as_float(tile_scale));
    }
};
template <>
struct ReadForm<stages::ExponentialDither::kFacts.kind> {
    static __device__ std::uint32_t value_bits(const DevicePayload& payload, const BitSection& values,
                                               std::uint32_t element, std::uint32_t tile_scale,
                                               bool& /*inout_is_bad*/) {
        return exponential_value_bits(payload, field_of(payload, values, element), __uint_as_float(tile_scale));
    }
};
template <>
struct ReadForm<stages::Integer::kFacts.kind> {
    static __device__ std::uint32_t value_bits(const DevicePayload& payload, const BitSection& values,
                                               std::uint32_t element, std::uint32_t /*tile_scale*/,
                                               bool& /*inout_is_bad*/) {
        return integer_decoded_bits(field_of(payload, values, element), payload.code_bits, payload.base);
    }
};

template <bool kMayBeExponential, typename Stage>
__device__ inline bool read_if(const DevicePayload& payload, const BitSection& values, std::uint32_t element,
                               std::uint32_t tile_scale, bool& inout_is_bad, std::uint32_t& ret_bits) {
    if constexpr (HasForm<Stage>) {
        constexpr QuantizerFacts kFacts = Stage::kFacts;
        constexpr bool kIsWide = kFacts.has_base || kFacts.has_step;
        if constexpr (kFacts.sends_lists && (kMayBeExponential || !kIsWide)) {
            if (payload.quantizer != kFacts.kind) return false;
            ret_bits = ReadForm<kFacts.kind>::value_bits(payload, values, element, tile_scale, inout_is_bad);
            return true;
        }
    }
    return false;
}
template <bool kMayBeExponential, typename... Stages>
__device__ inline std::uint32_t value_bits_by(QuantizerList<Stages...> /*list*/, const DevicePayload& payload,
                                              const BitSection& values, std::uint32_t element, std::uint32_t tile_scale,
                                              bool& inout_is_bad) {
    std::uint32_t bits = 0;
    static_cast<void>(
        (read_if<kMayBeExponential, Stages>(payload, values, element, tile_scale, inout_is_bad, bits) || ...));
    return bits;
}
/// ReadForm's of any quantizer. Kernels of payloads without exponential_dither and integer do not have their registers.
template <bool kMayBeExponential>
__device__ inline std::uint32_t value_bits_of(const DevicePayload& payload, const BitSection& values,
                                              std::uint32_t element, std::uint32_t tile_scale, bool& inout_is_bad) {
    return value_bits_by<kMayBeExponential>(Quantizers{}, payload, values, element, tile_scale, inout_is_bad);
}

}  // namespace gradsieve::codec::cuda
