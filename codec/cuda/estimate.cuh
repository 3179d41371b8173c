// Sums of tensors whose threshold is estimated (codec/threshold_estimate.hpp), as the kernels leave them for each
// other: of a group of tiles in its first tile's row, of a chunk of a shared tensor in page-locked memory. Device code
// only.
#pragma once

#include "codec/cuda/tile_group.cuh"
#include "codec/threshold_estimate.hpp"

namespace gradsieve::codec::cuda {

/// EstimateSums of a part of a tensor, whose counts need 32 bits.
struct EstimateRow {
    double sum;
    double squares;
    std::uint32_t counts[kCountedThresholds];
    std::uint32_t least;
    std::uint32_t largest;
};
static_assert(sizeof(EstimateRow) == kEstimateRowBytes && sizeof(EstimateRow) == sizeof(TileInfo{}.quotients));
static_assert(kEstimateGroupTiles % kGroupTiles == 0 && kChunkTiles == kEstimateGroupTiles * kEstimateGroups);

__device__ inline EstimateRow empty_row() {
    EstimateRow row{};
    row.least = ~0U;
    return row;
}

/// Whether the tensor has a look before it.
__device__ inline bool is_looked_at(const TensorPlan& plan, const TensorState& state) {
    return state.looks_done < plan.looks;
}

/// What has no order: all but the sums.
__device__ inline void join_counts(EstimateRow& inout_row, const EstimateRow& other) {
    for (unsigned number = 0; number < kCountedThresholds; ++number) inout_row.counts[number] += other.counts[number];
    inout_row.least = min(inout_row.least, other.least);
    inout_row.largest = max(inout_row.largest, other.largest);
}

/// Where the sums of a group stand between the kernels, by its first tile in the round.
__device__ inline EstimateRow* row_of_group(const EncodeRound& round, std::uint32_t first_tile) {
    return reinterpret_cast<EstimateRow*>(round.tiles[first_tile].quotients);
}

/// Rows of a part of a shared tensor: the first one's `largest` says how many chunks follow. Looks take turns with two
/// of them, so that a device that is done with one does not write over what others read.
__device__ inline EstimateRow* rows_of_part(const TensorPlan& plan, std::uint32_t part, unsigned look) {
    SharedCounts* rows = plan.shared + plan.part_count + std::size_t{part} * plan.shared_rows;
    const std::size_t half = plan.shared_rows * sizeof(SharedCounts) / sizeof(EstimateRow) / 2;
    return reinterpret_cast<EstimateRow*>(rows) + (look % 2) * half;
}

/// A tensor's sums, chunk after chunk.
class EstimateTotal {
public:
    __device__ void add(const EstimateRow& chunk) {
        sums_.sum += chunk.sum;
        sums_.squares += chunk.squares;
        for (unsigned number = 0; number < kCountedThresholds; ++number) sums_.counts[number] += chunk.counts[number];
        sums_.least = min(sums_.least, chunk.least);
        sums_.largest = max(sums_.largest, chunk.largest);
    }
    /// Ends the look.
    __device__ void decide(const TensorPlan& plan, TensorState& inout_state) const {
        EstimateRule rule;
        rule.first_factor = plan.first_factor;
        rule.next_factor = plan.next_factor;
        rule.elements = plan.whole_elements;
        rule.wanted = plan.wanted;
        rule.most = plan.keep_count;
        rule.looks = plan.looks;
        rule.is_gaussian = plan.is_gaussian != 0;
        EstimateState state{inout_state.threshold, inout_state.floor, inout_state.measured_largest};
        decide_threshold(rule, inout_state.looks_done, sums_, state);
        inout_state.threshold = state.threshold;
        inout_state.floor = state.floor;
        inout_state.measured_largest = state.largest;
        ++inout_state.looks_done;
    }

private:
    EstimateSums sums_;
};

}  // namespace gradsieve::codec::cuda
