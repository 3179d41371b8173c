// integer in the dense pass: how wide a chunk's codes are is known once all of them are, so that they wait in the
// tiles' slots, a word each. Device code only.
#pragma once

#include "codec/cuda/dense_form.cuh"
#include "codec/cuda/dense_stage.cuh"
#include "codec/cuda/dither_levels.cuh"

namespace gradsieve::codec::cuda {

/// What warps tell each other of a tile: all magnitudes or-ed. In turn: one tile's are read while the next one's are
/// written.
struct IntegerShared {
    std::uint32_t magnitudes[2][kPassWarps];
};

/// Rounds the tile, and writes what the codes lose.
__device__ inline void code_integer_tile(const EncodeRound& round, const TileStage& stage, Vector (&r)[kThreadVectors],
                                         IntegerShared& shared) {
    const TileWork& work = stage.work;
    arrive(stage.empty);
    const std::uint32_t first_block = first_block_of(work);
    auto* codes = reinterpret_cast<uint4*>(round.slot_values + std::size_t{work.tile} * kTile * sizeof(std::uint32_t));
    std::uint32_t seen = 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        const std::uint32_t block = own_block(own_vector(j));
        const PhiloxBlock random = random_block(work.plan.random, first_block + block);
        std::uint32_t own[4];
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const Drawn drawn = draw_integer(work.plan, r[j].at[c], random.words[c]);
            own[c] = drawn.code;
            seen |= drawn.code;
            r[j].at[c] = r[j].at[c] - element::float_of(drawn.decoded_bits);
        }
        codes[block] = make_uint4(own[0], own[1], own[2], own[3]);
    }
    if (work.plan.residual_out != nullptr) store_vectors(work, work.plan.residual_out, own_vector(0), r);
    const unsigned turn = stage.number % 2;
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t of_warp = __reduce_or_sync(~0U, seen & kIntegerMagnitude);
    if (lane == 0) shared.magnitudes[turn][threadIdx.x / 32] = of_warp;
    meet_lookers();
    if (threadIdx.x >= 32) return;
    const std::uint32_t all = __reduce_or_sync(~0U, lane < kPassWarps ? shared.magnitudes[turn][lane] : 0U);
    if (lane == 0 && all != 0) atomicOr(&round.chunk_results[work.chunk].bytes, all);
}

/// Its tiles are coded by code_integer_tile.
template <>
struct DenseForm<stages::Integer::kFacts.kind> {
    using Shared = IntegerShared;
};

}  // namespace gradsieve::codec::cuda
