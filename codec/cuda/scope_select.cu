// Tensors that are selected together with others (codec/narrow_scope.hpp), behind the dense pass, which has left r as
// if nothing were sent, and v as the gate judges it: magnitudes are counted, and listed once the k-th one is known.
// Integer counts only, whose order cannot show. Blocks: one per group of tiles, a warp for a tile.
#include "codec/cuda/radix_select.cuh"
#include "codec/narrow_scope.hpp"

namespace gradsieve::codec::cuda {
namespace {

template <unsigned kLevel>
constexpr bool kIsNarrowLevel = Level<kLevel>::kWidth == narrow_level(kLevel).width&& Level<kLevel>::kShift ==
                                narrow_level(kLevel).shift;
static_assert(kIsNarrowLevel<0> && kIsNarrowLevel<1> && kIsNarrowLevel<2>);

/// Values that a lane has under way at once.
constexpr unsigned kValuesAhead = 8;

/// What a lane sees of an element.
struct Candidate {
    std::uint32_t index = 0;  ///< in the tile; there may be no such element
    float value = 0;
    float variance = 0;      ///< with a gate
    std::uint32_t size = 0;  ///< magnitude bits; 0: there is nothing to send
};

/// Calls `look` with all elements of a tile, 32 consecutive ones at a time in order. A whole warp.
template <typename Look>
__device__ inline void look_at_tile(const TensorPlan& plan, const GroupTile& tile, Look look) {
    const unsigned lane = threadIdx.x % 32;
    const float* values = plan.residual_out + tile.first;
    const float* variances = plan.has_variance != 0 ? plan.variance_out + tile.first : nullptr;
    for (std::uint32_t begin = 0; begin < tile.elements; begin += 32 * kValuesAhead) {
        Candidate ahead[kValuesAhead];
#pragma unroll
        for (unsigned j = 0; j < kValuesAhead; ++j) {
            ahead[j].index = begin + j * 32 + lane;
            if (ahead[j].index >= tile.elements) continue;
            ahead[j].value = values[ahead[j].index];
            if (variances != nullptr) ahead[j].variance = variances[ahead[j].index];
        }
#pragma unroll
        for (unsigned j = 0; j < kValuesAhead; ++j) {
            const bool passes = variances == nullptr ||
                                element::passes_variance_test(ahead[j].value, plan.ratio_floor, ahead[j].variance);
            ahead[j].size = passes ? element::magnitude_bits(ahead[j].value) : 0U;
            look(ahead[j]);
        }
    }
}

/// Magnitudes of a level's prefix by its bits; the largest of all on the first one.
template <unsigned kLevel>
__global__ void __launch_bounds__(kTileThreads) count_residual(const __grid_constant__ EncodeRound round) {
    using Counted = Level<kLevel>;
    begin_kernel();
    __shared__ std::uint32_t counts[Counted::kBins];
    const GroupWork work = group_work(round, blockIdx.x);
    const std::uint32_t prefix = work.state->prefix;
    for (std::uint32_t bin = threadIdx.x; bin < Counted::kBins; bin += kTileThreads) counts[bin] = 0;
    __syncthreads();
    std::uint32_t largest = 0;
    for (std::uint32_t number = threadIdx.x / 32; number < work.tiles; number += kWarps)
        look_at_tile(*work.plan, group_tile(round, work, number), [&](const Candidate& seen) {
            const std::uint32_t place = seen.size >> Counted::kShift;
            if (seen.size == 0 || (kLevel > 0 && place >> Counted::kWidth != prefix)) return;
            if (kLevel == 0) largest = max(largest, seen.size);
            atomicAdd(counts + (place & (Counted::kBins - 1U)), 1U);
        });
    if (kLevel == 0) {
        largest = __reduce_max_sync(~0U, largest);
        if (threadIdx.x % 32 == 0) atomicMax(&work.state->largest, largest);
    }
    __syncthreads();
    std::uint32_t* bins = bins_of(round, work.tensor);
    for (std::uint32_t bin = threadIdx.x; bin < Counted::kBins; bin += kTileThreads)
        if (counts[bin] > 0) atomicAdd(bins + bin, counts[bin]);
    if (!is_last_group(work, kLevel)) return;
    SharedCounts& own = work.plan->shared[work.plan->part];
    for (std::uint32_t bin = threadIdx.x; bin < Counted::kBins; bin += kTileThreads) {
        own.bins[kLevel][bin] = __ldcg(bins + bin);
        bins[bin] = 0;
    }
    if (threadIdx.x == 0) own.largest = __ldcg(&work.state->largest);
}

/// Lists what is not below the k-th magnitude, or everything where there is none, and counts those equal to it.
__device__ inline void list_tile(const EncodeRound& round, const GroupWork& work, const GroupTile& place) {
    const unsigned lane = threadIdx.x % 32;
    const TensorPlan& plan = *work.plan;
    const TileTarget target = tile_target(round, plan, place.tile, place.first);
    auto* values = reinterpret_cast<float*>(target.values);
    const std::uint32_t floor = max(1U, work.state->prefix);
    const bool decays = plan.has_variance != 0 && plan.zeta != 1.0F;
    std::uint32_t count = 0;
    std::uint32_t largest = 0;
    std::uint32_t ties = 0;
    look_at_tile(plan, place, [&](const Candidate& seen) {
        if (decays && seen.index < place.elements) target.variance_out[seen.index] = plan.zeta * seen.variance;
        const std::uint32_t listed = __ballot_sync(~0U, seen.size >= floor);
        if (seen.size >= floor) {
            const std::uint32_t at = count + __popc(listed & ((1U << lane) - 1U));
            target.indices[at] = static_cast<std::uint16_t>(seen.index);
            values[at] = seen.value;
            largest = max(largest, seen.size);
            ties += seen.size == floor ? 1U : 0U;
        }
        count += __popc(listed);
    });
    largest = __reduce_max_sync(~0U, largest);
    ties = __reduce_add_sync(~0U, ties);
    if (lane != 0) return;
    target.info->count = count;
    target.info->scale = largest;
    target.info->quotients[0] = ties;
}

__global__ void __launch_bounds__(kTileThreads) list_residual(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    const GroupWork work = group_work(round, blockIdx.x);
    for (std::uint32_t number = threadIdx.x / 32; number < work.tiles; number += kWarps)
        list_tile(round, work, group_tile(round, work, number));
    // Of more groups, count_ties finds what stands before each.
    if (threadIdx.x == 0 && has_one_group(work)) round.tiles[group_tile(round, work, 0).tile].quotients[1] = 0;
}

}  // namespace

KernelHandle scope_count_kernel(unsigned level) noexcept {
    if (level == 0) return &count_residual<0>;
    if (level == 1) return &count_residual<1>;
    return &count_residual<2>;
}
KernelHandle scope_list_kernel() noexcept { return &list_residual; }

}  // namespace gradsieve::codec::cuda
