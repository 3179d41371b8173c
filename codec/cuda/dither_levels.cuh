// Rounding at random on the device: random words, codes of a list's element by what rounds so, and by dither a tile's
// unit and the levels of four consecutive elements. The arithmetic is codec/dither.hpp's, codec/exponential.hpp's and
// codec/natural.hpp's. Device code only.
#pragma once

#include "codec/cuda/tile_load.cuh"
#include "codec/exponential.hpp"
#include "codec/natural.hpp"
#include "codec/payload.hpp"
#include "codec/pipeline.hpp"

namespace gradsieve::codec::cuda {

inline constexpr unsigned kTileStretches = kTile / kSquareStretch;

__device__ inline DitherRule dither_rule_of(const TensorPlan& plan, bool is_list) {
    DitherRule rule;
    rule.levels = plan.levels;
    rule.bits = plan.code_bits;
    rule.is_max_norm = plan.is_max_norm != 0;
    rule.is_scaled = plan.is_scaled != 0;
    rule.is_list = is_list;
    rule.clip = plan.clip;
    return rule;
}

__device__ inline ExponentialRule exponential_rule_of(const TensorPlan& plan, bool is_list) {
    ExponentialRule rule;
    rule.dither = dither_rule_of(plan, is_list);
    rule.base = plan.base;
    rule.is_biased = plan.is_biased != 0;
    rule.is_fixed = plan.is_fixed != 0;
    rule.per_bit = plan.depth_per_bit;
    return rule;
}
template <Draw kDraw>
__device__ inline DitherUnit unit_of_tile(const TensorPlan& plan, bool is_list, const DitherTile& tile) {
    if constexpr (kDraw == Draw::kExponential)
        if (has_base(static_cast<QuantizerKind>(plan.quantizer)))
            return exponential_unit(exponential_rule_of(plan, is_list), tile);
    return dither_unit(dither_rule_of(plan, is_list), tile);
}

/// What this lane's part of a stretch's squares adds up to: of four elements, and of those 128 behind.
__device__ inline double sum_squares_of(const Vector& first, const Vector& second) {
    double sums[4];
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
        const auto one = static_cast<double>(first.at[c]);
        const auto other = static_cast<double>(second.at[c]);
        sums[c] = one * one + other * other;
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
/// Sum i takes sum i + `half`, and so on down to one. A whole warp; the same in every lane if sums repeat from
/// 2 `half` on.
__device__ inline double fold_sums(double own, unsigned half) {
    for (unsigned lanes = half; lanes > 0; lanes /= 2) own = own + __shfl_xor_sync(~0U, own, static_cast<int>(lanes));
    return own;
}
/// Sum of a list's squares, in the order of codec/dither.hpp. One warp; the same in every lane. `value`: of a number.
template <typename Value>
__device__ inline double sum_squares(std::uint32_t count, Value value) {
    const unsigned lane = threadIdx.x % 32;
    double own = 0;
    for (std::uint32_t stretch = 0; stretch * kSquareStretch < count; ++stretch) {
        Vector part[2];
#pragma unroll
        for (unsigned j = 0; j < 2; ++j)
#pragma unroll
            for (unsigned c = 0; c < 4; ++c) {
                const std::uint32_t at = stretch * kSquareStretch + j * 128 + lane * 4 + c;
                part[j].at[c] = at < count ? value(at) : 0.0F;
            }
        const double sum = fold_sums(sum_squares_of(part[0], part[1]), 16);
        if (lane % kTileStretches == stretch) own = sum;
    }
    return fold_sums(own, kTileStretches / 2);
}

/// The random words of elements 4 `block` .. 4 `block` + 3 of the tensor.
__device__ inline PhiloxBlock random_block(const TensorPlan& plan, std::uint32_t block) {
    const RandomStream stream{{plan.random_key_low, plan.random_key_high}, plan.step_low, plan.step_high};
    return philox(rounding_counter(stream, block), stream.key);
}

/// The code of a value: its sign above its level.
__device__ inline std::uint32_t dither_code(const TensorPlan& plan, float to_levels, float value, std::uint32_t word) {
    const std::uint32_t level = dither_level(element::magnitude(value), to_levels, plan.levels, word);
    return level | (value < 0.0F && level > 0 ? 1U << (plan.code_bits - 1U) : 0U);
}

__device__ inline std::uint32_t exponential_code_of(const ExponentialRule& rule, const DitherUnit& unit, float per_bit,
                                                    float value, std::uint32_t word) {
    return exponential_code(rule, unit, per_bit, value, rule.is_biased ? kMiddleWord : word,
                            [&rule](std::uint32_t depth) { return exponential_level(rule.base, depth); });
}

/// A code that was drawn, and the fp32 bits of what it decodes to.
struct Drawn {
    std::uint32_t code;
    std::uint32_t decoded_bits;
};
/// One element of the part by what is coded one by one. Not inline: lists of other quantizers want the registers.
template <Draw kDraw>
static __device__ __noinline__ Drawn draw_at(const TensorPlan& plan, float to_levels, float scale, float value,
                                             std::uint32_t element_of_part) {
    const std::uint32_t number = plan.first_element + element_of_part;
    const PhiloxBlock random = random_block(plan, number / 4);
    const std::uint32_t low = number % 2 == 0 ? random.words[0] : random.words[1];
    const std::uint32_t high = number % 2 == 0 ? random.words[2] : random.words[3];
    const std::uint32_t word = (number & 2U) == 0 ? low : high;
    if (static_cast<QuantizerKind>(plan.quantizer) == QuantizerKind::kNatural) {
        const std::uint32_t code = natural_code(value, natural_factor(plan.is_scaled != 0), word);
        return {code, natural_decoded_bits(code)};
    }
    if constexpr (kDraw == Draw::kExponential) {
        if (has_base(static_cast<QuantizerKind>(plan.quantizer))) {
            const ExponentialRule rule = exponential_rule_of(plan, true);
            const std::uint32_t code = exponential_code_of(rule, {scale, to_levels}, plan.depth_per_bit, value, word);
            return {code, exponential_decoded_bits(code, rule.dither.bits, rule.base, scale)};
        }
    }
    const std::uint32_t code = dither_code(plan, to_levels, value, word);
    return {code, dither_decoded_bits(code, plan.code_bits, scale)};
}

/// The word of eight lanes' codes, 32 elements, that this lane writes: number `ret_word` of plan.code_bits; false if
/// this lane writes none. Called by a whole warp.
__device__ inline bool join_codes(std::uint32_t own, std::uint32_t bits, std::uint32_t& ret_joined,
                                  std::uint32_t& ret_word) {
    const std::uint32_t lane = threadIdx.x % 8;
    if (bits == 4) {
        ret_joined = own | __shfl_down_sync(~0U, own, 1) << 16U;
        ret_word = lane / 2;
        return lane % 2 == 0;
    }
    const std::uint32_t first = threadIdx.x % 32 - lane;
    ret_joined = 0;
    ret_word = lane;
#pragma unroll
    for (std::uint32_t piece = 0; piece < 8; ++piece) {
        const std::uint32_t other = __shfl_sync(~0U, own, static_cast<int>(first + piece));
        const int shift = static_cast<int>(4 * bits * piece) - static_cast<int>(32 * lane);
        if (shift >= 0 && shift < 32) ret_joined |= other << static_cast<unsigned>(shift);
        if (shift < 0 && shift > -32) ret_joined |= other >> static_cast<unsigned>(-shift);
    }
    return lane < bits;
}

/// The random words of a lane's vector `number` of the tile.
__device__ inline PhiloxBlock random_block_of(const TileWork& work, unsigned number) {
    return random_block(work.plan, (work.plan.first_element + work.first + place_of(work, number).local) / 4);
}

/// A tile whose elements are coded one by one: in registers, not to be read again after each store.
struct LevelCoder {
    DitherUnit unit;
    std::uint32_t levels;
    std::uint32_t bits;
    std::uint32_t elements;  ///< of the tile
    std::byte* codes;        ///< of the tile
};

/// dither_code of four elements, side by side; leaves in `inout_r` what the codes lose.
__device__ inline std::uint32_t code_four(const LevelCoder& coder, const PhiloxBlock& random, Vector& inout_r) {
    const std::uint32_t sign = 1U << (coder.bits - 1U);
    std::uint32_t codes = 0;
#pragma unroll
    for (unsigned c = 4; c-- > 0;) {
        const float value = inout_r.at[c];
        const std::uint32_t level =
            dither_level(element::magnitude(value), coder.unit.to_levels, coder.levels, random.words[c]);
        const float size = static_cast<float>(level) * coder.unit.scale;
        // Without a level this may be -0, which leaves what +0 would: not of -0, which is why that is made +0.
        const std::uint32_t sign_of_value = element::bits_of(value + 0.0F) & ~element::kMagnitudeMask;
        const float decoded = element::float_of(element::bits_of(size) | sign_of_value);
        codes = codes * (2 * sign) + (decoded < 0.0F ? level + sign : level);
        inout_r.at[c] = value - decoded;
    }
    return codes;
}

/// The same by exponential_dither.
struct ExponentialCoder : LevelCoder {
    ExponentialRule rule;
    float per_bit;
};
__device__ inline std::uint32_t code_four(const ExponentialCoder& coder, const PhiloxBlock& random, Vector& inout_r) {
    std::uint32_t codes = 0;
#pragma unroll
    for (unsigned c = 4; c-- > 0;) {
        const std::uint32_t code = coder.unit.scale > 0.0F ? exponential_code_of(coder.rule, coder.unit, coder.per_bit,
                                                                                 inout_r.at[c], random.words[c])
                                                           : 0U;
        codes = codes << coder.bits | code;
        inout_r.at[c] = inout_r.at[c] - element::float_of(exponential_decoded_bits(code, coder.bits, coder.rule.base,
                                                                                   coder.unit.scale));
    }
    return codes;
}

/// Codes vector `number` of the tile. `random`: the vector's. Called by a whole warp.
template <typename Coder>
__device__ inline void store_levels(const Coder& coder, unsigned number, const PhiloxBlock& random, Vector& inout_r) {
    std::uint32_t joined = 0;
    std::uint32_t word = 0;
    if (!join_codes(code_four(coder, random, inout_r), coder.bits, joined, word)) return;
    const std::uint32_t first = number * 128 + threadIdx.x % 32 / 8 * 32;
    std::byte* at = coder.codes + first / 8 * coder.bits + 4 * word;
    if (coder.elements >= first + 32) {
        *reinterpret_cast<std::uint32_t*>(at) = joined;
        return;
    }
    const std::uint32_t exist = coder.elements > first ? coder.elements - first : 0U;
    const std::uint32_t bytes = min((exist * coder.bits + 7) / 8, 4 * word + 4);
    for (std::uint32_t byte = 4 * word; byte < bytes; ++byte)
        at[byte - 4 * word] = static_cast<std::byte>(joined >> (8 * (byte - 4 * word)));
}

}  // namespace gradsieve::codec::cuda
