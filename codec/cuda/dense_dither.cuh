// Dither and exponential_dither in the dense pass: the warps that look tell what a tile's unit depends on, a warp of
// its own finds the unit, and they code with it. Device code only.
#pragma once

#include "codec/cuda/dense_stage.cuh"
#include "codec/cuda/dither_levels.cuh"

namespace gradsieve::codec::cuda {

static_assert(kThreadVectors == 2 && kTileStretches == kPassWarps, "a warp looks at a stretch");
/// Sums of squares of a stretch's lanes, and one more, so that those of several stretches lie in different banks.
inline constexpr unsigned kSquareRow = 33;

/// How a tile is coded, and where to. Read at once, two vectors.
struct alignas(16) TileCoding {
    LevelRule rule;
    std::byte* codes;     ///< of the tile
    float* residual_out;  ///< of the tile's first element; null: nobody wants what codes lose
    std::uint32_t is_wide;
    std::uint32_t is_nibbles;  ///< codes of 4 bits, and a whole tile
};

/// What they tell.
struct DitherShared {
    TileCoding coding;
    Gate known;                                    ///< the tile's coding is; every lane that found it arrives
    std::uint32_t largest[kPassWarps];             ///< magnitude bits
    double lane_squares[kPassWarps * kSquareRow];  ///< of a warp's lanes each
};

/// Before open_pipe; every thread of the block.
__device__ inline void open_units(DitherShared& shared) {
    if (threadIdx.x == 0) open_gate(shared.known, 32);
}

/// Tells the warp that finds units what this warp's elements say of it. They have been read from the stage then.
__device__ inline void tell_measures(const TileStage& stage, const Vector (&r)[kThreadVectors],
                                     std::uint32_t own_largest, DitherShared& ret_shared) {
    const unsigned warp = threadIdx.x / 32;
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t largest = __reduce_max_sync(~0U, own_largest);
    if (lane == 0) ret_shared.largest[warp] = largest;
    if (stage.work.plan.needs_squares != 0)
        ret_shared.lane_squares[warp * kSquareRow + lane] = sum_squares_of(r[0], r[1]);
    arrive(stage.empty);
}

/// The sum of a tile's squares in the order of codec/stages/dither.hpp: half a warp adds up the even sums of the
/// stretches, the other half the odd ones. One warp; the same in every lane.
__device__ inline double fold_squares(const double* lane_squares) {
    const unsigned lane = threadIdx.x % 32;
    const double* own = lane_squares + lane % kTileStretches * kSquareRow + lane / kTileStretches;
    double sums[8];
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) sums[i] = own[2 * i] + own[2 * i + 16];
#pragma unroll
    for (unsigned half = 4; half > 0; half /= 2)
#pragma unroll
        for (unsigned i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
    const double stretch = sums[0] + __shfl_xor_sync(~0U, sums[0], static_cast<int>(kTileStretches));
    return fold_sums(stretch, kTileStretches / 2);
}

/// Finds units. What follows from the count alone is kept from tile to tile.
class UnitFinder {
public:
    /// Finds a tile's unit and writes its scale, which takes a thousand cycles of fp64, while the others draw their
    /// random numbers. One warp.
    template <QuantizerKind kQuantizer>
    __device__ void find(const TileStage& stage, std::byte* scales, std::byte* values, DitherShared& shared) {
        const unsigned lane = threadIdx.x % 32;
        const TileWork& work = stage.work;
        const DitherRule rule = dither_rule_of(work.plan, false);
        DitherTile tile;
        tile.count = work.elements;
        TileCoding coding;
        coding.codes = values + work.tile_in_chunk * (kTile / 8) * rule.bits;
        coding.residual_out = work.plan.residual_out == nullptr ? nullptr : work.plan.residual_out + work.first;
        coding.is_wide = work.is_wide;
        coding.is_nibbles = rule.bits == 4 && tile.count == kTile ? 1U : 0U;
        float* const scale = reinterpret_cast<float*>(scales) + work.tile_in_chunk;
        if constexpr (!has_base(kQuantizer)) see(rule, tile.count);
        arrive(stage.empty);
        await(stage.empty, stage.parity);
        tile.largest = element::float_of(__reduce_max_sync(~0U, shared.largest[lane % kPassWarps]));
        if (work.plan.needs_squares != 0) tile.square_sum = fold_squares(shared.lane_squares);
        DitherUnit unit;
        if constexpr (!has_base(kQuantizer))
            unit = dither_unit(rule, tile, worst_);
        else
            unit = exponential_unit(exponential_rule_of(work.plan, false), tile);
        if (lane == 0) {
            coding.rule = {unit.scale, unit.to_levels, most_bits(rule.levels), 8U - rule.bits};
            shared.coding = coding;
            *scale = unit.scale;
        }
        arrive(shared.known);
    }

private:
    __device__ void see(const DitherRule& rule, std::uint32_t count) {
        if (!rule.is_scaled) return;
        if (rule.levels == levels_ && rule.is_max_norm == is_max_norm_ && count == count_) return;
        levels_ = rule.levels;
        is_max_norm_ = rule.is_max_norm;
        count_ = count;
        worst_ = worst_dither_bound(rule, count);
    }

    std::uint32_t levels_ = 0;
    std::uint32_t count_ = 0;
    bool is_max_norm_ = false;
    double worst_ = 0;
};

/// Writes the codes of this thread's vectors, of which bytes[j] has those of the j-th.
__device__ inline void store_bytes(const TileWork& work, const TileCoding& coding,
                                   const std::uint32_t (&bytes)[kThreadVectors]) {
    if (coding.is_nibbles != 0) {
#pragma unroll
        for (unsigned j = 0; j < kThreadVectors; ++j) store_nibbles(coding.codes, own_vector(j), bytes[j]);
        return;
    }
    // Not side by side, which would take registers from what all tiles run through.
#pragma unroll 1
    for (unsigned j = 0; j < kThreadVectors; ++j)
        store_codes(coding.codes, work.elements, 8U - coding.rule.sign_shift, own_vector(j),
                    j == 0 ? bytes[0] : bytes[1]);
}

/// Codes the tile once its unit is known, and stores what the codes lose, or leaves what they decode to.
template <QuantizerKind kQuantizer, bool kDecodes>
__device__ inline void code_levels(const TileStage& stage, Vector (&r)[kThreadVectors], std::uint32_t own_largest,
                                   DitherShared& shared) {
    const TileWork& work = stage.work;
    tell_measures(stage, r, own_largest, shared);
    const std::uint32_t first_block = first_block_of(work);
    PhiloxBlock random[kThreadVectors];
    std::uint32_t drawn = 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        random[j] = random_block(work.plan.random, first_block + own_block(own_vector(j)));
        drawn ^= random[j].words[0] ^ random[j].words[2];
    }
    // Else the assembler puts the random numbers behind the waiting that they are to fill.
    const std::uint32_t nothing = drawn & work.plan.random.zero;
    await(shared.known, (stage.number ^ nothing) % 2);
    const TileCoding coding = shared.coding;
    std::uint32_t bytes[kThreadVectors];
    if constexpr (!has_base(kQuantizer)) {
        RaisedFour raised[kThreadVectors];
#pragma unroll
        for (unsigned j = 0; j < kThreadVectors; ++j) {
            raised[j] = raise_four(coding.rule, random[j], r[j]);
            bytes[j] = codes_of(coding.rule, raised[j], r[j]);
        }
        store_bytes(work, coding, bytes);
        if (coding.residual_out == nullptr) return;
#pragma unroll
        for (unsigned j = 0; j < kThreadVectors; ++j) r[j] = rest_of<kDecodes>(coding.rule, raised[j], r[j]);
    } else {
#pragma unroll
        for (unsigned j = 0; j < kThreadVectors; ++j)
            bytes[j] = exponential_codes_of<kDecodes>(work.plan, coding.rule, random[j], r[j]);
        store_bytes(work, coding, bytes);
        if (coding.residual_out == nullptr) return;
    }
    if constexpr (kDecodes) return;
    if (coding.is_wide != 0)
        store_whole(coding.residual_out, own_vector(0), r);
    else
        store_some(work, coding.residual_out, own_vector(0), r);
}

}  // namespace gradsieve::codec::cuda
