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

/// How many each warp picked, and how many come before; in turn, as one tile's are read while the next one's are written.
struct PickShared {
    std::uint32_t counts[2][kPassWarps];
    std::uint32_t begins[2][kPassWarps];
};

/// Where picks lie in a tile's stage: a segment for each warp.
struct PickRoom {
    float* values;
    float* variances;        ///< null: none are kept
    std::byte* indices;      ///< 16 bits each
    std::uint32_t index_stride;  ///< bytes from one warp's to the next one's

    __device__ std::uint16_t* indices_of(unsigned warp) const {
        return reinterpret_cast<std::uint16_t*>(indices + warp * index_stride);
    }
};

/// Which elements of a vector passed the gate, as bits of a word that eight lanes share.
__device__ inline void store_gate(const EncodeRound& round, const TileWork& work, std::uint32_t mask,
                                  std::uint32_t local) {
    std::uint32_t word = mask << (4 * (threadIdx.x % 8));
#pragma unroll
    for (unsigned lanes = 4; lanes > 0; lanes /= 2) word |= __shfl_xor_sync(~0U, word, lanes);
    if (threadIdx.x % 8 == 0) round.gate_words[std::size_t{work.tile} * (kTile / 32) + local / 32] = word;
}

/// Leaves what this warp picked; returns how many. The warp's own parts of the stage's arrays have been read.
__device__ inline std::uint32_t leave_picked(const PickedVectors& picked, const PickRoom& room) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    float* values = room.values + warp * kWarpElements;
    float* variances = room.variances == nullptr ? nullptr : room.variances + warp * kWarpElements;
    std::uint16_t* indices = room.indices_of(warp);
    std::uint32_t count = 0;
    __syncwarp();  // all lanes have read
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
            values[at] = picked.r[j].at[c];
            indices[at] = static_cast<std::uint16_t>(local + c);
            if (variances != nullptr) variances[at] = picked.v[j].at[c];
            ++at;
        }
    }
    return count;
}

/// All that a tile's warps picked, in its order; for one warp, once all have left theirs.
struct PickedList {
    const PickRoom& room;
    const std::uint32_t* begins;
    std::uint32_t count;

    /// Which warp's segment an entry lies in.
    __device__ unsigned segment_of(std::uint32_t entry) const {
        unsigned segment = 0;
#pragma unroll
        for (unsigned step = kPassWarps / 2; step > 0; step /= 2)
            if (begins[segment + step] <= entry) segment += step;
        return segment;
    }
    __device__ float value(std::uint32_t entry) const {
        const unsigned segment = segment_of(entry);
        return room.values[segment * kWarpElements + entry - begins[segment]];
    }
    __device__ ListEntry operator()(std::uint32_t entry) const {
        const unsigned segment = segment_of(entry);
        const std::uint32_t at = entry - begins[segment];
        ListEntry result;
        result.index = room.indices_of(segment)[at];
        result.value = room.values[segment * kWarpElements + at];
        if (room.variances != nullptr) result.variance = room.variances[segment * kWarpElements + at];
        return result;
    }
};
static_assert((kPassWarps & (kPassWarps - 1)) == 0);

/// Fills `ret_begins` from the counts. One warp.
__device__ inline PickedList gather_picked(const PickRoom& room, const std::uint32_t* counts,
                                           std::uint32_t* ret_begins) {
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t own = lane < kPassWarps ? counts[lane] : 0U;
    std::uint32_t up_to = own;
#pragma unroll
    for (unsigned distance = 1; distance < kPassWarps; distance *= 2) {
        const std::uint32_t other = __shfl_up_sync(~0U, up_to, distance);
        if (lane >= distance) up_to += other;
    }
    if (lane < kPassWarps) ret_begins[lane] = up_to - own;
    __syncwarp();
    return {room, ret_begins, __shfl_sync(~0U, up_to, kPassWarps - 1)};
}

/// The list waits in the tile's slot. One warp.
__device__ inline void keep_list(const EncodeRound& round, const TileWork& work, const TileTarget& target,
                                 const PickedList& list) {
    const unsigned lane = threadIdx.x % 32;
    std::uint32_t largest = 0;
    for (std::uint32_t entry = lane; entry < list.count; entry += 32) {
        const ListEntry picked = list(entry);
        target.indices[entry] = static_cast<std::uint16_t>(picked.index);
        reinterpret_cast<float*>(target.values)[entry] = picked.value;
        largest = max(largest, element::magnitude_bits(picked.value));
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
