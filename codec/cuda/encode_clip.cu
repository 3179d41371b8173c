// Local clipping (codec/local_clip.hpp): before u takes the samples in, the squares of their mean are added up, a warp
// for each tile, and a block for each tensor joins the tiles and finds what weights are multiplied by.
#include "codec/clip_factor.hpp"
#include "codec/cuda/dither_levels.cuh"
#include "codec/cuda/front_tile.cuh"

namespace gradsieve::codec::cuda {
namespace {

/// Of a whole tile whose arrays allow vectors, as sum_squares adds up any other. A whole warp; the same in every lane.
__device__ inline double sum_wide(const FrontTile& work) {
    const unsigned lane = threadIdx.x % 32;
    double own = 0;
    for (std::uint32_t stretch = 0; stretch < kTileStretches; ++stretch) {
        const std::uint32_t element = work.first + stretch * kSquareStretch + lane * 4;
        const Vector first = mean_of_four(work, element, 1.0F);
        const Vector second = mean_of_four(work, element + 128, 1.0F);
        const double sum = fold_sums(sum_squares_of(first, second), 16);
        if (lane % kTileStretches == stretch) own = sum;
    }
    return fold_sums(own, kTileStretches / 2);
}

__global__ void __launch_bounds__(kTileThreads) square_means(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    const std::uint32_t tile = round.first_tile + blockIdx.x * kWarps + threadIdx.x / 32;
    if (tile >= round.end_tile) return;
    const FrontTile work = front_tile(round, tile);
    if (!(work.front->most_norm > 0.0)) return;
    const double sum = work.is_wide ? sum_wide(work) : sum_squares(work.elements, [&work](std::uint32_t at) {
        return mean_of_one(work, work.first + at, 1.0F);
    });
    if (threadIdx.x % 32 == 0) round.tile_sums[tile] = sum;
}

/// The sum of all tiles' sums, in the order of codec/tile_sum_tree.hpp: of 2^l tiles together lies where the first
/// one's did. The whole block; the answer is the first thread's. Sums are overwritten.
__device__ inline double join_tiles(double* inout_sums, std::uint32_t tiles) {
    double total = 0;
    for (unsigned level = 0; tiles >> level != 0; ++level) {
        const std::uint32_t joined = tiles >> level;
        if (threadIdx.x == 0 && joined % 2 != 0) total = inout_sums[std::size_t{joined - 1} << level] + total;
        for (std::uint32_t pair = threadIdx.x; pair < joined / 2; pair += kTileThreads) {
            double& first = inout_sums[std::size_t{2 * pair} << level];
            first = first + inout_sums[std::size_t{2 * pair + 1} << level];
        }
        __syncthreads();
    }
    return total;
}

__global__ void __launch_bounds__(kTileThreads) fold_clips(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    const ChunkPlan& chunk = round.chunks[blockIdx.x];
    const FrontPlan& front = round.fronts[chunk.tensor];
    if (chunk.chunk_index != 0 || !(front.most_norm > 0.0)) return;
    double* sums = round.tile_sums + round.first_tiles[blockIdx.x];
    const double total = join_tiles(sums, round.tensors[chunk.tensor].tile_count);
    if (threadIdx.x == 0) round.tensor_states[chunk.tensor].clip = bounded_factor(front.most_norm, total);
}

}  // namespace

KernelHandle square_kernel() noexcept { return &square_means; }
KernelHandle fold_clips_kernel() noexcept { return &fold_clips; }

}  // namespace gradsieve::codec::cuda
