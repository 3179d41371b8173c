// What becomes of the elements of a tile that a dense pass picked. Each warp leaves its own in shared memory, over the
// arrays that it has read; then one warp of the block, another one for each tile, has them all in the order of the tile
// and sends them, or leaves them in the tile's slot until the tensor is decided. Device code only.
#pragma once

#include "codec/cuda/tile_load.cuh"
#include "codec/cuda/tile_pipe.cuh"
#include "codec/cuda/tile_send.cuh"

namespace gradsieve::codec::cuda {

inline constexpr std::uint32_t kWarpElements = kTile / kPassWarps;

/// A thread's vectors, and which of their elements are picked: bit c of masks[j].
struct PickedVectors {
    Vector r[kThreadVectors];
    Vector v[kThreadVectors];  ///< before any decay
    std::uint32_t masks[kThreadVectors];
};

/// Picks of a warp that have a place of their own; more lie over the arrays that the warp has read.
inline constexpr std::uint32_t kNearPicks = 32;

/// What the warps of a block picked of a tile.
struct Picks {
    std::uint32_t counts[kPassWarps];
    std::uint32_t begins[kPassWarps];  ///< how many come before
    float values[kPassWarps][kNearPicks];
    float variances[kPassWarps][kNearPicks];
    std::uint16_t indices[kPassWarps][kNearPicks];
};

/// Where picks lie in a tile's stage if a warp has many: a segment for each.
struct PickRoom {
    float* values;
    float* variances;            ///< null: none are kept
    std::byte* indices;          ///< 16 bits each
    std::uint32_t index_stride;  ///< bytes from one warp's to the next one's
};

/// A warp's picks.
struct PickSegment {
    float* values;
    float* variances;
    std::uint16_t* indices;
};
__device__ inline PickSegment segment_of(const PickRoom& room, Picks& picks, unsigned warp, std::uint32_t count) {
    PickSegment segment;
    if (count <= kNearPicks) {
        segment.values = picks.values[warp];
        segment.variances = picks.variances[warp];
        segment.indices = picks.indices[warp];
    } else {
        segment.values = room.values + warp * kWarpElements;
        segment.variances = room.variances + warp * kWarpElements;
        segment.indices = reinterpret_cast<std::uint16_t*>(room.indices + warp * room.index_stride);
    }
    return segment;
}

/// Which elements of a vector passed the gate, as bits of a word that eight lanes share.
__device__ inline void store_gate(const EncodeRound& round, const TileWork& work, std::uint32_t mask,
                                  std::uint32_t local) {
    std::uint32_t word = mask << (4 * (threadIdx.x % 8));
#pragma unroll
    for (unsigned lanes = 4; lanes > 0; lanes /= 2) word |= __shfl_xor_sync(~0U, word, lanes);
    if (threadIdx.x % 8 == 0) round.gate_words[std::size_t{work.tile} * (kTile / 32) + local / 32] = word;
}

/// Leaves what this warp picked. Its own parts of the stage's arrays have been read.
__device__ inline void leave_picked(const PickedVectors& picked, const PickRoom& room, Picks& ret_picks) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    std::uint32_t total = 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) total += __popc(picked.masks[j]);
    total = __reduce_add_sync(~0U, total);  // all lanes have read
    if (lane == 0) ret_picks.counts[warp] = total;
    if (total == 0) return;
    const PickSegment segment = segment_of(room, ret_picks, warp, total);
    std::uint32_t count = 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        if (__any_sync(~0U, picked.masks[j] != 0) == 0) continue;
        std::uint32_t at = count;
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const std::uint32_t lanes = __ballot_sync(~0U, (picked.masks[j] >> c) & 1U);
            at += __popc(lanes & ((1U << lane) - 1U));
            count += __popc(lanes);
        }
        if (picked.masks[j] == 0) continue;
        const std::uint32_t local = vector_number(j) * 128 + lane * 4;
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            if (((picked.masks[j] >> c) & 1U) == 0) continue;
            segment.values[at] = picked.r[j].at[c];
            segment.indices[at] = static_cast<std::uint16_t>(local + c);
            if (room.variances != nullptr) segment.variances[at] = picked.v[j].at[c];
            ++at;
        }
    }
    if (total > kNearPicks) before_async_writes();
}

/// All that a tile's warps picked, in its order; for one warp, once all have left theirs.
struct PickedList {
    const PickRoom& room;
    Picks& picks;
    std::uint32_t count;
    bool is_near;  ///< nothing lies over the stage's arrays

    /// Which warp's an entry is.
    __device__ unsigned warp_of(std::uint32_t entry) const {
        unsigned warp = 0;
#pragma unroll
        for (unsigned step = kPassWarps / 2; step > 0; step /= 2)
            if (picks.begins[warp + step] <= entry) warp += step;
        return warp;
    }
    __device__ float value(std::uint32_t entry) const {
        const unsigned warp = warp_of(entry);
        return segment_of(room, picks, warp, picks.counts[warp]).values[entry - picks.begins[warp]];
    }
    __device__ ListEntry operator()(std::uint32_t entry) const {
        const unsigned warp = warp_of(entry);
        const std::uint32_t at = entry - picks.begins[warp];
        const PickSegment segment = segment_of(room, picks, warp, picks.counts[warp]);
        ListEntry result;
        result.index = segment.indices[at];
        result.value = segment.values[at];
        if (room.variances != nullptr) result.variance = segment.variances[at];
        return result;
    }
};
static_assert((kPassWarps & (kPassWarps - 1)) == 0);

/// One warp, once all have left theirs.
__device__ inline PickedList gather_picked(const PickRoom& room, Picks& inout_picks) {
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t own = lane < kPassWarps ? inout_picks.counts[lane] : 0U;
    std::uint32_t up_to = own;
#pragma unroll
    for (unsigned distance = 1; distance < kPassWarps; distance *= 2) {
        const std::uint32_t other = __shfl_up_sync(~0U, up_to, distance);
        if (lane >= distance) up_to += other;
    }
    if (lane < kPassWarps) inout_picks.begins[lane] = up_to - own;
    __syncwarp();
    return {room, inout_picks, __shfl_sync(~0U, up_to, kPassWarps - 1), __all_sync(~0U, own <= kNearPicks) != 0};
}

/// Candidates of top-k by magnitude, above the floor: what nearly always tells its first bits.
struct FineCounts {
    std::uint32_t bins[kHistogramBins];
    std::uint32_t tensor;  ///< whose they are; kNothing
};

__device__ inline void open_counts(FineCounts& ret_counts) {
    for (std::uint32_t bin = threadIdx.x; bin < kHistogramBins; bin += kPassBlock) ret_counts.bins[bin] = 0;
    if (threadIdx.x == 0) ret_counts.tensor = kNothing;
}

/// Adds the block's counts to the tensor's, and begins anew. One warp.
__device__ inline void flush_counts(const EncodeRound& round, FineCounts& inout_counts, std::uint32_t next_tensor) {
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t tensor = inout_counts.tensor;
    for (std::uint32_t bin = lane; bin < kHistogramBins; bin += 32) {
        const std::uint32_t count = inout_counts.bins[bin];
        inout_counts.bins[bin] = 0;
        if (tensor != kNothing && count > 0)
            atomicAdd(round.histograms + std::size_t{tensor} * kHistogramBins + bin, count);
    }
    __syncwarp();
    if (lane == 0) inout_counts.tensor = next_tensor;
    __syncwarp();
}

/// The list waits in the tile's slot. One warp.
__device__ inline void keep_list(const EncodeRound& round, const TileWork& work, const TileTarget& target,
                                 const PickedList& list, FineCounts& inout_counts) {
    const unsigned lane = threadIdx.x % 32;
    const bool is_counted = work.plan.has_fine_counts != 0;
    const std::uint32_t base = fine_base(work.plan);
    if (is_counted) {
        const std::uint32_t tensor = round.chunks[work.chunk].tensor;
        if (inout_counts.tensor != tensor) flush_counts(round, inout_counts, tensor);
    }
    std::uint32_t largest = 0;
    for (std::uint32_t entry = lane; entry < list.count; entry += 32) {
        const ListEntry picked = list(entry);
        target.indices[entry] = static_cast<std::uint16_t>(picked.index);
        reinterpret_cast<float*>(target.values)[entry] = picked.value;
        const std::uint32_t size = element::magnitude_bits(picked.value);
        largest = max(largest, size);
        if (is_counted) atomicAdd(inout_counts.bins + fine_bin(size, base), 1U);
    }
    largest = __reduce_max_sync(~0U, largest);
    if (lane != 0) return;
    target.info->count = list.count;
    target.info->scale = largest;
    if (list.count == 0) return;
    TensorState& state = round.tensor_states[round.chunks[work.chunk].tensor];
    atomicAdd(&state.listed, list.count);
    atomicMax(&state.largest, largest);
}

/// The tile is sent. One warp.
__device__ inline void send_picked(const TensorPlan& plan, const TileTarget& target, const PickedList& list) {
    const auto value_of = [&list](std::uint32_t entry) { return list.value(entry); };
    const TileScale tile = needs_mean(plan) ? sign_scale(plan, mean_magnitude(list.count, value_of))
                                            : scale_of_largest(plan, largest_magnitude(list.count, value_of));
    send_list(plan, target, tile, list.count, list,
              [](const ListEntry&, bool exists) { return __ballot_sync(~0U, exists); });
}

}  // namespace gradsieve::codec::cuda
