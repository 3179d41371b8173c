// What a trainer computes between two steps, as far as a neighbour on the same GPU can tell: arithmetic on every
// multiprocessor, over memory that no cache holds.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradsieve::gpu_check {

/// Takes every value `rounds` times through a multiplication and an addition, which pull it towards 1. Four waves of
/// blocks on `multiprocessors`, so that a neighbour finds room a few times within one kernel, as between the blocks of
/// a matrix product. Enqueues; the launch's error.
cudaError_t compute(float* inout_values, std::uint64_t elements, std::uint32_t rounds, unsigned multiprocessors,
                    cudaStream_t stream);

}  // namespace gradsieve::gpu_check
