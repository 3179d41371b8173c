// Sums over the threads of a block, or over those that look at tiles; each of them calls, and all see the total. Device
// code only.
#pragma once

#include "codec/cuda/async_copy.cuh"
#include "codec/cuda/encode_plan.hpp"

namespace gradsieve::codec::cuda {

/// A whole block of kTileThreads.
struct TileBlock {
    static constexpr unsigned kThreads = kTileThreads;
    __device__ static void meet_all() { __syncthreads(); }
};
/// The first kPassThreads of a block.
struct PassBlock {
    static constexpr unsigned kThreads = kPassThreads;
    __device__ static void meet_all() { meet<kPassThreads>(); }
};

template <typename Block>
struct ScanShared {
    std::uint32_t of_warp[Block::kThreads / 32];
};

struct Sum {
    __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a + b; }
};
struct Largest {
    __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return max(a, b); }
};
/// `ret_total`: over all threads. Returns the combination over the threads before this one, 0 for the first.
template <typename Block, typename Combine>
__device__ inline std::uint32_t scan_block(std::uint32_t value, Combine combine, ScanShared<Block>& shared,
                                           std::uint32_t& ret_total) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    std::uint32_t inclusive = value;
#pragma unroll
    for (unsigned distance = 1; distance < 32; distance *= 2) {
        const std::uint32_t other = __shfl_up_sync(~0U, inclusive, distance);
        if (lane >= distance) inclusive = combine(inclusive, other);
    }
    if (lane == 31) shared.of_warp[warp] = inclusive;
    Block::meet_all();
    std::uint32_t before = 0;
    std::uint32_t total = 0;
#pragma unroll
    for (unsigned other = 0; other < Block::kThreads / 32; ++other) {
        if (other == warp) before = total;
        total = combine(total, shared.of_warp[other]);
    }
    Block::meet_all();
    ret_total = total;
    const std::uint32_t previous = __shfl_up_sync(~0U, inclusive, 1);
    return lane == 0 ? before : combine(before, previous);
}

}  // namespace gradsieve::codec::cuda
