// Writing an average to all targets, and adding up its digest. Device code only.
#pragma once

#include "codec/cuda/result_targets.hpp"
#include "codec/cuda/unit_results.cuh"

namespace gradsieve::codec::cuda {

/// As its type holds it, to nearest, ties to even.
__device__ inline void write_value(const ResultTargets& targets, std::uint64_t element, float value) {
    for (std::uint32_t target = 0; target < targets.count; ++target) {
        void* data = targets.data[target];
        if (targets.types[target] == ElementType::kF32)
            static_cast<float*>(data)[element] = value;
        else if (targets.types[target] == ElementType::kF16)
            static_cast<std::uint16_t*>(data)[element] = bits_of(rounded<__half>(value));
        else
            static_cast<std::uint16_t*>(data)[element] = bits_of(rounded<__nv_bfloat16>(value));
    }
}

__device__ inline unsigned long long digest_of(const ResultTargets& targets, std::uint64_t element, float value) {
    const std::uint64_t key = mix(targets.digest_seed + element / kChunkElements);
    return element_mix(key, static_cast<std::uint32_t>(element % kChunkElements), value);
}

/// Every thread's part, if anybody asks. A whole block of kThreads; `parts`: shared memory.
template <unsigned kThreads>
__device__ inline void add_digest(const ResultTargets& targets, unsigned long long digest,
                                  unsigned long long (&parts)[kThreads / kLanes]) {
    if (targets.digest == nullptr) return;
    for (unsigned half = kLanes / 2; half > 0; half /= 2) digest += __shfl_down_sync(kAllLanes, digest, half);
    if (threadIdx.x % kLanes == 0) parts[threadIdx.x / kLanes] = digest;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (unsigned warp = 1; warp < kThreads / kLanes; ++warp) digest += parts[warp];
    atomicAdd(targets.digest, digest);
}

}  // namespace gradsieve::codec::cuda
