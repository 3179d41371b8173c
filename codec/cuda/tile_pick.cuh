// What becomes of the elements of a tile that a dense pass picked, while the threads that looked at them still hold
// them: sent at once, with the state of what is sent settled before it is written, or listed until the tensor is
// decided. In the order of the tile throughout: a warp holds consecutive vectors, a lane four elements of each. Device
// code only.
#pragma once

#include "codec/cuda/tile_load.cuh"
#include "codec/cuda/tile_pipe.cuh"
#include "codec/cuda/tile_send.cuh"

namespace gradsieve::codec::cuda {

/// A thread's vectors, and which of their elements are picked: bit c of masks[j].
struct PickedVectors {
    Vector r[kThreadVectors];
    Vector v[kThreadVectors];  ///< before any decay
    std::uint32_t masks[kThreadVectors];
};

/// What the block's warps tell each other of a tile.
struct Told {
    std::uint32_t largest[kPassWarps];  ///< magnitude bits
    std::uint32_t counts[kPassWarps];
    std::uint32_t firsts[kPassWarps];  ///< index in the tile of the warp's first entry
    std::uint32_t ends[kPassWarps];    ///< behind its last one; 0: it has none
    float scale;                       ///< sign
};
struct PickShared {
    Told told[2];  ///< in turn: what is told of a tile is read while that of the next one is written
    std::uint32_t quotients[kWorkSlots][kRiceSums];
};

__device__ inline void open_picks(PickShared& shared) {
    for (unsigned at = threadIdx.x; at < kWorkSlots * kRiceSums; at += kPassBlock)
        shared.quotients[at / kRiceSums][at % kRiceSums] = 0;
}

/// Which elements of a vector passed the gate, as bits of a word that eight lanes share.
__device__ inline void store_gate(const EncodeRound& round, const TileWork& work, std::uint32_t mask,
                                  std::uint32_t local) {
    std::uint32_t word = mask << (4 * (threadIdx.x % 8));
#pragma unroll
    for (unsigned lanes = 4; lanes > 0; lanes /= 2) word |= __shfl_xor_sync(~0U, word, lanes);
    if (threadIdx.x % 8 == 0) round.gate_words[std::size_t{work.tile} * (kTile / 32) + local / 32] = word;
}

/// Where a warp's entries stand in the tile's list.
struct WarpPlace {
    std::uint32_t begin = 0;  ///< entries before it
    std::uint32_t count = 0;
    std::uint32_t end_before = 0;  ///< index behind the last entry before it; 0: none
    std::uint32_t total = 0;       ///< of the tile; in warp 0
};

/// Tells the others how many entries this warp has, first and last. `masks`: as of PickedVectors.
__device__ inline void tell_count(const std::uint32_t (&masks)[kThreadVectors], Told& ret_told) {
    const unsigned lane = threadIdx.x % 32;
    std::uint32_t count = 0;
    std::uint32_t first = kTile;
    std::uint32_t end = 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        if (masks[j] == 0) continue;
        const std::uint32_t local = vector_number(j) * 128 + lane * 4;
        count += __popc(masks[j]);
        first = min(first, local + __ffs(static_cast<int>(masks[j])) - 1);
        end = local + 32 - __clz(static_cast<int>(masks[j]));
    }
    if (__any_sync(~0U, count > 0)) {
        count = __reduce_add_sync(~0U, count);
        first = __reduce_min_sync(~0U, first);
        end = __reduce_max_sync(~0U, end);
    }
    if (lane != 0) return;
    const unsigned warp = threadIdx.x / 32;
    ret_told.counts[warp] = count;
    ret_told.firsts[warp] = first;
    ret_told.ends[warp] = end;
}

/// Once all have told. Warp 0 writes what the tile's info says of its entries.
__device__ inline WarpPlace find_place(const Told& told, TileInfo* ret_info) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    WarpPlace place;
    place.count = told.counts[warp];
    if (warp > 0 && place.count == 0) return place;
    const std::uint32_t count = lane < kPassWarps ? told.counts[lane] : 0U;
    const std::uint32_t end = lane < kPassWarps ? told.ends[lane] : 0U;
    if (warp > 0) {
        place.begin = __reduce_add_sync(~0U, lane < warp ? count : 0U);
        place.end_before = __reduce_max_sync(~0U, lane < warp ? end : 0U);
        return place;
    }
    place.total = __reduce_add_sync(~0U, count);
    const std::uint32_t first = __reduce_min_sync(~0U, lane < kPassWarps ? told.firsts[lane] : kTile);
    const std::uint32_t last_end = __reduce_max_sync(~0U, end);
    if (lane != 0) return place;
    ret_info->count = place.total;
    ret_info->first = place.total > 0 ? first : 0U;
    ret_info->last = place.total > 0 ? last_end - 1U : 0U;
    return place;
}

/// Calls `body(j, c, position, index, end_before)` for this thread's entries: position in the tile's list, index in the
/// tile, and the index behind the entry before it. A whole warp that has entries.
template <typename Body>
__device__ inline void for_each_entry(const std::uint32_t (&masks)[kThreadVectors], const WarpPlace& place,
                                      Body body) {
    const unsigned lane = threadIdx.x % 32;
    std::uint32_t begin = place.begin;
    std::uint32_t end_before = place.end_before;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        const std::uint32_t holders = __ballot_sync(~0U, masks[j] != 0);
        if (holders == 0) continue;
        const std::uint32_t local = vector_number(j) * 128 + lane * 4;
        const std::uint32_t lower_lanes = (1U << lane) - 1U;
        std::uint32_t before = 0;  // entries of lower lanes
        std::uint32_t total = 0;
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const std::uint32_t lanes = __ballot_sync(~0U, (masks[j] >> c) & 1U);
            before += __popc(lanes & lower_lanes);
            total += __popc(lanes);
        }
        const std::uint32_t own_end = local + 32 - __clz(static_cast<int>(masks[j]));
        const std::uint32_t below = holders & lower_lanes;
        const std::uint32_t neighbour = __shfl_sync(~0U, own_end, below == 0 ? 0 : 31 - __clz(static_cast<int>(below)));
        const std::uint32_t last = __shfl_sync(~0U, own_end, 31 - __clz(static_cast<int>(holders)));
        if (masks[j] != 0) {
            std::uint32_t position = begin + before;
            std::uint32_t behind = below == 0 ? end_before : neighbour;
#pragma unroll
            for (unsigned c = 0; c < 4; ++c) {
                if (((masks[j] >> c) & 1U) == 0) continue;
                body(j, c, position++, local + c, behind);
                behind = local + c + 1U;
            }
        }
        begin += total;
        end_before = last;
    }
}

/// The largest magnitude bits of what this warp picked; every lane.
__device__ inline std::uint32_t largest_picked(const PickedVectors& picked) {
    std::uint32_t largest = 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j)
#pragma unroll
        for (unsigned c = 0; c < 4; ++c)
            if (((picked.masks[j] >> c) & 1U) != 0) largest = max(largest, element::magnitude_bits(picked.r[j].at[c]));
    return __reduce_max_sync(~0U, largest);
}

__device__ inline void store_state(const TileWork& work, unsigned j, const Vector& r, const Vector& decayed) {
    store_vector(work, work.plan.residual_out, vector_number(j), r);
    if (work.plan.has_variance != 0) store_vector(work, work.plan.variance_out, vector_number(j), decayed);
}

__device__ inline Vector decayed(const TensorPlan& plan, const Vector& v) {
    Vector result;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) result.at[c] = plan.zeta * v.at[c];
    return result;
}

/// The tensor is decided later: the state is written as if nothing were sent, and what was picked waits in the slot.
template <typename Release>
__device__ inline void list_picked(const EncodeRound& round, const TileStage& stage, const PickedVectors& picked,
                                   PickShared& shared, Release release) {
    const TileWork& work = stage.work;
    const unsigned lane = threadIdx.x % 32;
    const TileTarget target = tile_target(round, work.plan, work.tile, work.first);
    Told& told = shared.told[stage.slot % 2];
    tell_count(picked.masks, told);
    const std::uint32_t warp_largest = largest_picked(picked);
    if (lane == 0) told.largest[threadIdx.x / 32] = warp_largest;
    release();
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) store_state(work, j, picked.r[j], decayed(work.plan, picked.v[j]));
    const WarpPlace place = find_place(told, target.info);
    if (threadIdx.x < 32) {
        const std::uint32_t largest = __reduce_max_sync(~0U, lane < kPassWarps ? told.largest[lane] : 0U);
        if (lane == 0) {
            target.info->scale = largest;
            TensorState& state = round.tensor_states[round.chunks[work.chunk].tensor];
            if (place.total > 0) {
                atomicAdd(&state.listed, place.total);
                atomicMax(&state.largest, largest);
            }
        }
    }
    if (place.count > 0)
        for_each_entry(picked.masks, place,
                       [&](unsigned j, unsigned c, std::uint32_t at, std::uint32_t index, std::uint32_t) {
                           target.indices[at] = static_cast<std::uint16_t>(index);
                           reinterpret_cast<float*>(target.values)[at] = picked.r[j].at[c];
                       });
}

/// Sign's scale: the mean magnitude of what is picked, in the order of the list, by way of shared memory: the stage's
/// first array is overwritten. What was told of the counts is read.
__device__ inline float mean_of_picked(const TileStage& stage, const PickedVectors& picked, Told& told) {
    auto* values = reinterpret_cast<float*>(const_cast<std::byte*>(stage.arrays));
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t counts = lane < kPassWarps ? told.counts[lane] : 0U;
    const std::uint32_t begin = __reduce_add_sync(~0U, lane < threadIdx.x / 32 ? counts : 0U);
    const std::uint32_t count = __reduce_add_sync(~0U, counts);
    for_each_entry(picked.masks, {begin},
                   [&](unsigned j, unsigned c, std::uint32_t at, std::uint32_t, std::uint32_t) {
                       values[at] = picked.r[j].at[c];
                   });
    meet<kPassThreads>();
    if (threadIdx.x < 32) {
        const float mean = count == 0 ? 0.0F : mean_magnitude(values, count);
        if (lane == 0) told.scale = mean;
    }
    before_async_writes();
    meet<kPassThreads>();
    return told.scale;
}

/// What all elements of the tile share, and that the stage's arrays have been read.
template <typename Release>
__device__ inline TileScale decide_scale(const TileStage& stage, const PickedVectors& picked, Told& told,
                                         Release release) {
    const TensorPlan& plan = stage.work.plan;
    const unsigned lane = threadIdx.x % 32;
    if (needs_mean(plan)) {
        tell_count(picked.masks, told);
        meet<kPassThreads>();
        const float mean = mean_of_picked(stage, picked, told);
        release();
        return sign_scale(plan, mean);
    }
    const std::uint32_t warp_largest = largest_picked(picked);
    if (lane == 0) told.largest[threadIdx.x / 32] = warp_largest;
    release();
    return scale_of_largest(plan, __reduce_max_sync(~0U, lane < kPassWarps ? told.largest[lane] : 0U));
}

/// The tile is sent: what is picked and has a code. `inout_picked`: values become what receivers decode.
template <typename Release>
__device__ inline void send_picked(const EncodeRound& round, const TileStage& stage, PickedVectors& inout_picked,
                                   PickShared& shared, Release release) {
    const TileWork& work = stage.work;
    const TensorPlan& plan = work.plan;
    const TileTarget target = tile_target(round, plan, work.tile, work.first);
    Told& told = shared.told[stage.slot % 2];
    const TileScale tile = decide_scale(stage, inout_picked, told, release);
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        Vector& r = inout_picked.r[j];
        Vector out = r;
        Vector v_out = decayed(plan, inout_picked.v[j]);
        std::uint32_t sent = 0;
        if (inout_picked.masks[j] != 0) {
#pragma unroll
            for (unsigned c = 0; c < 4; ++c) {
                if (((inout_picked.masks[j] >> c) & 1U) == 0) continue;
                const float value = r.at[c];
                const float code = decoded_of(plan, tile, value);
                r.at[c] = code;
                if (code == 0.0F) continue;
                sent |= 1U << c;
                out.at[c] = residual_after(plan, value, code);
                v_out.at[c] = variance_after(plan, inout_picked.v[j].at[c], value, code);
            }
        }
        inout_picked.masks[j] = sent;
        store_state(work, j, out, v_out);
    }
    tell_count(inout_picked.masks, told);
    meet<kPassThreads>();
    const WarpPlace place = find_place(told, target.info);
    if (threadIdx.x == 0) target.info->scale = tile.written;
    if (place.count == 0) return;
    GapSums gaps;
    for_each_entry(inout_picked.masks, place,
                   [&](unsigned j, unsigned c, std::uint32_t at, std::uint32_t index, std::uint32_t end_before) {
                       target.indices[at] = static_cast<std::uint16_t>(index);
                       store_code(plan, tile, inout_picked.r[j].at[c], target.values, at);
                       if (at > 0) gaps.add(index - end_before);
                   });
    gaps.add_to(shared.quotients[stage.slot]);
}

/// A tile is looked at, and all that its block wrote of it can be seen. Returns the chunk if it is whole by that, or
/// kNothing. One warp; `inout_quotients` is zero again.
__device__ inline std::uint32_t close_tile(const EncodeRound& round, const TileWork& work,
                                           std::uint32_t (&inout_quotients)[kRiceSums]) {
    const unsigned lane = threadIdx.x % 32;
    if (lane < kRiceSums) {
        round.tiles[work.tile].quotients[lane] = inout_quotients[lane];
        inout_quotients[lane] = 0;
    }
    __syncwarp();
    std::uint32_t chunk = kNothing;
    if (lane == 0) {
        __threadfence();
        const std::uint32_t done = atomicAdd(&round.chunk_states[work.chunk].tiles_done, 1U) + 1U;
        __threadfence();
        if (done == round.chunks[work.chunk].tiles) chunk = work.chunk;
    }
    return __shfl_sync(~0U, chunk, 0);
}

}  // namespace gradsieve::codec::cuda
