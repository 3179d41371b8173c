// Adding dense payloads, in which every element has a value, to half a unit in registers. Value sections begin on 16
// bytes and may be read to the end of a group of four.
#pragma once

#include "codec/cuda/list_values.cuh"
#include "codec/cuda/unit_sums.cuh"
#include "codec/stages/minmax.hpp"

namespace gradsieve::codec::cuda {

/// Adds four values, given as fp32 bits, of which `valid` exist.
__device__ inline void add_four(float4& inout_sum, uint4 bits, float factor, std::uint32_t valid, bool& inout_is_bad) {
    inout_is_bad |= valid > 0 && (bits.x & kExponentBits) == kExponentBits;
    inout_is_bad |= valid > 1 && (bits.y & kExponentBits) == kExponentBits;
    inout_is_bad |= valid > 2 && (bits.z & kExponentBits) == kExponentBits;
    inout_is_bad |= valid > 3 && (bits.w & kExponentBits) == kExponentBits;
    inout_sum.x = inout_sum.x + factor * __uint_as_float(bits.x);
    inout_sum.y = inout_sum.y + factor * __uint_as_float(bits.y);
    inout_sum.z = inout_sum.z + factor * __uint_as_float(bits.z);
    inout_sum.w = inout_sum.w + factor * __uint_as_float(bits.w);
}

/// Four values as they lie in a payload, and their fp32 bits.
struct FourF32 {
    uint4 words;
    __device__ uint4 bits() const { return words; }
};
struct FourF16 {
    uint2 words;
    __device__ uint4 bits() const {
        return {element::f16_value_bits(words.x & 0xFFFFU), element::f16_value_bits(words.x >> 16U),
                element::f16_value_bits(words.y & 0xFFFFU), element::f16_value_bits(words.y >> 16U)};
    }
};
struct FourBf16 {
    uint2 words;
    __device__ uint4 bits() const {
        return {words.x << 16U, words.x & 0xFFFF0000U, words.y << 16U, words.y & 0xFFFF0000U};
    }
};

/// Numbers of a payload. All loads are under way before the first is used.
template <typename Four>
__device__ void add_numbers(const DevicePayload& payload, const std::byte* bytes, const Unit& unit, std::uint32_t half,
                            Groups& inout_sums, bool& inout_is_bad) {
    using Words = decltype(Four::words);
    const auto* values = reinterpret_cast<const Words*>(bytes + payload.body_offset) + unit.place * (kUnitElements / 4);
    Four loaded[kGroupsPerHalf];
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
        const std::uint32_t group = group_of(half, part);
        loaded[part] = valid_of(unit, group) > 0 ? Four{__ldcs(values + group)} : Four{};
    }
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part)
        add_four(inout_sums.of[part], loaded[part].bits(), payload.factor, valid_of(unit, group_of(half, part)),
                 inout_is_bad);
}

/// Of sign, two means or votes.
__device__ inline void add_signs(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                                 std::uint32_t half, Groups& inout_sums) {
    const auto* words =
        reinterpret_cast<const std::uint32_t*>(bytes + payload.body_offset) + unit.place * (kUnitElements / 32);
    const auto* scales = reinterpret_cast<const float*>(bytes + payload.scale_offset);
    const std::uint32_t tile = unit.place / kUnitsPerTile;
    float plus = payload.factor;
    float minus = -plus;
    if (scales_per_tile(payload.quantizer) == 2) {
        plus = payload.factor * __ldg(scales + 2 * tile);
        minus = -(payload.factor * __ldg(scales + 2 * tile + 1));
    } else if (has_tile_scales(payload.quantizer)) {
        plus = payload.factor * (payload.has_chunk_scale ? payload.chunk_scale : __ldg(scales + tile));
        minus = -plus;
    }
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
        const std::uint32_t group = group_of(half, part);
        const std::uint32_t word = valid_of(unit, group) > 0 ? __ldg(words + group / 8) >> (4 * (group % 8)) : 0;
        float4& sum = inout_sums.of[part];
        sum.x = sum.x + ((word & 1U) != 0 ? minus : plus);
        sum.y = sum.y + ((word & 2U) != 0 ? minus : plus);
        sum.z = sum.z + ((word & 4U) != 0 ? minus : plus);
        sum.w = sum.w + ((word & 8U) != 0 ? minus : plus);
    }
}

__device__ inline void add_natural(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                                   std::uint32_t half, Groups& inout_sums) {
    const auto* words =
        reinterpret_cast<const std::uint32_t*>(bytes + payload.body_offset) + unit.place * (kUnitElements / 4);
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
        const std::uint32_t group = group_of(half, part);
        const std::uint32_t four = valid_of(unit, group) > 0 ? __ldcs(words + group) : 0;
        const auto product = [&](std::uint32_t place) {
            return payload.factor * __uint_as_float(natural_decoded_bits((four >> (8 * place)) & 0xFFU));
        };
        float4& sum = inout_sums.of[part];
        sum.x = sum.x + product(0);
        sum.y = sum.y + product(1);
        sum.z = sum.z + product(2);
        sum.w = sum.w + product(3);
    }
}

/// Codes of dither or exponential_dither, of which a group of four has at most 32 bits.
template <bool kIsExponential>
__device__ inline void add_levels(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                                  std::uint32_t half, Groups& inout_sums) {
    const BitSection codes(bytes + payload.body_offset);
    const std::uint32_t bits = payload.code_bits;
    const float scale =
        __ldg(reinterpret_cast<const float*>(bytes + payload.scale_offset) + unit.place / kUnitsPerTile);
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
        const std::uint32_t group = group_of(half, part);
        const std::uint32_t four =
            valid_of(unit, group) > 0 ? codes.read((unit.place * kUnitElements + 4 * group) * bits, 4 * bits) : 0;
        const auto product = [&](std::uint32_t place) {
            const std::uint32_t code = (four >> (place * bits)) & ((1U << bits) - 1U);
            if constexpr (kIsExponential)
                return payload.factor * __uint_as_float(exponential_value_bits(payload, code, scale));
            else
                return payload.factor * __uint_as_float(dither_decoded_bits(code, bits, scale));
        };
        float4& sum = inout_sums.of[part];
        sum.x = sum.x + product(0);
        sum.y = sum.y + product(1);
        sum.z = sum.z + product(2);
        sum.w = sum.w + product(3);
    }
}

/// Codes of minmax. A group of four lies in one bucket.
__device__ inline void add_ranges(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                                  std::uint32_t half, Groups& inout_sums) {
    const BitSection codes(bytes + payload.body_offset);
    const std::uint32_t bits = payload.code_bits;
    const auto* ranges = reinterpret_cast<const float2*>(bytes + payload.scale_offset);
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
        const std::uint32_t group = group_of(half, part);
        if (valid_of(unit, group) == 0) continue;
        const std::uint32_t first = unit.place * kUnitElements + 4 * group;
        const float2 range = __ldg(ranges + (first >> payload.bucket_log2));
        const float step_size = minmax_step_size(range.x, range.y, bits);
        const std::uint32_t four = codes.read(first * bits, 4 * bits);
        const auto product = [&](std::uint32_t place) {
            const std::uint32_t level = (four >> (place * bits)) & ((1U << bits) - 1U);
            return payload.factor * minmax_decoded(level, range.x, step_size);
        };
        float4& sum = inout_sums.of[part];
        sum.x = sum.x + product(0);
        sum.y = sum.y + product(1);
        sum.z = sum.z + product(2);
        sum.w = sum.w + product(3);
    }
}

/// Codes of integer, of which a group of four has at most 96 bits.
__device__ inline void add_integers(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                                    std::uint32_t half, Groups& inout_sums) {
    const BitSection codes(bytes + payload.body_offset);
    const std::uint32_t bits = payload.code_bits;
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
        const std::uint32_t group = group_of(half, part);
        if (valid_of(unit, group) == 0) continue;
        const std::uint32_t bit = (unit.place * kUnitElements + 4 * group) * bits;
        std::uint64_t low = codes.word_at(bit);
        std::uint64_t high = 0;
        if (bits > 8) low |= std::uint64_t{codes.word_at(bit + 32)} << 32U;
        if (bits > 16) high = codes.word_at(bit + 64);
        const auto next_product = [&]() {
            const std::uint32_t code = static_cast<std::uint32_t>(low) & ((1U << bits) - 1U);
            low = low >> bits | high << (64U - bits);
            high >>= bits;
            return payload.factor * __uint_as_float(integer_decoded_bits(code, bits, payload.base));
        };
        float4& sum = inout_sums.of[part];
        sum.x = sum.x + next_product();
        sum.y = sum.y + next_product();
        sum.z = sum.z + next_product();
        sum.w = sum.w + next_product();
    }
}

/// How the payload of a quantizer, of which every element is there, is added to half a unit: a specialization of each
/// that is no sign. All lanes; `inout_is_bad` if a value is not finite.
template <QuantizerKind kQuantizer>
struct SumForm;
template <>
struct SumForm<stages::F32::kFacts.kind> {
    static __device__ void add(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                               std::uint32_t half, Groups& inout_sums, bool& inout_is_bad) {
        add_numbers<FourF32>(payload, bytes, unit, half, inout_sums, inout_is_bad);
    }
};
template <>
struct SumForm<stages::F16::kFacts.kind> {
    static __device__ void add(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                               std::uint32_t half, Groups& inout_sums, bool& inout_is_bad) {
        add_numbers<FourF16>(payload, bytes, unit, half, inout_sums, inout_is_bad);
    }
};
template <>
struct SumForm<stages::Bf16::kFacts.kind> {
    static __device__ void add(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                               std::uint32_t half, Groups& inout_sums, bool& inout_is_bad) {
        add_numbers<FourBf16>(payload, bytes, unit, half, inout_sums, inout_is_bad);
    }
};
template <>
struct SumForm<stages::Natural::kFacts.kind> {
    static __device__ void add(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                               std::uint32_t half, Groups& inout_sums, bool& /*inout_is_bad*/) {
        add_natural(payload, bytes, unit, half, inout_sums);
    }
};
template <>
struct SumForm<stages::Dither::kFacts.kind> {
    static __device__ void add(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                               std::uint32_t half, Groups& inout_sums, bool& /*inout_is_bad*/) {
        add_levels<false>(payload, bytes, unit, half, inout_sums);
    }
};
template <>
struct SumForm<stages::ExponentialDither::kFacts.kind> {
    static __device__ void add(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                               std::uint32_t half, Groups& inout_sums, bool& /*inout_is_bad*/) {
        add_levels<true>(payload, bytes, unit, half, inout_sums);
    }
};
template <>
struct SumForm<stages::MinMax::kFacts.kind> {
    static __device__ void add(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                               std::uint32_t half, Groups& inout_sums, bool& /*inout_is_bad*/) {
        add_ranges(payload, bytes, unit, half, inout_sums);
    }
};
template <>
struct SumForm<stages::Integer::kFacts.kind> {
    static __device__ void add(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                               std::uint32_t half, Groups& inout_sums, bool& /*inout_is_bad*/) {
        add_integers(payload, bytes, unit, half, inout_sums);
    }
};

template <bool kMayBeExponential, bool kMayBeInteger, typename Stage>
__device__ inline bool add_if(const DevicePayload& payload, const std::byte* bytes, const Unit& unit,
                              std::uint32_t half, Groups& inout_sums, bool& inout_is_bad) {
    if constexpr (HasForm<Stage>) {
        constexpr QuantizerFacts kFacts = Stage::kFacts;
        constexpr bool kIsWide = kFacts.has_base || kFacts.has_buckets;
        if constexpr (!kFacts.is_sign_bit && !kFacts.has_exponents && (kMayBeExponential || !kIsWide) &&
                      (kMayBeInteger || !kFacts.has_step)) {
            if (payload.quantizer != kFacts.kind) return false;
            SumForm<kFacts.kind>::add(payload, bytes, unit, half, inout_sums, inout_is_bad);
            return true;
        }
    }
    return false;
}
template <bool kMayBeExponential, bool kMayBeInteger, typename... Stages>
__device__ inline void add_by(QuantizerList<Stages...> /*list*/, const DevicePayload& payload, const std::byte* bytes,
                              const Unit& unit, std::uint32_t half, Groups& inout_sums, bool& inout_is_bad) {
    const bool is_added =
        (add_if<kMayBeExponential, kMayBeInteger, Stages>(payload, bytes, unit, half, inout_sums, inout_is_bad) || ...);
    if (!is_added) add_signs(payload, bytes, unit, half, inout_sums);
}

/// Adds one dense payload; marks it if a value is not finite. All lanes. Integers are never rotated.
template <bool kMayBeExponential, bool kMayBeInteger = kMayBeExponential>
__device__ inline void add_dense(const DecodeTables& tables, std::uint32_t place, const Unit& unit, std::uint32_t half,
                                 Groups& inout_sums, Tally& inout_tally) {
    bool is_bad = false;
    add_by<kMayBeExponential, kMayBeInteger>(Quantizers{}, tables.payloads[place], tables.bytes, unit, half, inout_sums,
                                             is_bad);
    if (is_bad) {
        tables.payload_faults[place] = 1;
        inout_tally.is_bad = true;
    }
    __syncwarp();
}

}  // namespace gradsieve::codec::cuda
