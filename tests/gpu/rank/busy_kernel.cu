#include "tests/gpu/rank/busy_kernel.hpp"

#include "codec/cuda/launch.hpp"

namespace gradsieve::gpu_check {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksAtATime = 8;  // of that many threads on a multiprocessor
constexpr unsigned kWaves = 4;

__global__ void pull_to_one(float* inout_values, std::uint64_t elements, std::uint32_t rounds) {
    const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
    for (std::uint64_t element = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; element < elements;
         element += stride) {
        float value = inout_values[element];
        for (std::uint32_t round = 0; round < rounds; ++round) value = value * 0.75F + 0.25F;
        inout_values[element] = value;
    }
}

}  // namespace

cudaError_t compute(float* inout_values, std::uint64_t elements, std::uint32_t rounds, unsigned multiprocessors,
                    cudaStream_t stream) {
    return codec::cuda::launch(pull_to_one, {multiprocessors * kBlocksAtATime * kWaves, kThreads}, stream, inout_values,
                               elements, rounds);
}

}  // namespace gradsieve::gpu_check
