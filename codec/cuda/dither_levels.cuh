// Rounding at random on the device: random words, codes of a list's element by what rounds so, and by dither a tile's
// unit and the levels of four consecutive elements. The arithmetic is codec/stages/dither.hpp's,
// codec/stages/exponential_dither.hpp's and codec/stages/natural.hpp's. Device code only.
#pragma once

#include "codec/cuda/tile_load.cuh"
#include "codec/payload.hpp"
#include "codec/pipeline.hpp"
#include "codec/stages/exponential_dither.hpp"
#include "codec/stages/integer.hpp"
#include "codec/stages/natural.hpp"

#include <cmath>

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
        sums[c] = std::fma(other, other, one * one);  // squares are exact, so only their sum is rounded
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
/// Sum i takes sum i + `half`, and so on down to one. A whole warp; the same in every lane if sums repeat from
/// 2 `half` on.
__device__ inline double fold_sums(double own, unsigned half) {
    for (unsigned lanes = half; lanes > 0; lanes /= 2) own = own + __shfl_xor_sync(~0U, own, static_cast<int>(lanes));
    return own;
}
/// Sum of a list's squares, in the order of codec/stages/dither.hpp. One warp; the same in every lane. `value`: of a
/// number.
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
/// integer's code in a word: the sign in its highest bit, the magnitude in the lowest ones.
inline constexpr std::uint32_t kIntegerMagnitude = element::kMagnitudeMask;
__device__ inline Drawn draw_integer(const TensorPlan& plan, float value, std::uint32_t word) {
    const std::uint32_t magnitude = integer_magnitude(value, plan.base, plan.is_biased != 0 ? kHalfStepWord : word);
    const std::uint32_t sign = magnitude != 0 ? element::bits_of(value) & ~kIntegerMagnitude : 0U;
    const float size = static_cast<float>(static_cast<std::int32_t>(magnitude)) * plan.depth_per_bit;
    return {magnitude | sign, element::bits_of(size) | sign};
}
/// How a quantizer that rounds at random codes one element: a specialization of each. `scale`, `to_levels`: of
/// DitherUnit. `word`: the element's random word.
template <QuantizerKind kQuantizer>
struct DrawForm;
template <>
struct DrawForm<stages::Natural::kFacts.kind> {
    static __device__ Drawn draw(const TensorPlan& plan, float /*to_levels*/, float /*scale*/, float value,
                                 std::uint32_t word) {
        const std::uint32_t code = natural_code(value, natural_factor(plan.is_scaled != 0), word);
        return {code, natural_decoded_bits(code)};
    }
};
template <>
struct DrawForm<stages::Dither::kFacts.kind> {
    static __device__ Drawn draw(const TensorPlan& plan, float to_levels, float scale, float value,
                                 std::uint32_t word) {
        const std::uint32_t code = dither_code(plan, to_levels, value, word);
        return {code, dither_decoded_bits(code, plan.code_bits, scale)};
    }
};
template <>
struct DrawForm<stages::ExponentialDither::kFacts.kind> {
    static __device__ Drawn draw(const TensorPlan& plan, float to_levels, float scale, float value,
                                 std::uint32_t word) {
        const ExponentialRule rule = exponential_rule_of(plan, true);
        const std::uint32_t code = exponential_code_of(rule, {scale, to_levels}, plan.depth_per_bit, value, word);
        return {code, exponential_decoded_bits(code, rule.dither.bits, rule.base, scale)};
    }
};
template <>
struct DrawForm<stages::Integer::kFacts.kind> {
    static __device__ Drawn draw(const TensorPlan& plan, float /*to_levels*/, float /*scale*/, float value,
                                 std::uint32_t word) {
        return draw_integer(plan, value, word);
    }
};
template <Draw kDraw, typename Stage>
__device__ inline bool draw_if(const TensorPlan& plan, float to_levels, float scale, float value, std::uint32_t word,
                               Drawn& ret_drawn) {
    if constexpr (HasForm<Stage>) {
        constexpr QuantizerFacts kFacts = Stage::kFacts;
        constexpr bool kIsWide = kFacts.has_base || kFacts.has_step;
        if constexpr (kFacts.is_random && kFacts.sends_lists && (kDraw == Draw::kExponential || !kIsWide)) {
            if (static_cast<QuantizerKind>(plan.quantizer) != kFacts.kind) return false;
            ret_drawn = DrawForm<kFacts.kind>::draw(plan, to_levels, scale, value, word);
            return true;
        }
    }
    return false;
}
template <Draw kDraw, typename... Stages>
__device__ inline Drawn draw_by(QuantizerList<Stages...> /*list*/, const TensorPlan& plan, float to_levels, float scale,
                                float value, std::uint32_t word) {
    Drawn drawn{};
    static_cast<void>((draw_if<kDraw, Stages>(plan, to_levels, scale, value, word, drawn) || ...));
    return drawn;
}
/// One element of the part by what is coded one by one. Not inline: lists of other quantizers want the registers.
template <Draw kDraw>
static __device__ __noinline__ Drawn draw_at(const TensorPlan& plan, float to_levels, float scale, float value,
                                             std::uint32_t element_of_part) {
    const std::uint32_t number = plan.first_element + element_of_part;
    const PhiloxBlock random = random_block(plan.random, number / 4);
    const std::uint32_t low = number % 2 == 0 ? random.words[0] : random.words[1];
    const std::uint32_t high = number % 2 == 0 ? random.words[2] : random.words[3];
    return draw_by<kDraw>(Quantizers{}, plan, to_levels, scale, value, (number & 2U) == 0 ? low : high);
}

/// The word of eight lanes' codes, 32 elements, that this lane writes: number `ret_word` of `bits`; false if this lane
/// writes none. Called by a whole warp.
__device__ inline bool join_codes(std::uint32_t own, std::uint32_t bits, std::uint32_t& ret_joined,
                                  std::uint32_t& ret_word) {
    const std::uint32_t lane = threadIdx.x % 8;
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

/// Number of the tile's first block of random words; one is for four elements.
__device__ inline std::uint32_t first_block_of(const TileWork& work) {
    return (work.plan.first_element + work.first) / 4;
}
/// The block of this lane's vector `number`, counted from the tile's first.
__device__ inline std::uint32_t own_block(unsigned number) { return number * 32 + threadIdx.x % 32; }

/// What a tile's levels follow from. Read at once.
struct alignas(16) LevelRule {
    float scale;
    float to_levels;
    std::uint32_t most;        ///< see raised_magnitude
    std::uint32_t sign_shift;  ///< from a byte's upper bit to a code's
};

/// The upper bytes of four words, the first one's lowest.
__device__ inline std::uint32_t upper_bytes(const std::uint32_t (&words)[4]) {
    return pick_bytes(pick_bytes(words[0], words[1], 0x7373), pick_bytes(words[2], words[3], 0x7373), 0x7610);
}

/// Four elements' magnitudes in levels, each with its random number: see raised_magnitude.
struct RaisedFour {
    std::uint32_t at[4];
};
__device__ inline RaisedFour raise_four(const LevelRule& rule, const PhiloxBlock& random, const Vector& r) {
    RaisedFour raised;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c)
        raised.at[c] = raised_magnitude(std::fabs(r.at[c]), rule.to_levels, rule.most, random.words[c]);
    return raised;
}
/// dither_code of each, a byte each.
__device__ inline std::uint32_t codes_of(const LevelRule& rule, const RaisedFour& raised, const Vector& r) {
    const std::uint32_t values[4] = {element::bits_of(r.at[0]), element::bits_of(r.at[1]), element::bits_of(r.at[2]),
                                     element::bits_of(r.at[3])};
    const std::uint32_t levels = upper_bytes(raised.at);
    // A byte's upper bit is set by this sum if it has a level; none is above 127, so nothing is carried over.
    const std::uint32_t signs = upper_bytes(values) & (levels + 0x7F7F7F7FU) & 0x80808080U;
    return levels | signs >> rule.sign_shift;
}
/// What the codes lose, or decode to.
template <bool kDecodes>
__device__ inline Vector rest_of(const LevelRule& rule, const RaisedFour& raised, const Vector& r) {
    Vector rest;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
        const float size = static_cast<float>(raised.at[c] >> kLevelFractionBits) * rule.scale;
        // Without a level this may be -0, which leaves what +0 would: not of -0, which is why that is made +0.
        const std::uint32_t sign = element::bits_of(r.at[c] + 0.0F) & ~element::kMagnitudeMask;
        const float decoded = element::float_of(element::bits_of(size) | sign);
        rest.at[c] = kDecodes ? decoded : r.at[c] - decoded;
    }
    return rest;
}

/// exponential_dither's codes of four elements, a byte each; leaves in `inout_r` what they lose, or decode to.
template <bool kDecodes>
__device__ inline std::uint32_t exponential_codes_of(const TensorPlan& plan, const LevelRule& unit,
                                                     const PhiloxBlock& random, Vector& inout_r) {
    const ExponentialRule rule = exponential_rule_of(plan, false);
    std::uint32_t codes = 0;
#pragma unroll
    for (unsigned c = 4; c-- > 0;) {
        const std::uint32_t code = unit.scale > 0.0F
                                       ? exponential_code_of(rule, {unit.scale, unit.to_levels}, plan.depth_per_bit,
                                                             inout_r.at[c], random.words[c])
                                       : 0U;
        codes = codes << 8U | code;
        const float decoded =
            element::float_of(exponential_decoded_bits(code, rule.dither.bits, rule.base, unit.scale));
        inout_r.at[c] = kDecodes ? decoded : inout_r.at[c] - decoded;
    }
    return codes;
}

/// Writes the codes of vector `number` of a tile of `elements` at `codes`. Called by a whole warp.
__device__ inline void store_codes(std::byte* codes, std::uint32_t elements, std::uint32_t bits, unsigned number,
                                   std::uint32_t bytes) {
    const std::uint32_t pairs = (bytes & 0x00FF00FFU) | (bytes & 0xFF00FF00U) >> (8U - bits);
    std::uint32_t joined = 0;
    std::uint32_t word = 0;
    if (!join_codes((pairs & 0xFFFFU) | pairs >> 16U << (2U * bits), bits, joined, word)) return;
    const std::uint32_t first = number * 128 + threadIdx.x % 32 / 8 * 32;
    std::byte* at = codes + first / 8 * bits + 4 * word;
    if (elements >= first + 32) {
        *reinterpret_cast<std::uint32_t*>(at) = joined;
        return;
    }
    const std::uint32_t exist = elements > first ? elements - first : 0U;
    const std::uint32_t end = min((exist * bits + 7) / 8, 4 * word + 4);
    for (std::uint32_t byte = 4 * word; byte < end; ++byte)
        at[byte - 4 * word] = static_cast<std::byte>(joined >> (8 * (byte - 4 * word)));
}
/// The same of a whole tile and 4 bits.
__device__ inline void store_nibbles(std::byte* codes, unsigned number, std::uint32_t bytes) {
    const std::uint32_t pairs = bytes | bytes >> 4U;
    reinterpret_cast<std::uint16_t*>(codes)[own_block(number)] =
        static_cast<std::uint16_t>(pick_bytes(pairs, 0, 0x4420));
}

}  // namespace gradsieve::codec::cuda
