#include "codec/cuda/reuse_kernel.hpp"

#include "codec/cuda/launch.hpp"

namespace gradsieve::codec::cuda {
namespace {

constexpr unsigned kWarps = 8;

__device__ inline double sum_of_warp(double sum) {
    for (unsigned half = 16; half > 0; half /= 2) sum += __shfl_down_sync(0xFFFFFFFFU, sum, half);
    return sum;
}

__global__ void subtract_tiles(const SubtractTerms terms) {
    const ElementCount tile = ElementCount{blockIdx.x} * kWarps + threadIdx.x / 32;
    const ElementCount first = tile * kTileElements;
    if (first >= terms.elements) return;
    const ElementCount end = first + kTileElements < terms.elements ? first + kTileElements : terms.elements;
    double before = 0;
    double after = 0;
#pragma unroll 8
    for (ElementCount element = first + threadIdx.x % 32; element < end; element += 32) {
        const float value = terms.values[element];
        const float left = value - terms.decoded[element];
        terms.values[element] = left;
        const double value_squared = static_cast<double>(value) * static_cast<double>(value);
        const double left_squared = static_cast<double>(left) * static_cast<double>(left);
        before += value_squared;
        after += left_squared;
    }
    before = sum_of_warp(before);
    after = sum_of_warp(after);
    if (threadIdx.x % 32 != 0) return;
    terms.before[tile] = before;
    terms.after[tile] = after;
}

}  // namespace

cudaError_t launch_subtract_tiles(const SubtractTerms& terms, cudaStream_t stream) {
    const ElementCount tiles = (terms.elements + kTileElements - 1) / kTileElements;
    return launch(subtract_tiles, {static_cast<unsigned>((tiles + kWarps - 1) / kWarps), kWarps * 32}, stream, terms);
}

}  // namespace gradsieve::codec::cuda
