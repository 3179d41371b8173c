// A group of tiles of one chunk, for the kernels that look at lists that wait: which tiles, and what is known of their
// tensor. Device code only.
#pragma once

#include "codec/cuda/early_start.cuh"
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/tile_send.cuh"
#include "codec/cuda/tile_work.cuh"

namespace gradsieve::codec::cuda {

struct GroupWork {
    const TensorPlan* plan;
    TensorState* state;
    std::uint32_t tensor;
    std::uint32_t chunk;           ///< in the round
    std::uint32_t first_in_chunk;  ///< the group's first tile
    std::uint32_t tiles;
};

/// Group `group` of the round; every warp finds it for itself.
__device__ inline GroupWork group_work(const EncodeRound& round, std::uint32_t group) {
    GroupWork work;
    work.chunk = find_owner(round.first_groups, round.chunk_count, group);
    const ChunkPlan& chunk = round.chunks[work.chunk];
    work.tensor = chunk.tensor;
    work.plan = round.tensors + chunk.tensor;
    work.state = round.tensor_states + chunk.tensor;
    work.first_in_chunk = (group - round.first_groups[work.chunk]) * kGroupTiles;
    work.tiles = min(kGroupTiles, chunk.tiles - work.first_in_chunk);
    return work;
}

struct GroupTile {
    std::uint32_t tile;   ///< in the round
    std::uint32_t first;  ///< element in the tensor
    std::uint32_t elements;
};
__device__ inline GroupTile group_tile(const EncodeRound& round, const GroupWork& work, std::uint32_t number) {
    const std::uint32_t in_chunk = work.first_in_chunk + number;
    GroupTile tile;
    tile.tile = round.first_tiles[work.chunk] + in_chunk;
    tile.first = round.chunks[work.chunk].chunk_index * static_cast<std::uint32_t>(kChunkElements) + in_chunk * kTile;
    tile.elements = min(kTile, work.plan->elements - tile.first);
    return tile;
}

/// Whether a group is the last of its tensor to come here; the whole block learns it. `place`: its count in
/// TensorState::groups_done.
__device__ inline bool is_last_group(const GroupWork& work, unsigned place) {
    __shared__ std::uint32_t is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(&work.state->groups_done[place], 1U) + 1 == work.plan->group_count ? 1U : 0U;
        __threadfence();
    }
    __syncthreads();
    return is_last != 0;
}

__device__ inline const float* waiting_values_of(const EncodeRound& round, std::uint32_t tile) {
    return reinterpret_cast<const float*>(round.slot_values + std::size_t{tile} * kTile * round.slot_value_bytes);
}

// ---- what is known of a top-k tensor; the same for all its groups ----
// One whose threshold is estimated has no list before that is known: its floor was missed, and what it lists then is
// cut to the most that may be sent.

__device__ inline bool is_top_k(const GroupWork& work) {
    return static_cast<Selection>(work.plan->selection) == Selection::kBest || work.plan->looks > 0;
}
/// Its block needs no other one to find the k-th magnitude, and has found it before the kernels that count begin.
__device__ inline bool has_one_group(const GroupWork& work) {
    return work.plan->group_count == 1 && work.plan->shared == nullptr;
}
/// Too few candidates, and the floor was a guess.
__device__ inline bool was_missed(const GroupWork& work) {
    return is_top_k(work) && work.plan->has_low_floor == 0 && work.state->listed < work.plan->keep_count;
}
/// Whether a k-th magnitude exists; without one every candidate is kept.
__device__ inline bool is_cut(const GroupWork& work) {
    const std::uint32_t candidates = was_missed(work) ? work.state->relisted : work.state->listed;
    return is_top_k(work) && candidates >= work.plan->keep_count;
}
__device__ inline bool are_ties_cut(const GroupWork& work) {
    return is_cut(work) && work.state->ties > work.state->wanted;
}

}  // namespace gradsieve::codec::cuda
