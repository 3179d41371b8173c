// Dither and exponential_dither in the dense pass: the warps that look tell what a tile's unit depends on, a warp of
// its own finds the unit, and they code with it. Device code only.
#pragma once

#include "codec/cuda/dither_levels.cuh"
#include "codec/cuda/tile_pipe.cuh"

namespace gradsieve::codec::cuda {

/// Barriers at which those that look and the warp that finds units tell each other.
inline constexpr unsigned kMeasured = 2;
inline constexpr unsigned kUnitKnown = 3;
inline constexpr unsigned kUnitThreads = kPassThreads + 32;

/// What they tell.
struct DitherShared {
    std::uint32_t largest[kPassWarps];  ///< magnitude bits
    double square_sums[kPassWarps];     ///< of a stretch each
    DitherUnit unit;
};
static_assert(kThreadVectors == 2 && kTileStretches == kPassWarps, "a warp looks at a stretch");

/// This thread's j-th vector, in the tile.
__device__ inline unsigned own_vector(unsigned j) { return vector_number(threadIdx.x / 32, j); }

/// The largest magnitude bits of this thread's elements; those of what is not finite are above all others.
__device__ inline std::uint32_t largest_of(const Vector (&r)[kThreadVectors]) {
    std::uint32_t largest = 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j)
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) largest = max(largest, element::magnitude_bits(r[j].at[c]));
    return largest;
}

/// Tells the warp that finds units what this warp's elements say of it. They have been read from the stage then.
__device__ inline void tell_measures(const TileWork& work, const Vector (&r)[kThreadVectors], std::uint32_t own_largest,
                                     DitherShared& ret_shared) {
    const unsigned warp = threadIdx.x / 32;
    const std::uint32_t largest = __reduce_max_sync(~0U, own_largest);
    double sum = 0;
    if (needs_squares(dither_rule_of(work.plan, false))) sum = fold_sums(sum_squares_of(r[0], r[1]), 16);
    if (threadIdx.x % 32 == 0) {
        ret_shared.largest[warp] = largest;
        ret_shared.square_sums[warp] = sum;
    }
    arrive(kMeasured, kUnitThreads);
}

/// Finds a tile's unit and writes its scale, which takes a thousand cycles of fp64, while the others draw their random
/// numbers. One warp.
template <QuantizerKind kQuantizer>
__device__ inline void find_unit(const TileStage& stage, std::byte* scales, DitherShared& shared) {
    const unsigned lane = threadIdx.x % 32;
    const DitherRule rule = dither_rule_of(stage.work.plan, false);
    DitherTile tile;
    tile.count = stage.work.elements;
    meet(kMeasured, kUnitThreads);
    if (lane == 0) arrive(stage.empty);
    tile.largest = element::float_of(__reduce_max_sync(~0U, shared.largest[lane % kPassWarps]));
    if (needs_squares(rule)) tile.square_sum = fold_sums(shared.square_sums[lane % kPassWarps], kTileStretches / 2);
    DitherUnit unit;
    if constexpr (kQuantizer == QuantizerKind::kExponentialDither)
        unit = exponential_unit(exponential_rule_of(stage.work.plan, false), tile);
    else
        unit = dither_unit(rule, tile);
    if (lane == 0) {
        shared.unit = unit;
        reinterpret_cast<float*>(scales)[stage.work.tile_in_chunk] = unit.scale;
    }
    arrive(kUnitKnown, kUnitThreads);
}

/// Codes the tile once its unit is known.
template <QuantizerKind kQuantizer>
__device__ inline void code_levels(const TileStage& stage, std::byte* values, Vector (&r)[kThreadVectors],
                                   std::uint32_t own_largest, DitherShared& shared) {
    const TileWork& work = stage.work;
    tell_measures(work, r, own_largest, shared);
    PhiloxBlock random[kThreadVectors];
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) random[j] = random_block_of(work, own_vector(j));
    const std::uint32_t bits = work.plan.code_bits;
    float* const residual_out = work.plan.residual_out;
    std::byte* const codes = values + work.tile_in_chunk * (kTile / 8) * bits;
    meet(kUnitKnown, kUnitThreads);
    const auto coder = [&] {
        const LevelCoder levels{shared.unit, work.plan.levels, bits, work.elements, codes};
        if constexpr (kQuantizer == QuantizerKind::kExponentialDither)
            return ExponentialCoder{levels, exponential_rule_of(work.plan, false), work.plan.depth_per_bit};
        else
            return levels;
    }();
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        const unsigned number = own_vector(j);
        store_levels(coder, number, random[j], r[j]);
        if (residual_out != nullptr) store_vector(work, residual_out, number, r[j]);
    }
}

}  // namespace gradsieve::codec::cuda
