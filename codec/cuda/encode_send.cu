// Lists that waited until their tensor was decided are sent: top-k's cut at the k-th magnitude, quantized, the state of
// what is sent settled. Blocks: one per group of tiles, a warp for a tile.
#include "codec/cuda/block_scan.cuh"
#include "codec/cuda/tile_group.cuh"

namespace gradsieve::codec::cuda {
namespace {

/// Which candidates of a tile are kept.
struct Cut {
    std::uint32_t threshold = 0;    ///< magnitude bits; 0: all are kept
    std::uint32_t ties_before = 0;  ///< in tiles before this one
    std::uint32_t ties_kept = ~0U;  ///< of all
};

__device__ inline Cut find_cut(const GroupWork& work, std::uint32_t ties_before) {
    Cut cut;
    if (!is_cut(work)) return cut;
    cut.threshold = work.state->prefix;
    if (!are_ties_cut(work)) return cut;
    cut.ties_before = ties_before;
    cut.ties_kept = work.state->wanted;
    return cut;
}

/// Lanes whose candidate is kept, the candidates coming in the order of the tile. One warp.
__device__ inline std::uint32_t find_keepers(Cut& inout_cut, std::uint32_t size, bool exists) {
    const std::uint32_t below = (1U << (threadIdx.x % 32)) - 1U;
    const std::uint32_t ties = __ballot_sync(~0U, exists && size == inout_cut.threshold);
    const bool is_tie_kept =
        size == inout_cut.threshold && inout_cut.ties_before + __popc(ties & below) < inout_cut.ties_kept;
    inout_cut.ties_before += __popc(ties);
    return __ballot_sync(~0U, exists && (size > inout_cut.threshold || is_tie_kept));
}

/// Leaves only those that are kept in the slot; returns how many. One warp.
__device__ inline std::uint32_t cut_list(Cut cut, const TileTarget& target, std::uint32_t count) {
    const unsigned lane = threadIdx.x % 32;
    auto* values = reinterpret_cast<float*>(target.values);
    std::uint32_t kept = 0;
    for (std::uint32_t begin = 0; begin < count; begin += 32) {
        const std::uint32_t entry = begin + lane;
        const bool exists = entry < count;
        const float value = exists ? values[entry] : 0.0F;
        const std::uint16_t index = exists ? target.indices[entry] : std::uint16_t{0};
        const std::uint32_t keepers = find_keepers(cut, element::magnitude_bits(value), exists);
        if (((keepers >> lane) & 1U) != 0) {
            const std::uint32_t at = kept + __popc(keepers & ((1U << lane) - 1U));
            target.indices[at] = index;
            values[at] = value;
        }
        kept += __popc(keepers);
        __syncwarp();
    }
    return kept;
}

template <Draw kDraw>
__device__ inline void send_tile(const EncodeRound& round, const GroupWork& work, std::uint32_t number,
                                 std::uint32_t ties_before) {
    const TensorPlan& plan = *work.plan;
    const GroupTile place = group_tile(round, work, number);
    const TileTarget target = tile_target(round, plan, place.tile, place.first);
    const auto* values = reinterpret_cast<const float*>(target.values);
    const std::uint32_t count = target.info->count;
    const std::uint32_t tile_largest = target.info->scale;
    Cut cut = find_cut(work, ties_before);
    const auto entry_of = [&](std::uint32_t entry) { return ListEntry{target.indices[entry], values[entry]}; };
    if (needs_list(plan)) {
        const std::uint32_t kept = cut_list(cut, target, count);
        const TileScale scale =
            scale_of_list<kDraw>(plan, kept, [values](std::uint32_t entry) { return values[entry]; });
        return send_list<kDraw>(plan, target, scale, kept, entry_of,
                                [](const ListEntry&, bool exists) { return __ballot_sync(~0U, exists); });
    }
    // The tile's largest is kept, unless nothing of the tile is: cuts come from below.
    const std::uint32_t largest = plan.is_by_tensor != 0 ? work.state->largest : tile_largest;
    send_list<kDraw>(plan, target, scale_of_largest(plan, largest), count, entry_of,
                     [&cut](const ListEntry& entry, bool exists) {
                         return find_keepers(cut, element::magnitude_bits(entry.value), exists);
                     });
}

/// Candidates equal to the k-th that stand before each tile of the group, the tile of this lane's number. A whole warp.
__device__ inline std::uint32_t count_ties_before(const EncodeRound& round, const GroupWork& work) {
    const unsigned lane = threadIdx.x % 32;
    const TileInfo* infos = round.tiles + group_tile(round, work, 0).tile;
    const std::uint32_t own = lane < work.tiles ? infos[lane].quotients[0] : 0U;
    return work.state->ties_before + infos[0].quotients[1] + scan_warp(own, Sum{}) - own;
}

template <Draw kDraw>
__global__ void __launch_bounds__(kTileThreads, 4) send_tiles(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    const GroupWork work = group_work(round, blockIdx.x);
    const std::uint32_t ties_before = are_ties_cut(work) ? count_ties_before(round, work) : 0U;
    __syncthreads();  // everyone has read
    for (std::uint32_t tile = threadIdx.x / 32; tile < work.tiles; tile += kWarps)
        send_tile<kDraw>(round, work, tile, __shfl_sync(~0U, ties_before, tile));
}

}  // namespace

KernelHandle send_kernel(Draw draw) noexcept {
    if (draw == Draw::kNone) return &send_tiles<Draw::kNone>;
    return draw == Draw::kRandom ? &send_tiles<Draw::kRandom> : &send_tiles<Draw::kExponential>;
}

}  // namespace gradsieve::codec::cuda
