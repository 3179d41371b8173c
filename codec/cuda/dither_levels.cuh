// Rounding at random on the device: random words, codes of a list's element by dither or natural, and by dither a
// tile's unit and the levels of four consecutive elements. The arithmetic is codec/dither.hpp's and
// codec/natural.hpp's. Device code only.
#pragma once

#include "codec/cuda/tile_load.cuh"
#include "codec/dither.hpp"
#include "codec/natural.hpp"
#include "codec/pipeline.hpp"

namespace gradsieve::codec::cuda {

__device__ inline DitherRule dither_rule_of(const TensorPlan& plan, bool is_list) {
    DitherRule rule;
    rule.levels = plan.levels;
    rule.bits = plan.code_bits;
    rule.is_max_norm = plan.is_max_norm != 0;
    rule.is_scaled = plan.is_scaled != 0;
    rule.is_list = is_list;
    return rule;
}

/// Whether the unit depends on the squares.
__device__ inline bool needs_squares(const TensorPlan& plan) { return plan.is_max_norm == 0 || plan.is_scaled != 0; }

/// Sum of squares in fp64 in the order of a list or of a tile's elements: number j adds to lane j % 32 in order, then
/// lane l takes lane l + 16, 8, 4, 2, 1. One warp; the same in every lane. `value`: of a number.
template <typename Value>
__device__ inline double sum_squares(std::uint32_t count, Value value) {
    double sum = 0;
    std::uint32_t at = threadIdx.x % 32;
#pragma unroll 4
    for (; at < count; at += 32) {
        const auto wide = static_cast<double>(value(at));
        sum = sum + wide * wide;
    }
#pragma unroll
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) sum = sum + __shfl_down_sync(~0U, sum, lanes);
    return __shfl_sync(~0U, sum, 0);
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

/// A code that was drawn, and the fp32 bits of what it decodes to.
struct Drawn {
    std::uint32_t code;
    std::uint32_t decoded_bits;
};
/// One element of the part by dither or natural. Not inline: lists of other quantizers want the registers.
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

/// Codes that vector, and leaves in `inout_r` what the codes lose. `codes`: of the chunk; `random`: the vector's.
/// Called by a whole warp.
__device__ inline void store_levels(const TileWork& work, std::byte* codes, unsigned number, const DitherUnit& unit,
                                    const PhiloxBlock& random, Vector& inout_r) {
    const TensorPlan& plan = work.plan;
    const std::uint32_t bits = plan.code_bits;
    std::uint32_t own = 0;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
        const std::uint32_t code = dither_code(plan, unit.to_levels, inout_r.at[c], random.words[c]);
        own |= code << (c * bits);
        inout_r.at[c] = inout_r.at[c] - element::float_of(dither_decoded_bits(code, bits, unit.scale));
    }
    std::uint32_t joined = 0;
    std::uint32_t word = 0;
    if (!join_codes(own, bits, joined, word)) return;
    const std::uint32_t first = number * 128 + threadIdx.x % 32 / 8 * 32;
    const std::uint32_t exist = work.elements > first ? min(32U, work.elements - first) : 0U;
    const std::uint32_t bytes = (exist * bits + 7) / 8;
    std::byte* at = codes + (std::size_t{work.tile_in_chunk} * kTile + first) / 8 * bits + 4 * word;
    if (4 * word + 4 <= bytes) {
        *reinterpret_cast<std::uint32_t*>(at) = joined;
        return;
    }
    for (std::uint32_t byte = 4 * word; byte < bytes; ++byte)
        at[byte - 4 * word] = static_cast<std::byte>(joined >> (8 * (byte - 4 * word)));
}

}  // namespace gradsieve::codec::cuda
