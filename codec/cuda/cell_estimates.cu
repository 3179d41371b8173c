// Which elements have the largest estimates: their magnitudes are counted by their leading bits, in three turns of 11,
// 10 and 10, until the kept-th one is known, and then those above it and the first of those equal to it are listed in
// order. Each turn computes the estimates anew, a block of threads for a tile, from a table that stays in the L2 cache:
// to keep them would take as much memory as the tensor.
#include "codec/cuda/block_scan.cuh"
#include "codec/cuda/cell_kernels.hpp"
#include "codec/cuda/launch.hpp"
#include "codec/cuda/radix_select.cuh"
#include "codec/element.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {
namespace {

constexpr unsigned kThreads = kTileThreads;
constexpr unsigned kPerThread = kSketchTile / kThreads;
constexpr unsigned kWarpsHere = kThreads / 32;
constexpr std::uint32_t kSignCounters = kSketchTile / 128;
constexpr std::uint32_t kMostTileBlocks = kSketchTile / static_cast<std::uint32_t>(kLeastSketchColumns);

/// What is drawn for a tile.
struct TileDraws {
    std::uint32_t signs[kMostSketchRows][kSketchTile / 32];
    std::uint32_t offsets[kMostSketchRows][kMostTileBlocks];
};

/// A whole block of threads; the tile before is done with.
__device__ inline void draw_for_tile(const DeviceSketch& sketch, std::uint32_t tile, TileDraws& ret_draws) {
    for (std::uint32_t number = threadIdx.x; number < sketch.rows * kSignCounters; number += kThreads) {
        const std::uint32_t row = number / kSignCounters;
        const std::uint32_t counter = number % kSignCounters;
        const PhiloxBlock words = philox({{tile * kSignCounters + counter, kSketchSignPurpose, row, 0}}, sketch.key);
#pragma unroll
        for (unsigned word = 0; word < 4; ++word) ret_draws.signs[row][4 * counter + word] = words.words[word];
    }
    const std::uint32_t counters = (kSketchTile >> sketch.block_log2) / 4;
    for (std::uint32_t number = threadIdx.x; number < sketch.rows * counters; number += kThreads) {
        const std::uint32_t row = number / counters;
        const std::uint32_t counter = number % counters;
        const PhiloxBlock words = philox({{tile * counters + counter, kSketchOffsetPurpose, row, 0}}, sketch.key);
#pragma unroll
        for (unsigned word = 0; word < 4; ++word)
            ret_draws.offsets[row][4 * counter + word] =
                static_cast<std::uint32_t>(std::uint64_t{words.words[word]} * sketch.columns >> 32U);
    }
    __syncthreads();
}

__device__ inline float median_of_three(float a, float b, float c) { return fmaxf(fminf(a, b), fminf(fmaxf(a, b), c)); }

/// None of them is a NaN; which zero a median of zeros is does not show in its magnitude.
template <unsigned kRows>
__device__ inline float median(float (&values)[kRows]) {
    if constexpr (kRows == 1) {
        return values[0];
    } else if constexpr (kRows == 3) {
        return median_of_three(values[0], values[1], values[2]);
    } else if constexpr (kRows == 5) {
        // Of four, neither the least nor the largest is the median of five.
        return median_of_three(fmaxf(fminf(values[0], values[1]), fminf(values[2], values[3])),
                               fminf(fmaxf(values[0], values[1]), fmaxf(values[2], values[3])), values[4]);
    } else {
#pragma unroll
        for (unsigned largest = kRows - 1; largest >= kRows / 2; --largest)
#pragma unroll
            for (unsigned at = 0; at < largest; ++at) {
                const float low = fminf(values[at], values[at + 1]);
                values[at + 1] = fmaxf(values[at], values[at + 1]);
                values[at] = low;
            }
        return values[kRows / 2];
    }
}

/// Magnitude bits of a tile's element's estimate; of one behind the tensor's end, of nothing in particular.
template <unsigned kRows>
__device__ inline std::uint32_t estimate(const DeviceSketch& sketch, const float* __restrict__ rows,
                                         const TileDraws& draws, std::uint32_t in_tile) {
    const std::uint32_t block = in_tile >> sketch.block_log2;
    const std::uint32_t place = in_tile & (sketch.block() - 1);
    float estimates[kRows];
#pragma unroll
    for (unsigned row = 0; row < kRows; ++row) {
        std::uint32_t column = draws.offsets[row][block] + place;
        if (column >= sketch.columns) column -= sketch.columns;
        const std::uint32_t flip = draws.signs[row][in_tile / 32] << (31U - in_tile % 32) & 0x80000000U;
        const float cell = rows[std::uint64_t{row} * sketch.columns + column];
        estimates[row] = element::float_of(element::bits_of(cell) ^ flip);
    }
    return element::magnitude_bits(median(estimates));
}

/// Of the elements whose magnitudes begin as is known of the kept-th one, how many go on with which bits.
template <unsigned kRows>
__global__ void __launch_bounds__(kThreads)
    count_estimates(DeviceSketch sketch, const float* __restrict__ rows, const EstimateState* __restrict__ state,
                    std::uint32_t* __restrict__ inout_bins, std::uint32_t tiles, unsigned shift, unsigned width) {
    __shared__ TileDraws draws;
    __shared__ std::uint32_t bins[kEstimateBins];
    for (std::uint32_t bin = threadIdx.x; bin < kEstimateBins; bin += kThreads) bins[bin] = 0;
    const std::uint32_t prefix = state->prefix;
    const std::uint32_t mask = (1U << width) - 1U;
    for (std::uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        __syncthreads();
        draw_for_tile(sketch, tile, draws);
        const std::uint32_t first = tile * kSketchTile;
        const std::uint32_t count = min(kSketchTile, sketch.elements - first);
#pragma unroll 4
        for (unsigned turn = 0; turn < kPerThread; ++turn) {
            const std::uint32_t in_tile = turn * kThreads + threadIdx.x;
            const std::uint32_t size = estimate<kRows>(sketch, rows, draws, in_tile);
            if (in_tile < count && size >> (shift + width) == prefix) atomicAdd(&bins[size >> shift & mask], 1U);
        }
    }
    __syncthreads();
    for (std::uint32_t bin = threadIdx.x; bin < kEstimateBins; bin += kThreads)
        if (bins[bin] > 0) atomicAdd(&inout_bins[bin], bins[bin]);
}

/// The kept-th magnitude's next bits; one block. Leaves the bins empty for the next turn.
__global__ void __launch_bounds__(kThreads)
    pick_estimate(EstimateState* inout_state, std::uint32_t* inout_bins, unsigned width) {
    __shared__ ScanShared<kTileThreads> shared;
    const EstimateState before = *inout_state;
    find_bin<kEstimateBins>(
        before.wanted, shared,
        [inout_bins](std::uint32_t bin) {
            const std::uint32_t count = inout_bins[bin];
            inout_bins[bin] = 0;
            return count;
        },
        [](std::uint32_t) { return 0U; },
        [inout_state, before, width](std::uint32_t bin, std::uint32_t of_bin, std::uint32_t) {
            *inout_state = {before.prefix << width | bin, of_bin};
        });
}

template <unsigned kRows>
__global__ void __launch_bounds__(kThreads)
    tally_estimates(DeviceSketch sketch, const float* __restrict__ rows, const EstimateState* __restrict__ state,
                    EstimateTally* __restrict__ ret_tallies) {
    __shared__ TileDraws draws;
    __shared__ std::uint32_t above, equal;
    if (threadIdx.x == 0) above = equal = 0;
    const std::uint32_t tile = blockIdx.x;
    draw_for_tile(sketch, tile, draws);
    const std::uint32_t limit = state->prefix;
    const std::uint32_t count = min(kSketchTile, sketch.elements - tile * kSketchTile);
    std::uint32_t own_above = 0;
    std::uint32_t own_equal = 0;
#pragma unroll 4
    for (unsigned turn = 0; turn < kPerThread; ++turn) {
        const std::uint32_t in_tile = turn * kThreads + threadIdx.x;
        const std::uint32_t size = estimate<kRows>(sketch, rows, draws, in_tile);
        own_above += in_tile < count && size > limit ? 1 : 0;
        own_equal += in_tile < count && size == limit ? 1 : 0;
    }
    own_above = __reduce_add_sync(~0U, own_above);
    own_equal = __reduce_add_sync(~0U, own_equal);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&above, own_above);
        atomicAdd(&equal, own_equal);
    }
    __syncthreads();
    if (threadIdx.x == 0) ret_tallies[tile] = {above, equal};
}

/// Sums over the tiles before each; one block.
__global__ void __launch_bounds__(1024) sum_tallies(EstimateTally* inout_tallies, std::uint32_t tiles) {
    __shared__ ScanShared<1024> shared;
    EstimateTally before;
    for (std::uint32_t first = 0; first < tiles; first += 1024) {
        const std::uint32_t tile = first + threadIdx.x;
        const EstimateTally own = tile < tiles ? inout_tallies[tile] : EstimateTally{};
        std::uint32_t above = 0;
        std::uint32_t equal = 0;
        const EstimateTally sums{before.above + scan_block(own.above, Sum{}, shared, above),
                                 before.equal + scan_block(own.equal, Sum{}, shared, equal)};
        if (tile < tiles) inout_tallies[tile] = sums;
        before.above += above;
        before.equal += equal;
    }
}

template <unsigned kRows>
__global__ void __launch_bounds__(kThreads)
    list_chosen(DeviceSketch sketch, const float* __restrict__ rows, const EstimateState* __restrict__ state,
                const EstimateTally* __restrict__ tallies, TakeStep take, std::uint32_t* __restrict__ ret_chosen) {
    __shared__ TileDraws draws;
    __shared__ std::uint32_t above[kPerThread][kWarpsHere];  // elements of each turn and warp, in order
    __shared__ std::uint32_t equal[kPerThread][kWarpsHere];
    const std::uint32_t tile = blockIdx.x;
    const std::uint32_t limit = state->prefix;
    const std::uint32_t equal_kept = state->wanted;
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    draw_for_tile(sketch, tile, draws);
    const std::uint32_t first = tile * kSketchTile;
    const std::uint32_t count = min(kSketchTile, sketch.elements - first);
    std::uint32_t votes_above[kPerThread];
    std::uint32_t votes_equal[kPerThread];
#pragma unroll
    for (unsigned turn = 0; turn < kPerThread; ++turn) {
        const std::uint32_t in_tile = turn * kThreads + threadIdx.x;
        const std::uint32_t size = estimate<kRows>(sketch, rows, draws, in_tile);
        votes_above[turn] = __ballot_sync(~0U, in_tile < count && size > limit);
        votes_equal[turn] = __ballot_sync(~0U, in_tile < count && size == limit);
        if (lane == 0) {
            above[turn][warp] = __popc(votes_above[turn]);
            equal[turn][warp] = __popc(votes_equal[turn]);
        }
    }
    __syncthreads();
    if (warp < 2) {  // one for each; what lies before each entry, in the tensor
        std::uint32_t* counts = warp == 0 ? &above[0][0] : &equal[0][0];
        std::uint32_t before = warp == 0 ? tallies[tile].above : tallies[tile].equal;
        for (unsigned begin = 0; begin < kPerThread * kWarpsHere; begin += 32) {
            const std::uint32_t own = counts[begin + lane];
            const std::uint32_t up_to = scan_warp(own, Sum{});
            counts[begin + lane] = before + up_to - own;
            before += __shfl_sync(~0U, up_to, 31);
        }
    }
    __syncthreads();
    const std::uint32_t lanes_before = (1U << lane) - 1U;
#pragma unroll
    for (unsigned turn = 0; turn < kPerThread; ++turn) {
        const std::uint32_t equal_before = equal[turn][warp] + __popc(votes_equal[turn] & lanes_before);
        const bool is_above = (votes_above[turn] >> lane & 1U) != 0;
        const bool is_equal = (votes_equal[turn] >> lane & 1U) != 0 && equal_before < equal_kept;
        if (!is_above && !is_equal) continue;
        const std::uint32_t at =
            above[turn][warp] + __popc(votes_above[turn] & lanes_before) + min(equal_before, equal_kept);
        const std::uint32_t chosen = first + turn * kThreads + threadIdx.x;
        ret_chosen[at] = chosen;
        if (take.residual == nullptr) continue;
        take.values[at] = take.residual[chosen];
        take.residual[chosen] = 0.0F;
        if (take.momentum != nullptr) take.momentum[chosen] = 0.0F;
    }
}

__global__ void begin_choice(EstimateState* ret_state, std::uint32_t* ret_bins, std::uint32_t kept) {
    for (std::uint32_t bin = threadIdx.x; bin < kEstimateBins; bin += blockDim.x) ret_bins[bin] = 0;
    if (threadIdx.x == 0) *ret_state = {0, kept};
}

template <unsigned kRows>
cudaError_t choose(const DeviceSketch& sketch, const float* rows, const EstimateScratch& scratch, const TakeStep& take,
                   std::uint32_t* ret_chosen, unsigned multiprocessors, cudaStream_t stream) {
    constexpr unsigned kBlocksEach = 8;
    const std::uint32_t tiles = sketch_tiles(sketch.elements);
    cudaError_t error = launch(&begin_choice, {1, kThreads}, stream, scratch.state, scratch.bins, sketch.kept);
    struct Turn {
        unsigned shift, width;
    };
    for (const Turn turn : {Turn{20, 11}, Turn{10, 10}, Turn{0, 10}}) {
        if (error != cudaSuccess) return error;
        error = launch(&count_estimates<kRows>, {std::min(tiles, kBlocksEach * multiprocessors), kThreads}, stream,
                       sketch, rows, scratch.state, scratch.bins, tiles, turn.shift, turn.width);
        if (error != cudaSuccess) return error;
        error = launch(&pick_estimate, {1, kThreads}, stream, scratch.state, scratch.bins, turn.width);
    }
    if (error != cudaSuccess) return error;
    error = launch(&tally_estimates<kRows>, {tiles, kThreads}, stream, sketch, rows, scratch.state, scratch.tallies);
    if (error != cudaSuccess) return error;
    error = launch(&sum_tallies, {1, 1024}, stream, scratch.tallies, tiles);
    if (error != cudaSuccess) return error;
    return launch(&list_chosen<kRows>, {tiles, kThreads}, stream, sketch, rows, scratch.state, scratch.tallies, take,
                  ret_chosen);
}

}  // namespace

cudaError_t launch_choose(const DeviceSketch& sketch, const float* rows, const EstimateScratch& scratch,
                          const TakeStep& take, std::uint32_t* ret_chosen, unsigned multiprocessors,
                          cudaStream_t stream) {
    const auto run = [&](auto choose_of_rows) {
        return choose_of_rows(sketch, rows, scratch, take, ret_chosen, multiprocessors, stream);
    };
    switch (sketch.rows) {
        case 1: return run(&choose<1>);
        case 3: return run(&choose<3>);
        case 5: return run(&choose<5>);
        default: return run(&choose<7>);
    }
}

}  // namespace gradsieve::codec::cuda
