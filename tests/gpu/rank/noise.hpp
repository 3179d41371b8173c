// Fresh noise as a gradient, made on the card.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradsieve::gpu_check {

/// Bell-shaped values of deviation about 1, different for every element and seed. Enqueues; the launch's error.
cudaError_t fill_with_noise(float* ret_values, std::uint64_t elements, std::uint64_t seed, cudaStream_t stream);

}  // namespace gradsieve::gpu_check
