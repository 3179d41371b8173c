// Block top-k over the lists that wait in their slots: each block of a tile keeps its largest magnitudes, the lower
// index first among equals, before the list is sent. Integer counts only. Nothing of other tiles is needed, so this is
// one launch. Blocks: one per group of tiles of one chunk, a warp for a tile.
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/list_cut.cuh"
#include "codec/cuda/tile_group.cuh"

namespace gradsieve::codec::cuda {
namespace {

/// How many magnitudes are at least `least`. A whole warp.
__device__ inline std::uint32_t count_from(const float* values, std::uint32_t count, std::uint32_t least) {
    std::uint32_t own = 0;
    for (std::uint32_t entry = threadIdx.x % 32; entry < count; entry += 32)
        own += element::magnitude_bits(values[entry]) >= least ? 1U : 0U;
    return __reduce_add_sync(~0U, own);
}

/// The bits of the wanted-th largest magnitude, of which there are as many at least: bit by bit, from where the largest
/// one begins. A whole warp.
__device__ inline std::uint32_t wanted_magnitude(const float* values, std::uint32_t count, std::uint32_t wanted) {
    std::uint32_t found = 0;
    const std::uint32_t largest = largest_magnitude(count, [values](std::uint32_t at) { return values[at]; });
    for (std::uint32_t bit = largest == 0 ? 0U : 1U << (31 - __clz(static_cast<int>(largest))); bit > 0; bit >>= 1U)
        if (count_from(values, count, found | bit) >= wanted) found |= bit;
    return found;
}

/// Cuts the tile's list. One warp.
__device__ inline void cut_tile(const EncodeRound& round, const GroupWork& work, std::uint32_t number) {
    const TensorPlan& plan = *work.plan;
    const GroupTile place = group_tile(round, work, number);
    const TileTarget target = tile_target(round, plan, place.tile, place.first);
    auto* values = reinterpret_cast<float*>(target.values);
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t count = target.info->count;
    const std::uint32_t block = 1U << plan.block_log2;
    std::uint32_t kept = 0;
    std::uint32_t begin = 0;
    for (std::uint32_t first = 0; begin < count; first += block) {
        const std::uint32_t end = entries_below(target.indices, begin, count, first + block);
        const bool is_whole = place.elements - first >= block;
        const std::uint32_t wanted = is_whole ? plan.keep_count : plan.last_keep_count;
        const std::uint32_t threshold =
            end - begin > wanted ? wanted_magnitude(values + begin, end - begin, wanted) : 0U;
        std::uint32_t ties_left = threshold > 0 ? wanted - count_from(values + begin, end - begin, threshold + 1U) : 0U;
        for (; begin < end; begin += 32) {
            const std::uint32_t entry = begin + lane;
            const bool exists = entry < end;
            const WaitingEntry read = waiting_entry(target.indices, values, entry, end);
            const std::uint32_t size = element::magnitude_bits(read.value);
            const std::uint32_t lower = (1U << lane) - 1U;
            const std::uint32_t ties = __ballot_sync(~0U, exists && size == threshold);
            const bool is_kept =
                size > threshold || (size == threshold && static_cast<std::uint32_t>(__popc(ties & lower)) < ties_left);
            const std::uint32_t keepers = __ballot_sync(~0U, exists && is_kept);
            kept = move_down(read, keepers, kept, target.indices, values);
            ties_left -= min(ties_left, static_cast<std::uint32_t>(__popc(ties)));
        }
        begin = end;
    }
    if (lane == 0) target.info->count = kept;
}

__global__ void __launch_bounds__(kTileThreads) cut_blocks(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    const GroupWork work = group_work(round, blockIdx.x);
    if (work.plan->block_log2 == 0) return;
    for (std::uint32_t tile = threadIdx.x / 32; tile < work.tiles; tile += kWarps) cut_tile(round, work, tile);
}

}  // namespace

KernelHandle block_kernel() noexcept { return &cut_blocks; }

}  // namespace gradsieve::codec::cuda
