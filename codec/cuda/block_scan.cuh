// Sums over the threads of a block, or the lanes of a warp; every one of them calls. Device code only.
#pragma once

#include "codec/cuda/encode_plan.hpp"

namespace gradsieve::codec::cuda {

/// `kThreads`: of the block.
template <unsigned kThreads>
struct ScanShared {
    std::uint32_t of_warp[kThreads / 32];
};

struct Sum {
    __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a + b; }
};
struct Largest {
    __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return max(a, b); }
};
/// The combination over the lanes up to this one. A whole warp.
template <typename Combine>
__device__ inline std::uint32_t scan_warp(std::uint32_t value, Combine combine) {
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (unsigned distance = 1; distance < 32; distance *= 2) {
        const std::uint32_t other = __shfl_up_sync(~0U, value, distance);
        if (lane >= distance) value = combine(value, other);
    }
    return value;
}
/// `ret_total`: over all threads. Returns the combination over the threads before this one, 0 for the first.
template <unsigned kThreads, typename Combine>
__device__ inline std::uint32_t scan_block(std::uint32_t value, Combine combine, ScanShared<kThreads>& shared,
                                           std::uint32_t& ret_total) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    const std::uint32_t inclusive = scan_warp(value, combine);
    if (lane == 31) shared.of_warp[warp] = inclusive;
    __syncthreads();
    std::uint32_t before = 0;
    std::uint32_t total = 0;
#pragma unroll
    for (unsigned other = 0; other < kThreads / 32; ++other) {
        if (other == warp) before = total;
        total = combine(total, shared.of_warp[other]);
    }
    __syncthreads();
    ret_total = total;
    const std::uint32_t previous = __shfl_up_sync(~0U, inclusive, 1);
    return lane == 0 ? before : combine(before, previous);
}

}  // namespace gradsieve::codec::cuda
