#include "tests/gpu/rank/noise.hpp"

#include "codec/cuda/launch.hpp"

namespace gradsieve::gpu_check {
namespace {

constexpr unsigned kThreads = 256;

__global__ void make_noise(float* ret_values, std::uint64_t elements, std::uint64_t seed) {
    const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
    for (std::uint64_t element = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; element < elements;
         element += stride) {
        std::uint64_t bits = element * 0x9E3779B97F4A7C15ULL + seed;  // splitmix64
        bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9ULL;
        bits = (bits ^ (bits >> 27U)) * 0x94D049BB133111EBULL;
        bits ^= bits >> 31U;
        const int sum = static_cast<int>(bits & 0xFFFFU) + static_cast<int>((bits >> 16U) & 0xFFFFU) +
                        static_cast<int>((bits >> 32U) & 0xFFFFU) + static_cast<int>(bits >> 48U);
        ret_values[element] = static_cast<float>(sum - 131070) * (1.0F / 37837.0F);
    }
}

}  // namespace

cudaError_t fill_with_noise(float* ret_values, std::uint64_t elements, std::uint64_t seed, cudaStream_t stream) {
    return codec::cuda::launch(make_noise, {1024, kThreads}, stream, ret_values, elements, seed);
}

}  // namespace gradsieve::gpu_check
