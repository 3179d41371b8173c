// What a sketch's exact values come to: averages of chosen elements in results that are zero elsewhere, and what a
// low-pass keeps of a residual.
#include "codec/cuda/cell_kernels.hpp"
#include "codec/cuda/launch.hpp"
#include "codec/cuda/result_targets.cuh"
#include "codec/element.hpp"

namespace gradsieve::codec::cuda {
namespace {

constexpr unsigned kThreads = 256;

__global__ void __launch_bounds__(kThreads) filter_rests(float* __restrict__ residual, const float* __restrict__ before,
                                                         LowPassFactors factors, std::uint32_t elements) {
    const std::uint64_t number = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (number >= elements) return;
    residual[number] = element::low_passed(factors.keep, before[number], factors.take, residual[number]);
}

__global__ void __launch_bounds__(kThreads)
    scatter(const __grid_constant__ ResultTargets targets, const std::uint32_t* __restrict__ chosen,
            const float* __restrict__ values, std::uint32_t count) {
    __shared__ unsigned long long parts[kThreads / kLanes];
    const std::uint64_t number = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
    unsigned long long digest = 0;
    if (number < count) {
        write_value(targets, chosen[number], values[number]);
        if (targets.digest != nullptr) digest = digest_of(targets, chosen[number], values[number]);
    }
    add_digest<kThreads>(targets, digest, parts);
}

LaunchShape shape_for(std::uint32_t threads) {
    return {static_cast<std::uint32_t>((std::uint64_t{threads} + kThreads - 1) / kThreads), kThreads};
}

}  // namespace

cudaError_t launch_low_pass(float* residual, const float* before, const LowPassFactors& factors, std::uint32_t elements,
                            cudaStream_t stream) {
    return launch(&filter_rests, shape_for(elements), stream, residual, before, factors, elements);
}

cudaError_t launch_scatter(const ResultTargets& targets, const std::uint32_t* chosen, const float* values,
                           std::uint32_t count, cudaStream_t stream) {
    return launch(&scatter, shape_for(count), stream, targets, chosen, values, count);
}

}  // namespace gradsieve::codec::cuda
