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
    std::byte* payload;           ///< dense quantizers: the chunk's
    std::uint32_t chunk_tiles;    ///< of the chunk
    std::uint32_t reserved;
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

/// A top-k tensor's counters, zero between kernels.
__device__ inline std::uint32_t* bins_of(const EncodeRound& round, std::uint32_t tensor) {
    return round.histograms + std::size_t{tensor} * kHistogramBins;
}

/// A number that no other warp gets, in ascending order; only in lane 0, and only once it is looked at.
__device__ inline std::uint32_t take_ticket(const EncodeRound& round) {
    return threadIdx.x % 32 == 0 ? atomicAdd(round.ticket, 1U) : 0U;
}

/// Finds what there is to know of a block's tiles, which ascend. One warp, whose lanes keep 32 chunks in view and the
/// plan of the last tile's tensor, so that the next tile seldom costs a look at memory.
class TileFinder {
public:
    __device__ explicit TileFinder(const EncodeRound& round) : round_(round) { see_chunks(0); }

    /// Fills `ret_work`.
    __device__ void find(std::uint32_t tile, TileWork& ret_work) {
        const unsigned lane = threadIdx.x % 32;
        unsigned owner = owner_of(tile);
        if (owner == 31) {  // it may be one behind those in view
            see_chunks(find_owner(round_.first_tiles, round_.chunk_count, tile));
            owner = owner_of(tile);
        }
        const std::uint32_t tensor = __shfl_sync(~0U, chunk_.tensor, owner);
        const auto* samples = shuffled(chunk_.samples, owner);
        if (tensor != tensor_ || samples != samples_) see_tensor(tensor, samples);
#pragma unroll
        for (unsigned part = 0; part < kPlanParts; ++part)
            if (part * 32 + lane < kPlanWords)
                reinterpret_cast<std::uint32_t*>(&ret_work.plan)[part * 32 + lane] = plan_[part];
        if (lane < kNearSamples) ret_work.samples[lane] = sample_;
        __syncwarp();
        if (lane == owner) {
            const std::uint32_t in_chunk = tile - first_tile_;
            ret_work.tile = tile;
            ret_work.chunk = base_ + owner;
            ret_work.tile_in_chunk = in_chunk;
            ret_work.first = chunk_.chunk_index * static_cast<std::uint32_t>(kChunkElements) + in_chunk * kTile;
            ret_work.elements = min(kTile, ret_work.plan.elements - ret_work.first);
            ret_work.is_wide = ret_work.plan.is_aligned != 0 && ret_work.elements == kTile ? 1U : 0U;
            ret_work.payload = round_.payload + chunk_.payload_offset;
            ret_work.chunk_tiles = chunk_.tiles;
            ret_work.all_samples = chunk_.samples;
            ret_work.moments = chunk_.moments;
        }
        __syncwarp();
    }

private:
    static constexpr unsigned kPlanWords = sizeof(TensorPlan) / 4;
    static constexpr unsigned kPlanParts = (kPlanWords + 31) / 32;

    __device__ unsigned owner_of(std::uint32_t tile) const {
        return 31U - static_cast<unsigned>(__clz(static_cast<int>(__ballot_sync(~0U, first_tile_ <= tile))));
    }
    template <typename T>
    __device__ static T* shuffled(T* pointer, unsigned from) {
        const auto bits = __shfl_sync(~0U, reinterpret_cast<unsigned long long>(pointer), from);
        return reinterpret_cast<T*>(bits);
    }
    __device__ void see_chunks(std::uint32_t base) {
        base_ = base;
        const std::uint32_t own = base + threadIdx.x % 32;
        first_tile_ = kNothing;
        if (own >= round_.chunk_count) return;
        first_tile_ = round_.first_tiles[own];
        chunk_ = round_.chunks[own];
    }
    __device__ void see_tensor(std::uint32_t tensor, const SampleView* samples) {
        const unsigned lane = threadIdx.x % 32;
        const TensorPlan& plan = round_.tensors[tensor];
        tensor_ = tensor;
        samples_ = samples;
#pragma unroll
        for (unsigned part = 0; part < kPlanParts; ++part)
            if (part * 32 + lane < kPlanWords)
                plan_[part] = reinterpret_cast<const std::uint32_t*>(&plan)[part * 32 + lane];
        if (lane < kNearSamples && lane < plan.sample_count) sample_ = samples[lane];
    }

    const EncodeRound& round_;
    std::uint32_t base_ = 0;  ///< the first chunk in view
    // of this lane's chunk
    std::uint32_t first_tile_ = 0;
    ChunkPlan chunk_{};
    // of the tensor in view
    std::uint32_t tensor_ = kNothing;
    const SampleView* samples_ = nullptr;
    std::uint32_t plan_[kPlanParts] = {};  ///< this lane's words of it
    SampleView sample_{};                  ///< the sample of this lane's number
};

}  // namespace gradsieve::codec::cuda
