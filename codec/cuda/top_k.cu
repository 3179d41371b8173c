// Exact top-k over the lists that wait in their slots: order by magnitude bits descending, then index ascending.
// Integer counts only, whose order cannot show. Every kernel is launched in every step; those with nothing to do end at
// once, so that the host never has to look. Where devices share a tensor, each counts its own part here, and what
// follows from all counts is found by encode_shared.cu. Blocks: one per group of tiles of one chunk.
#include "codec/cuda/radix_select.cuh"

namespace gradsieve::codec::cuda {
namespace {

constexpr unsigned kTieLevel = kSelectLevels;  ///< its place in TensorState::groups_done

__device__ inline void list_again(const EncodeRound& round, const GroupWork& work, std::uint32_t tile) {
    const unsigned lane = threadIdx.x % 32;
    const GroupTile place = group_tile(round, work, tile);
    const TileTarget target = tile_target(round, *work.plan, place.tile, place.first);
    const std::uint32_t* gates =
        round.gate_words == nullptr ? nullptr : round.gate_words + std::size_t{place.tile} * (kTile / 32);
    const std::uint32_t floor = max(1U, work.state->floor);
    const bool is_gated = gates != nullptr && work.plan->has_variance != 0;
    std::uint32_t count = 0;
    std::uint32_t largest = 0;
    for (std::uint32_t begin = 0; begin < place.elements; begin += 32) {
        const std::uint32_t index = begin + lane;
        const float value = index < place.elements ? target.residual_out[index] : 0.0F;
        const std::uint32_t size = element::magnitude_bits(value);
        const std::uint32_t gate = is_gated ? gates[begin / 32] : ~0U;
        const std::uint32_t listed = __ballot_sync(~0U, size >= floor) & gate;
        if (((listed >> lane) & 1U) != 0) {
            const std::uint32_t at = count + __popc(listed & ((1U << lane) - 1U));
            target.indices[at] = static_cast<std::uint16_t>(index);
            reinterpret_cast<float*>(target.values)[at] = value;
            largest = max(largest, size);
        }
        count += __popc(listed);
    }
    largest = __reduce_max_sync(~0U, largest);
    if (lane != 0) return;
    target.info->count = count;
    target.info->scale = largest;
    atomicAdd(&work.state->relisted, count);
    atomicMax(&work.state->largest, largest);
}

/// Finds the first bits of the k-th magnitude from the dense pass's counts, unless it lies above them all. A whole
/// block.
__device__ inline void pick_fine(const EncodeRound& round, const GroupWork& work) {
    __shared__ ScanShared<kTileThreads> shared;
    std::uint32_t* bins = bins_of(round, work.tensor);
    TensorState& state = *work.state;
    find_bin<kHistogramBins>(
        work.plan->keep_count, shared, [bins](std::uint32_t bin) { return atomicExch(bins + bin, 0U); },
        [&state](std::uint32_t counted) { return state.listed - counted; },
        [&](std::uint32_t bin, std::uint32_t of_bin, std::uint32_t) {
            state.prefix = fine_base(*work.plan) + bin;
            state.wanted = of_bin;
            state.is_fine = 1;
        });
}

/// Counts a group's candidates that have this prefix by the bits of a level. A whole block.
template <unsigned kLevel>
__device__ inline void count_group(const EncodeRound& round, const GroupWork& work, std::uint32_t prefix,
                                   std::uint32_t (&ret_counts)[kHistogramBins]) {
    for (std::uint32_t bin = threadIdx.x; bin < Level<kLevel>::kBins; bin += kTileThreads) ret_counts[bin] = 0;
    __syncthreads();
    for (std::uint32_t tile = threadIdx.x / 32; tile < work.tiles; tile += kWarps) {
        const std::uint32_t in_round = group_tile(round, work, tile).tile;
        const float* values = waiting_values_of(round, in_round);
        const std::uint32_t count = round.tiles[in_round].count;
        for (std::uint32_t entry = threadIdx.x % 32; entry < count; entry += 32) {
            const std::uint32_t place = element::magnitude_bits(values[entry]) >> Level<kLevel>::kShift;
            if (kLevel == 0 || place >> Level<kLevel>::kWidth == prefix)
                atomicAdd(ret_counts + (place & (Level<kLevel>::kBins - 1U)), 1U);
        }
    }
    __syncthreads();
}

/// How many of a group's candidates equal the k-th: of each tile, and of all. A whole block; one thread's answer.
__device__ inline std::uint32_t count_group_ties(const EncodeRound& round, const GroupWork& work) {
    __shared__ std::uint32_t of_group;
    if (threadIdx.x == 0) of_group = 0;
    __syncthreads();
    for (std::uint32_t tile = threadIdx.x / 32; tile < work.tiles; tile += kWarps) {
        const std::uint32_t in_round = group_tile(round, work, tile).tile;
        const float* values = waiting_values_of(round, in_round);
        const std::uint32_t count = round.tiles[in_round].count;
        std::uint32_t ties = 0;
        for (std::uint32_t entry = threadIdx.x % 32; entry < count; entry += 32)
            ties += element::magnitude_bits(values[entry]) == work.state->prefix ? 1U : 0U;
        ties = __reduce_add_sync(~0U, ties);
        if (threadIdx.x % 32 != 0) continue;
        round.tiles[in_round].quotients[0] = ties;
        atomicAdd(&of_group, ties);
    }
    __syncthreads();
    return of_group;
}

/// A level of a tensor that its block decides alone.
template <unsigned kLevel>
__device__ inline void decide_level(const EncodeRound& round, const GroupWork& work,
                                    std::uint32_t (&counts)[kHistogramBins], ScanShared<kTileThreads>& shared) {
    const std::uint32_t prefix = kLevel == 0 ? 0 : work.state->prefix;
    const std::uint32_t wanted = kLevel == 0 ? work.plan->keep_count : work.state->wanted;
    count_group<kLevel>(round, work, prefix, counts);  // everyone has read
    pick_bin<kLevel>(*work.state, wanted, shared, [&counts](std::uint32_t bin) { return counts[bin]; });
    __syncthreads();
}

/// Finds the k-th magnitude of a tensor of one group, and its ties, without a kernel for each level: a batch of many
/// small tensors waits for hardly anything else. A whole block.
__device__ inline void decide_alone(const EncodeRound& round, const GroupWork& work) {
    __shared__ std::uint32_t counts[kHistogramBins];
    __shared__ ScanShared<kTileThreads> shared;
    __syncthreads();  // what was listed again is there
    if (!is_cut(work)) return;
    decide_level<0>(round, work, counts, shared);
    decide_level<1>(round, work, counts, shared);
    decide_level<2>(round, work, counts, shared);
    if (!are_ties_cut(work)) return;
    count_group_ties(round, work);
    if (threadIdx.x == 0) round.tiles[group_tile(round, work, 0).tile].quotients[1] = 0;  // before the group
}

/// The guess was too high: lists again from the residual just written, which is the accumulated gradient still.
__global__ void __launch_bounds__(kTileThreads) list_missed(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    const GroupWork work = group_work(round, blockIdx.x);
    const bool is_first = round.chunks[work.chunk].chunk_index == 0 && work.first_in_chunk == 0;
    if (is_first && work.plan->has_fine_counts != 0) pick_fine(round, work);
    if (was_missed(work)) {
        if (threadIdx.x == 0) work.state->is_missed = 1;
        for (std::uint32_t tile = threadIdx.x / 32; tile < work.tiles; tile += kWarps) list_again(round, work, tile);
    }
    if (has_one_group(work)) decide_alone(round, work);
}

/// Leaves a level's counts for the tensor's other devices.
template <unsigned kLevel>
__device__ void share_bins(const GroupWork& work, std::uint32_t* bins) {
    SharedCounts& own = work.plan->shared[work.plan->part];
    for (std::uint32_t bin = threadIdx.x; bin < Level<kLevel>::kBins; bin += kTileThreads) {
        own.bins[kLevel][bin] = __ldcg(bins + bin);
        bins[bin] = 0;
    }
    if (kLevel > 0 || threadIdx.x != 0) return;
    own.relisted = work.state->relisted;
    own.relisted_largest = work.state->largest;
}

/// Whether a level has anything to count; before the first one of a shared tensor, no device knows that for itself.
template <unsigned kLevel>
__device__ inline bool is_counted(const GroupWork& work) {
    if ((kLevel < 2 && work.state->is_fine != 0) || has_one_group(work)) return false;
    return is_cut(work) || (kLevel == 0 && work.plan->shared != nullptr && is_top_k(work));
}

template <unsigned kLevel>
__global__ void __launch_bounds__(kTileThreads) count_magnitudes(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    __shared__ std::uint32_t counts[kHistogramBins];
    __shared__ ScanShared<kTileThreads> shared;
    const GroupWork work = group_work(round, blockIdx.x);
    if (!is_counted<kLevel>(work)) return;
    const std::uint32_t prefix = kLevel == 0 ? 0 : work.state->prefix;
    const std::uint32_t wanted = kLevel == 0 ? work.plan->keep_count : work.state->wanted;
    count_group<kLevel>(round, work, prefix, counts);
    std::uint32_t* bins = bins_of(round, work.tensor);
    for (std::uint32_t bin = threadIdx.x; bin < Level<kLevel>::kBins; bin += kTileThreads)
        if (counts[bin] > 0) atomicAdd(bins + bin, counts[bin]);
    if (!is_last_group(work, kLevel)) return;
    if (work.plan->shared != nullptr) return share_bins<kLevel>(work, bins);
    pick_bin<kLevel>(*work.state, wanted, shared, [bins](std::uint32_t bin) {
        const std::uint32_t count = __ldcg(bins + bin);
        bins[bin] = 0;
        return count;
    });
}

/// Where not all of those equal to the k-th are kept: how many there are in each tile, and before each group.
__global__ void __launch_bounds__(kTileThreads) count_ties(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    __shared__ ScanShared<kTileThreads> shared;
    const GroupWork work = group_work(round, blockIdx.x);
    if (!are_ties_cut(work) || has_one_group(work)) return;
    const std::uint32_t of_group = count_group_ties(round, work);
    if (threadIdx.x == 0) round.tiles[group_tile(round, work, 0).tile].quotients[1] = of_group;
    if (!is_last_group(work, kTieLevel)) return;
    // Groups begin at every kGroupTiles-th tile of each chunk, and chunks but the last are whole groups.
    std::uint32_t before = 0;
    for (std::uint32_t first = 0; first < work.plan->group_count; first += kTileThreads) {
        const std::uint32_t group = first + threadIdx.x;
        const bool exists = group < work.plan->group_count;
        std::uint32_t* ties = round.tiles[work.plan->first_tile + group * kGroupTiles].quotients + 1;
        std::uint32_t total = 0;
        const std::uint32_t lower = scan_block(exists ? __ldcg(ties) : 0U, Sum{}, shared, total);
        if (exists) *ties = before + lower;
        before += total;
    }
    if (work.plan->shared != nullptr && threadIdx.x == 0) work.plan->shared[work.plan->part].ties = before;
}

}  // namespace

KernelHandle relist_kernel() noexcept { return &list_missed; }

KernelHandle histogram_kernel(unsigned level) noexcept {
    if (level == 0) return &count_magnitudes<0>;
    if (level == 1) return &count_magnitudes<1>;
    return &count_magnitudes<2>;
}

KernelHandle tie_kernel() noexcept { return &count_ties; }

}  // namespace gradsieve::codec::cuda
