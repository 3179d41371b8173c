// Thresholds estimated from a tensor's moments: looks at r, which the dense pass has written, until the floor is known
// from which on list_missed lists. Sums in the fixed order of codec/threshold_estimate.hpp. A look is two kernels: a
// block per group of tiles measures, and a block per tensor joins the groups and decides; where devices share the
// tensor, it leaves the chunks' sums for all, and a third kernel of each takes them.
#include "codec/cuda/block_scan.cuh"
#include "codec/cuda/estimate.cuh"

namespace gradsieve::codec::cuda {
namespace {

/// Values that a lane has under way at once.
constexpr unsigned kValuesAhead = 8;

/// Calls `take` with each of the lane's values in order, 32 apart.
template <typename Take>
__device__ inline void for_each_value(const float* values, std::uint32_t count, Take take) {
    std::uint32_t at = threadIdx.x % 32;
    for (; at + (kValuesAhead - 1) * 32 < count; at += kValuesAhead * 32) {
        float ahead[kValuesAhead];
#pragma unroll
        for (unsigned j = 0; j < kValuesAhead; ++j) ahead[j] = values[at + j * 32];
#pragma unroll
        for (unsigned j = 0; j < kValuesAhead; ++j) take(ahead[j]);
    }
    for (; at < count; at += 32) take(values[at]);
}

/// How many of the tile's magnitudes are at least each counted floor. One warp; its first lane has the answer.
__device__ inline EstimateRow count_tile(const float* values, std::uint32_t count, const EstimateState& state) {
    EstimateRow row = empty_row();
    std::uint32_t floors[kCountedThresholds];
#pragma unroll
    for (unsigned number = 0; number < kCountedThresholds; ++number) floors[number] = counted_floor(state, number);
    for_each_value(values, count, [&](float value) {
        const std::uint32_t size = element::magnitude_bits(value);
#pragma unroll
        for (unsigned number = 0; number < kCountedThresholds; ++number)
            row.counts[number] += size >= floors[number] ? 1U : 0U;
    });
#pragma unroll
    for (unsigned number = 0; number < kCountedThresholds; ++number)
        row.counts[number] = __reduce_add_sync(~0U, row.counts[number]);
    return row;
}

/// The tile's sums of what is at least the floor. One warp; its first lane has the answer.
__device__ inline EstimateRow sum_tile(const float* values, std::uint32_t count, std::uint32_t floor, bool is_signed) {
    EstimateRow row = empty_row();
    for_each_value(values, count, [&](float value) {
        const std::uint32_t size = element::magnitude_bits(value);
        if (size < floor) return;
        const double number = is_signed ? value : element::float_of(size);
        row.sum += number;
        row.squares += number * number;
        ++row.counts[0];
        row.least = min(row.least, size);
        row.largest = max(row.largest, size);
    });
    row.counts[0] = __reduce_add_sync(~0U, row.counts[0]);
    row.least = __reduce_min_sync(~0U, row.least);
    row.largest = __reduce_max_sync(~0U, row.largest);
#pragma unroll
    for (unsigned half = 16; half > 0; half /= 2) {
        row.sum += __shfl_down_sync(~0U, row.sum, half);
        row.squares += __shfl_down_sync(~0U, row.squares, half);
    }
    return row;
}

__global__ void __launch_bounds__(kTileThreads) measure_tiles(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    __shared__ EstimateRow rows[kEstimateGroupTiles];
    const GroupWork work = group_work(round, blockIdx.x);
    if (work.first_in_chunk % kEstimateGroupTiles != 0) return;  // the first group's block sums up those behind as well
    const std::uint32_t tiles = round.chunks[work.chunk].tiles - work.first_in_chunk;
    const TensorPlan& plan = *work.plan;
    const TensorState& state = *work.state;
    if (!is_looked_at(plan, state)) return;
    const EstimateState estimate{state.threshold, state.floor, state.measured_largest};
    const bool is_gaussian = plan.is_gaussian != 0;
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    for (std::uint32_t number = warp; number < kEstimateGroupTiles; number += kWarps) {
        EstimateRow row = empty_row();
        if (number < tiles) {
            const GroupTile tile = group_tile(round, work, number);
            const float* values = plan.residual_out + tile.first;
            row = is_counting(is_gaussian, state.looks_done)
                      ? count_tile(values, tile.elements, estimate)
                      : sum_tile(values, tile.elements, state.floor, is_gaussian);
        }
        if (lane == 0) rows[number] = row;
    }
    __syncthreads();
    if (warp != 0) return;
    EstimateRow own = rows[lane];
#pragma unroll
    for (unsigned half = 16; half > 0; half /= 2) {
        own.sum += __shfl_down_sync(~0U, own.sum, half);
        own.squares += __shfl_down_sync(~0U, own.squares, half);
    }
#pragma unroll
    for (unsigned number = 0; number < kCountedThresholds; ++number)
        own.counts[number] = __reduce_add_sync(~0U, own.counts[number]);
    own.least = __reduce_min_sync(~0U, own.least);
    own.largest = __reduce_max_sync(~0U, own.largest);
    if (lane == 0) *row_of_group(round, group_tile(round, work, 0).tile) = own;
}

/// A chunk's sums from those of its groups, of which the last ones may not exist.
__device__ inline EstimateRow fold_chunk(const EncodeRound& round, std::uint32_t first_tile, std::uint32_t tiles) {
    EstimateRow groups[kEstimateGroups];
#pragma unroll
    for (unsigned group = 0; group < kEstimateGroups; ++group) {
        groups[group] = empty_row();
        const std::uint32_t first = group * kEstimateGroupTiles;
        if (first < tiles) groups[group] = *row_of_group(round, first_tile + first);
    }
#pragma unroll
    for (unsigned half = kEstimateGroups / 2; half > 0; half /= 2) {
#pragma unroll
        for (unsigned group = 0; group < half; ++group) {
            groups[group].sum += groups[group + half].sum;
            groups[group].squares += groups[group + half].squares;
            join_counts(groups[group], groups[group + half]);
        }
    }
    return groups[0];
}

/// The tensor whose first chunk the block stands for; null for blocks of later chunks.
__device__ inline const TensorPlan* find_tensor(const EncodeRound& round, TensorState*& ret_state) {
    const ChunkPlan& chunk = round.chunks[blockIdx.x];
    ret_state = round.tensor_states + chunk.tensor;
    return chunk.chunk_index == 0 ? round.tensors + chunk.tensor : nullptr;
}

__global__ void __launch_bounds__(kTileThreads) fold_estimates(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    __shared__ EstimateRow rows[kTileThreads];
    TensorState* state = nullptr;
    const TensorPlan* plan = find_tensor(round, state);
    if (plan == nullptr || !is_looked_at(*plan, *state)) return;
    const bool is_shared = plan->shared != nullptr;
    EstimateRow* left = is_shared ? rows_of_part(*plan, plan->part, state->looks_done) : nullptr;
    const std::uint32_t chunks = (plan->tile_count + kChunkTiles - 1) / kChunkTiles;
    EstimateTotal total;
    for (std::uint32_t first = 0; first < chunks; first += kTileThreads) {
        const std::uint32_t chunk = first + threadIdx.x;
        if (chunk < chunks) {
            const std::uint32_t tile = chunk * kChunkTiles;
            const EstimateRow row =
                fold_chunk(round, plan->first_tile + tile, min(kChunkTiles, plan->tile_count - tile));
            if (is_shared)
                left[1 + chunk] = row;
            else
                rows[threadIdx.x] = row;
        }
        __syncthreads();
        if (threadIdx.x == 0 && !is_shared)
            for (std::uint32_t at = 0; at < min(chunks - first, kTileThreads); ++at) total.add(rows[at]);
        __syncthreads();
    }
    if (threadIdx.x != 0) return;
    if (is_shared)
        left[0].largest = chunks;
    else
        total.decide(*plan, *state);
}

__global__ void __launch_bounds__(kTileThreads) take_estimates(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    __shared__ EstimateRow rows[kTileThreads];
    TensorState* state = nullptr;
    const TensorPlan* plan = find_tensor(round, state);
    if (plan == nullptr || !is_looked_at(*plan, *state)) return;
    EstimateTotal total;
    for (std::uint32_t part = 0; part < plan->part_count; ++part) {
        const EstimateRow* left = rows_of_part(*plan, part, state->looks_done);
        const std::uint32_t chunks = left[0].largest;
        for (std::uint32_t first = 0; first < chunks; first += kTileThreads) {
            if (first + threadIdx.x < chunks) rows[threadIdx.x] = left[1 + first + threadIdx.x];
            __syncthreads();
            if (threadIdx.x == 0)
                for (std::uint32_t at = 0; at < min(chunks - first, kTileThreads); ++at) total.add(rows[at]);
            __syncthreads();
        }
    }
    if (threadIdx.x == 0) total.decide(*plan, *state);
}

}  // namespace

KernelHandle measure_kernel() noexcept { return &measure_tiles; }
KernelHandle fold_estimates_kernel() noexcept { return &fold_estimates; }
KernelHandle take_estimates_kernel() noexcept { return &take_estimates; }

}  // namespace gradsieve::codec::cuda
