// What comes after the dense pass: lists that waited until their tensor was decided are sent (top-k's cut at the k-th
// magnitude, quantized, the state of what is sent settled), and chunks are coded. Blocks: one per group of tiles.
#include "codec/cuda/chunk_code.cuh"

namespace gradsieve::codec::cuda {
namespace {

/// Keeps a tile's share of the k largest, in place; returns how many. One warp.
__device__ inline std::uint32_t cut_list(const GroupWork& work, const TileTarget& target) {
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t count = target.info->count;
    auto* values = reinterpret_cast<float*>(target.values);
    const std::uint32_t threshold = work.state->prefix;
    // Ties in tiles before this one came first. If none is cut they are not counted, and none is refused.
    std::uint32_t ties_before = are_ties_cut(work) ? work.state->ties_before + target.info->scale : 0U;
    const std::uint32_t ties_kept = are_ties_cut(work) ? work.state->wanted : ~0U;
    std::uint32_t kept = 0;
    for (std::uint32_t begin = 0; begin < count; begin += 32) {
        const std::uint32_t entry = begin + lane;
        const bool exists = entry < count;
        const float value = exists ? values[entry] : 0.0F;
        const std::uint16_t index = exists ? target.indices[entry] : std::uint16_t{0};
        const std::uint32_t size = element::magnitude_bits(value);
        const std::uint32_t below = (1U << lane) - 1U;
        const std::uint32_t ties = __ballot_sync(~0U, exists && size == threshold);
        const bool is_tie_kept = size == threshold && ties_before + __popc(ties & below) < ties_kept;
        const std::uint32_t keepers = __ballot_sync(~0U, exists && (size > threshold || is_tie_kept));
        __syncwarp();  // everyone has read
        if (((keepers >> lane) & 1U) != 0) {
            const std::uint32_t at = kept + __popc(keepers & below);
            target.indices[at] = index;
            values[at] = value;
        }
        ties_before += __popc(ties);
        kept += __popc(keepers);
        __syncwarp();
    }
    return kept;
}

__global__ void __launch_bounds__(kTileThreads, 4) send_tiles(const __grid_constant__ EncodeRound round) {
    const GroupWork work = group_work(round, blockIdx.x);
    for (std::uint32_t tile = threadIdx.x / 32; tile < work.tiles; tile += kWarps) {
        const GroupTile place = group_tile(round, work, tile);
        const TileTarget target = tile_target(round, *work.plan, place.tile, place.first);
        const std::uint32_t count = is_cut(work) ? cut_list(work, target) : target.info->count;
        const SlotList list{target.indices, reinterpret_cast<const float*>(target.values), count};
        send_list(*work.plan, list, target, work.state->largest);
    }
}

__global__ void __launch_bounds__(kTileThreads, 4) code_groups(const __grid_constant__ EncodeRound round) {
    __shared__ CodeShared shared;
    __shared__ std::uint32_t group;
    if (threadIdx.x == 0) group = atomicAdd(round.group_ticket, 1U);
    __syncthreads();
    code_group(round, group_work(round, group), shared);
}

}  // namespace

KernelHandle send_kernel() noexcept { return &send_tiles; }
KernelHandle code_kernel() noexcept { return &code_groups; }

}  // namespace gradsieve::codec::cuda
