// Which tile a block looks at next, and everything it needs to know about it, in shared memory. Tiles are handed out in
// order by a ticket, so that a block that waits for a slot waits for blocks that already run. Device code only.
#pragma once

#include "codec/cuda/encode_plan.hpp"

namespace gradsieve::codec::cuda {

inline constexpr unsigned kNearSamples = 8;  ///< samples whose views lie in shared memory

struct TileWork {
    std::uint32_t tile;           ///< in the round; kNothing: no more work
    std::uint32_t chunk;          ///< in the round
    std::uint32_t tile_in_chunk;  ///< its number in the chunk
    std::uint32_t first;          ///< its first element in the tensor
    std::uint32_t elements;       ///< kTile, fewer at the tensor's end
    std::uint32_t slot;
    std::uint32_t is_wide;      ///< whole, and aligned for vectors
    std::uint32_t waits_chunk;  ///< whose slot this tile takes over; kNothing
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

/// Fills `work` with the next tile; a whole warp, whose other lanes see it after a barrier.
__device__ inline void take_tile(const EncodeRound& round, TileWork& work) {
    const unsigned lane = threadIdx.x % 32;
    std::uint32_t tile = 0;
    if (lane == 0) tile = atomicAdd(round.ticket, 1U);
    tile = __shfl_sync(~0U, tile, 0);
    if (tile >= round.end_tile) {
        if (lane == 0) work.tile = kNothing;
        return;
    }
    const std::uint32_t chunk = find_owner(round.first_tiles, round.chunk_count, tile);
    const ChunkPlan& chunk_plan = round.chunks[chunk];
    const TensorPlan& plan = round.tensors[chunk_plan.tensor];
    constexpr unsigned kPlanWords = sizeof(TensorPlan) / 8;
    for (unsigned word = lane; word < kPlanWords; word += 32)
        reinterpret_cast<std::uint64_t*>(&work.plan)[word] = reinterpret_cast<const std::uint64_t*>(&plan)[word];
    if (lane < kNearSamples && lane < plan.sample_count) work.samples[lane] = chunk_plan.samples[lane];
    std::uint32_t waits_chunk = kNothing;
    if (tile >= round.ring_tiles)
        waits_chunk = find_owner(round.first_tiles, round.chunk_count, tile - round.ring_tiles);
    if (lane != 0) return;
    const std::uint32_t in_chunk = tile - round.first_tiles[chunk];
    work.tile = tile;
    work.chunk = chunk;
    work.tile_in_chunk = in_chunk;
    work.first = chunk_plan.chunk_index * static_cast<std::uint32_t>(kChunkElements) + in_chunk * kTile;
    work.elements = min(kTile, plan.elements - work.first);
    work.slot = tile % round.ring_tiles;
    work.is_wide = plan.is_aligned != 0 && work.elements == kTile ? 1U : 0U;
    work.waits_chunk = waits_chunk;
    work.all_samples = chunk_plan.samples;
    work.moments = chunk_plan.moments;
}

/// Waits until the slot's last user is coded; one thread. That chunk's tiles are all taken, by blocks that run.
__device__ inline void wait_for_slot(const EncodeRound& round, const TileWork& work) {
    if (work.waits_chunk == kNothing) return;
    const volatile std::uint32_t* is_coded = &round.chunk_states[work.waits_chunk].is_coded;
    while (*is_coded == 0) __nanosleep(100);
    __threadfence();
}

/// Counts one finished part of a chunk; true for the last. One thread, after the others' writes were ordered before it
/// by a barrier.
__device__ inline bool finish_part(ChunkState& state, std::uint32_t parts) {
    __threadfence();
    const bool is_last = atomicAdd(&state.parts_done, 1U) + 1 == parts;
    __threadfence();
    return is_last;
}

}  // namespace gradsieve::codec::cuda
