#include "codec/cuda/residual_norm_kernel.hpp"

#include "codec/cuda/launch.hpp"

namespace gradsieve::codec::cuda {
namespace {

constexpr unsigned kWarps = 8;

__global__ void sum_tiles(const float* __restrict__ residual, ElementCount elements, double* __restrict__ ret_sums) {
    const ElementCount tile = ElementCount{blockIdx.x} * kWarps + threadIdx.x / 32;
    const ElementCount first = tile * kTileElements;
    if (first >= elements) return;
    const ElementCount end = first + kTileElements < elements ? first + kTileElements : elements;
    double sum = 0;
    for (ElementCount element = first + threadIdx.x % 32; element < end; element += 32) {
        const double value = residual[element];
        sum += value * value;
    }
    for (unsigned half = 16; half > 0; half /= 2) sum += __shfl_down_sync(0xFFFFFFFFU, sum, half);
    if (threadIdx.x % 32 == 0) ret_sums[tile] = sum;
}

}  // namespace

cudaError_t launch_tile_square_sums(const float* residual, ElementCount elements, double* ret_sums,
                                    cudaStream_t stream) {
    const ElementCount tiles = (elements + kTileElements - 1) / kTileElements;
    return launch(sum_tiles, {static_cast<unsigned>((tiles + kWarps - 1) / kWarps), kWarps * 32}, stream, residual,
                  elements, ret_sums);
}

}  // namespace gradsieve::codec::cuda
