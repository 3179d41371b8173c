// Which tile a block looks at next, and everything it needs to know about it, in shared memory. Blocks take tiles one
// by one, so that none has to wait for a slower one. Device code only.
#pragma once

#include "codec/cuda/encode_plan.hpp"

namespace gradsieve::codec::cuda {

inline constexpr unsigned kNearSamples = 8;  ///< samples whose views lie in shared memory

struct TileWork {
    std::uint32_t tile;           ///< in the round
    std::uint32_t chunk;          ///< in the round
    std::uint32_t tile_in_chunk;  ///< its number in the chunk
    std::uint32_t first;          ///< its first element in the tensor
    std::uint32_t elements;       ///< kTile, fewer at the tensor's end
    std::uint32_t is_wide;        ///< whole, and aligned for vectors: its arrays are staged
    std::uint32_t whole_chunk;    ///< of the round: an earlier tile of this block made it whole; kNothing
    const SampleView* all_samples;
    const float* const* moments;
    TensorPlan plan;
    SampleView samples[kNearSamples];
};

/// The last position whose entry is not above `wanted`; `firsts` ascends from 0. Called by a whole warp.
__device__ inline std::uint32_t find_owner(const std::uint32_t* firsts, std::uint32_t count, std::uint32_t wanted) {
    const unsigned lane = threadIdx.x % 32;
    std::uint32_t low = 0;
    while (count > 1) {
        const std::uint32_t stride = (count + 31) / 32;
        const std::uint32_t probe = lane * stride;
        const bool is_below = probe < count && firsts[low + probe] <= wanted;
        const auto taken = static_cast<std::uint32_t>(31 - __clz(__ballot_sync(~0U, is_below)));
        low += taken * stride;
        count = min(stride, count - taken * stride);
    }
    return low;
}

/// A number that no other warp gets, in ascending order; only in lane 0, and only once it is looked at.
__device__ inline std::uint32_t take_ticket(const EncodeRound& round) {
    return threadIdx.x % 32 == 0 ? atomicAdd(round.ticket, 1U) : 0U;
}

/// Fills `work` with what there is to know of a tile of the round. A whole warp.
__device__ inline void find_tile(const EncodeRound& round, std::uint32_t tile, TileWork& work) {
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t chunk = find_owner(round.first_tiles, round.chunk_count, tile);
    const ChunkPlan& chunk_plan = round.chunks[chunk];
    const TensorPlan& plan = round.tensors[chunk_plan.tensor];
    constexpr unsigned kPlanWords = sizeof(TensorPlan) / 8;
    for (unsigned word = lane; word < kPlanWords; word += 32)
        reinterpret_cast<std::uint64_t*>(&work.plan)[word] = reinterpret_cast<const std::uint64_t*>(&plan)[word];
    if (lane < kNearSamples && lane < plan.sample_count) work.samples[lane] = chunk_plan.samples[lane];
    if (lane == 0) {
        const std::uint32_t in_chunk = tile - round.first_tiles[chunk];
        work.tile = tile;
        work.chunk = chunk;
        work.tile_in_chunk = in_chunk;
        work.first = chunk_plan.chunk_index * static_cast<std::uint32_t>(kChunkElements) + in_chunk * kTile;
        work.elements = min(kTile, plan.elements - work.first);
        work.is_wide = plan.is_aligned != 0 && work.elements == kTile ? 1U : 0U;
        work.all_samples = chunk_plan.samples;
        work.moments = chunk_plan.moments;
    }
    __syncwarp();
}

}  // namespace gradsieve::codec::cuda
