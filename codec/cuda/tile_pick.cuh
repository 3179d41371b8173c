// What becomes of the elements of a tile that a dense pass picked. Each warp leaves its own in shared memory; then one
// of them, another one for each tile, has all in the order of the tile and sends them, or leaves them in the tile's
// slot until the tensor is decided. It sits out the next tile for that: a block has a warp more than look at a tile, so
// that none waits for a list. Device code only.
#pragma once

#include "codec/cuda/block_scan.cuh"
#include "codec/cuda/tile_load.cuh"
#include "codec/cuda/tile_pipe.cuh"
#include "codec/cuda/tile_send.cuh"

namespace gradsieve::codec::cuda {

inline constexpr std::uint32_t kWarpElements = kTile / kPassWarps;
inline constexpr unsigned kPickWarps = kPassWarps + 1;
inline constexpr unsigned kPickThreads = kPickWarps * 32;
inline constexpr unsigned kPickBlock = kPickThreads + 32;  ///< and the warp that fetches
static_assert(kPickBlock <= kScratchThreads);

/// Which warp has the list of a tile, counted from 0 on in the block.
__device__ inline unsigned list_warp(std::uint32_t number) { return number % kPickWarps; }
/// Which part of a tile this warp looks at: its place behind the warp that sits out.
__device__ inline unsigned part_of(std::uint32_t number) {
    const unsigned resting = list_warp(number + kPickWarps - 1);
    return (threadIdx.x / 32 + kPickWarps - resting - 1) % kPickWarps;
}

/// A thread's vectors, and which of their elements are picked: bit c of masks[j].
struct PickedVectors {
    Vector r[kThreadVectors];
    Vector v[kThreadVectors];  ///< before any decay
    std::uint32_t masks[kThreadVectors];
};

/// Picks of a warp that have a place of their own; more lie over the arrays that the warp has read.
inline constexpr std::uint32_t kNearPicks = 12;

/// What the warps of a block picked of a tile, by the tile's parts.
struct Picks {
    std::uint32_t counts[kPassWarps];
    std::uint32_t begins[kPassWarps];  ///< how many come before
    float values[kPassWarps][kNearPicks];
    std::uint16_t indices[kPassWarps][kNearPicks];
};
/// Tiles whose picks are written or read at a time. A warp with a list is back for the second tile behind its own;
/// until then the one with the list before that may be as far as the third.
inline constexpr unsigned kPickTurns = 4;

/// Where picks lie in a tile's stage if a warp has many: a segment for each.
struct PickRoom {
    float* values;
    float* variances;            ///< null: none are kept
    std::byte* indices;          ///< 16 bits each
    std::uint32_t index_stride;  ///< bytes from one warp's to the next one's
};

/// The picks of a part. Those with variances, which only the hybrid needs, never lie near.
struct PickSegment {
    float* values;
    float* variances;
    std::uint16_t* indices;
};
__device__ inline bool is_near(const PickRoom& room, std::uint32_t count) {
    return count <= (room.variances == nullptr ? kNearPicks : 0U);
}
__device__ inline PickSegment segment_of(const PickRoom& room, Picks& picks, unsigned part, std::uint32_t count) {
    PickSegment segment;
    segment.variances = room.variances == nullptr ? nullptr : room.variances + part * kWarpElements;
    if (is_near(room, count)) {
        segment.values = picks.values[part];
        segment.indices = picks.indices[part];
    } else {
        segment.values = room.values + part * kWarpElements;
        segment.indices = reinterpret_cast<std::uint16_t*>(room.indices + part * room.index_stride);
    }
    return segment;
}

/// Which elements of a vector passed the gate, as bits of a word that eight lanes share.
__device__ inline void store_gate(const EncodeRound& round, const TileWork& work, std::uint32_t mask,
                                  std::uint32_t local) {
    const std::uint32_t word = join_masks(mask);
    if (threadIdx.x % 8 == 0) round.gate_words[std::size_t{work.tile} * (kTile / 32) + local / 32] = word;
}

/// Leaves what this warp picked. Its own parts of the stage's arrays have been read.
__device__ inline void leave_picked(const PickedVectors& picked, unsigned part, const PickRoom& room,
                                    Picks& ret_picks) {
    const unsigned lane = threadIdx.x % 32;
    std::uint32_t total = 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) total += __popc(picked.masks[j]);
    total = __reduce_add_sync(~0U, total);
    if (lane == 0) ret_picks.counts[part] = total;
    if (total == 0) return;
    const PickSegment segment = segment_of(room, ret_picks, part, total);
    std::uint32_t count = 0;
    __syncwarp();  // picks that are not near lie over what the warp's other lanes have read
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
        const std::uint32_t local = vector_number(part, j) * 128 + lane * 4;
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            if (((picked.masks[j] >> c) & 1U) == 0) continue;
            segment.values[at] = picked.r[j].at[c];
            segment.indices[at] = static_cast<std::uint16_t>(local + c);
            if (room.variances != nullptr) segment.variances[at] = picked.v[j].at[c];
            ++at;
        }
    }
    if (!is_near(room, total)) before_async_writes();
}

/// All that was picked of a tile, in its order; for one warp, once all have left theirs.
struct PickedList {
    const PickRoom& room;
    Picks& picks;
    std::uint32_t count;
    bool is_all_near;  ///< nothing lies over the stage's arrays

    /// Which part an entry is of.
    __device__ unsigned part_of_entry(std::uint32_t entry) const {
        unsigned part = 0;
#pragma unroll
        for (unsigned step = kPassWarps / 2; step > 0; step /= 2)
            if (picks.begins[part + step] <= entry) part += step;
        return part;
    }
    __device__ float value(std::uint32_t entry) const {
        const unsigned part = part_of_entry(entry);
        return segment_of(room, picks, part, picks.counts[part]).values[entry - picks.begins[part]];
    }
    __device__ ListEntry operator()(std::uint32_t entry) const {
        const unsigned part = part_of_entry(entry);
        const std::uint32_t at = entry - picks.begins[part];
        const PickSegment segment = segment_of(room, picks, part, picks.counts[part]);
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
    const std::uint32_t up_to = scan_warp(own, Sum{});
    if (lane < kPassWarps) inout_picks.begins[lane] = up_to - own;
    __syncwarp();
    return {room, inout_picks, __shfl_sync(~0U, up_to, kPassWarps - 1), __all_sync(~0U, is_near(room, own)) != 0};
}

/// Counts of top-k's candidates of one tensor, the first that a block meets; those of others go to memory one by one.
struct FineCounts {
    std::uint32_t tensor;  ///< kNothing: none so far
    std::uint32_t bins[kHistogramBins];
};
__device__ inline void open_counts(FineCounts& ret_counts) {
    for (std::uint32_t bin = threadIdx.x; bin < kHistogramBins; bin += kPickBlock) ret_counts.bins[bin] = 0;
    if (threadIdx.x == 0) ret_counts.tensor = kNothing;
}
/// Where a tensor's candidates are counted. One warp.
__device__ inline std::uint32_t* find_bins(const EncodeRound& round, std::uint32_t tensor, FineCounts& counts) {
    std::uint32_t owner = kNothing;
    if (threadIdx.x % 32 == 0) owner = atomicCAS(&counts.tensor, kNothing, tensor);
    owner = __shfl_sync(~0U, owner, 0);
    return owner == kNothing || owner == tensor ? counts.bins : bins_of(round, tensor);
}
/// Adds the block's counts to the tensor's. kPickThreads, once all lists are kept.
__device__ inline void add_counts(const EncodeRound& round, const FineCounts& counts) {
    if (counts.tensor == kNothing) return;
    std::uint32_t* bins = bins_of(round, counts.tensor);
    for (std::uint32_t bin = threadIdx.x; bin < kHistogramBins; bin += kPickThreads)
        if (counts.bins[bin] > 0) atomicAdd(bins + bin, counts.bins[bin]);
}

/// The list waits in the tile's slot. One warp.
__device__ inline void keep_list(const EncodeRound& round, const TileWork& work, const TileTarget& target,
                                 const PickedList& list, FineCounts& counts) {
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t tensor = round.chunks[work.chunk].tensor;
    const bool is_counted = work.plan.has_fine_counts != 0;
    std::uint32_t* bins = is_counted ? find_bins(round, tensor, counts) : nullptr;
    const std::uint32_t first_fine = fine_base(work.plan);
    std::uint32_t largest = 0;
    for (std::uint32_t entry = lane; entry < list.count; entry += 32) {
        const ListEntry picked = list(entry);
        target.indices[entry] = static_cast<std::uint16_t>(picked.index);
        reinterpret_cast<float*>(target.values)[entry] = picked.value;
        const std::uint32_t size = element::magnitude_bits(picked.value);
        largest = max(largest, size);
        const std::uint32_t bin = (size >> kFineShift) - first_fine;
        if (is_counted && bin < kHistogramBins) atomicAdd(bins + bin, 1U);
    }
    largest = __reduce_max_sync(~0U, largest);
    if (lane != 0) return;
    target.info->count = list.count;
    target.info->scale = largest;
    if (list.count == 0) return;
    TensorState& state = round.tensor_states[tensor];
    atomicAdd(&state.listed, list.count);
    atomicMax(&state.largest, largest);
}

/// The tile is sent; it is not dithered. One warp.
__device__ inline void send_picked(const TensorPlan& plan, const TileTarget& target, const PickedList& list) {
    const auto value_of = [&list](std::uint32_t entry) { return list.value(entry); };
    send_list<Draw::kNone>(plan, target, scale_of_list<Draw::kNone>(plan, list.count, value_of), list.count, list,
                           [](const ListEntry&, bool exists) { return __ballot_sync(~0U, exists); });
}

}  // namespace gradsieve::codec::cuda
