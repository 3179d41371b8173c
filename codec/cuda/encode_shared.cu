// Tensors that several devices share and that are decided as a whole: from what every device counted of its own part,
// each finds the same k-th magnitude, largest value and share of ties. Each of these kernels runs after an event of
// every device behind the kernel that left the counts. Blocks: one per chunk, of which the first of each tensor acts.
#include "codec/cuda/radix_select.cuh"

namespace gradsieve::codec::cuda {
namespace {

/// The part that this device has of the tensor whose first chunk the block stands for.
struct PartWork {
    GroupWork of;
    const SharedCounts* counts;  ///< one for each part
    std::uint32_t part_count;
};
/// False for blocks of later chunks.
__device__ inline bool find_part(const EncodeRound& round, PartWork& ret_work) {
    const ChunkPlan& chunk = round.chunks[blockIdx.x];
    if (chunk.chunk_index != 0) return false;
    ret_work.of.chunk = blockIdx.x;
    ret_work.of.tensor = chunk.tensor;
    ret_work.of.plan = round.tensors + chunk.tensor;
    ret_work.of.state = round.tensor_states + chunk.tensor;
    ret_work.counts = ret_work.of.plan->shared;
    ret_work.part_count = ret_work.of.plan->part_count;
    return true;
}

__global__ void __launch_bounds__(kTileThreads) share_listed(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    PartWork work;
    if (!find_part(round, work) || threadIdx.x != 0) return;
    SharedCounts& own = work.of.plan->shared[work.of.plan->part];
    own.listed = work.of.state->listed;
    own.largest = work.of.state->largest;
}

__global__ void __launch_bounds__(kTileThreads) take_listed(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    PartWork work;
    if (!find_part(round, work) || threadIdx.x != 0) return;
    std::uint32_t listed = 0;
    std::uint32_t largest = 0;
    for (std::uint32_t part = 0; part < work.part_count; ++part) {
        listed += work.counts[part].listed;
        largest = max(largest, work.counts[part].largest);
    }
    work.of.state->listed = listed;
    work.of.state->largest = largest;
}

__device__ inline void take_relisted(const PartWork& work) {
    std::uint32_t relisted = 0;
    std::uint32_t largest = 0;
    for (std::uint32_t part = 0; part < work.part_count; ++part) {
        relisted += work.counts[part].relisted;
        largest = max(largest, work.counts[part].relisted_largest);
    }
    work.of.state->relisted = relisted;
    work.of.state->largest = largest;
}

template <unsigned kLevel>
__global__ void __launch_bounds__(kTileThreads) take_bins(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    __shared__ ScanShared<kTileThreads> shared;
    PartWork work;
    if (!find_part(round, work) || !is_top_k(work.of)) return;
    if (kLevel == 0 && threadIdx.x == 0) take_relisted(work);
    __syncthreads();
    if (!is_cut(work.of)) return;
    const std::uint32_t wanted = kLevel == 0 ? work.of.plan->keep_count : work.of.state->wanted;
    __syncthreads();  // everyone has read
    pick_bin<kLevel>(*work.of.state, wanted, shared, [&work](std::uint32_t bin) {
        std::uint32_t count = 0;
        for (std::uint32_t part = 0; part < work.part_count; ++part) count += work.counts[part].bins[kLevel][bin];
        return count;
    });
}

__global__ void __launch_bounds__(kTileThreads) take_ties(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    PartWork work;
    if (!find_part(round, work) || threadIdx.x != 0 || !are_ties_cut(work.of)) return;
    std::uint32_t before = 0;
    for (std::uint32_t part = 0; part < work.of.plan->part; ++part) before += work.counts[part].ties;
    work.of.state->ties_before = before;
}

}  // namespace

KernelHandle share_listed_kernel() noexcept { return &share_listed; }
KernelHandle take_listed_kernel() noexcept { return &take_listed; }
KernelHandle take_bins_kernel(unsigned level) noexcept {
    if (level == 0) return &take_bins<0>;
    if (level == 1) return &take_bins<1>;
    return &take_bins<2>;
}
KernelHandle take_ties_kernel() noexcept { return &take_ties; }

}  // namespace gradsieve::codec::cuda
