// Lists that waited until their tensor was decided are sent: top-k's cut at the k-th magnitude, quantized, the state of
// what is sent settled. The block that makes a chunk whole codes it. Blocks: one per group of tiles, a warp for a tile.
#include "codec/cuda/chunk_code.cuh"
#include "codec/cuda/tile_group.cuh"

namespace gradsieve::codec::cuda {
namespace {

/// Which candidates of a tile are kept.
struct Cut {
    std::uint32_t threshold = 0;     ///< magnitude bits; 0: all are kept
    std::uint32_t ties_before = 0;   ///< in tiles before this one
    std::uint32_t ties_kept = ~0U;   ///< of all
};

__device__ inline Cut find_cut(const GroupWork& work, const TileInfo& info) {
    Cut cut;
    if (!is_cut(work)) return cut;
    cut.threshold = work.state->prefix;
    if (!are_ties_cut(work)) return cut;
    cut.ties_before = work.state->ties_before + info.quotients[0];
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

/// One warp turns a tile's waiting list into what is sent, in its own slot: codes never overtake what is read.
__device__ inline void send_list(const TensorPlan& plan, const TileTarget& target, Cut cut, std::uint32_t count,
                                 const TileScale& tile) {
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t below = (1U << lane) - 1U;
    const auto* values = reinterpret_cast<const float*>(target.values);
    std::uint32_t sent = 0;
    std::uint32_t first = 0;
    std::uint32_t end_before = 0;
    GapSums gaps;
    float value = lane < count ? values[lane] : 0.0F;
    std::uint32_t index = lane < count ? target.indices[lane] : 0U;
    for (std::uint32_t begin = 0; begin < count; begin += 32) {
        const bool exists = begin + lane < count;
        const std::uint32_t next = begin + 32 + lane;
        const float next_value = next < count ? values[next] : 0.0F;
        const std::uint32_t next_index = next < count ? target.indices[next] : 0U;
        const std::uint32_t keepers = find_keepers(cut, element::magnitude_bits(value), exists);
        const float decoded = ((keepers >> lane) & 1U) != 0 ? decoded_of(plan, tile, value) : 0.0F;
        const std::uint32_t senders = __ballot_sync(~0U, decoded != 0.0F);  // everyone has read by now
        const std::uint32_t lower = senders & below;
        const std::uint32_t neighbour = __shfl_sync(~0U, index, lower == 0 ? 0 : 31 - __clz(static_cast<int>(lower)));
        if (((senders >> lane) & 1U) != 0) {
            const std::uint32_t at = sent + __popc(lower);
            target.indices[at] = static_cast<std::uint16_t>(index);
            store_code(plan, tile, decoded, target.values, at);
            target.residual_out[index] = residual_after(plan, value, decoded);
            if (target.variance_out != nullptr) target.variance_out[index] = 0.0F;
            if (at > 0) gaps.add(index - (lower == 0 ? end_before : neighbour + 1U));
        }
        if (senders != 0) {
            if (sent == 0) first = __shfl_sync(~0U, index, __ffs(static_cast<int>(senders)) - 1);
            end_before = __shfl_sync(~0U, index, 31 - __clz(static_cast<int>(senders))) + 1U;
            sent += __popc(senders);
        }
        value = next_value;
        index = next_index;
    }
    if (lane < kRiceSums) target.info->quotients[lane] = 0;
    __syncwarp();
    if (sent > 1) gaps.add_to(target.info->quotients);
    if (lane != 0) return;
    target.info->count = sent;
    target.info->first = first;
    target.info->last = sent > 0 ? end_before - 1U : 0U;
    target.info->scale = tile.written;
}

__device__ inline void send_tile(const EncodeRound& round, const GroupWork& work, const GroupTile& place) {
    const TensorPlan& plan = *work.plan;
    const TileTarget target = tile_target(round, plan, place.tile, place.first);
    const TileInfo info = *target.info;
    Cut cut = find_cut(work, info);
    if (needs_mean(plan)) {
        const std::uint32_t count = cut_list(cut, target, info.count);
        const auto* values = reinterpret_cast<const float*>(target.values);
        const float mean = count == 0 ? 0.0F : mean_magnitude(values, count);
        return send_list(plan, target, Cut{}, count, sign_scale(plan, mean));
    }
    // The largest candidate is kept, unless none of the tile's is: they are cut from below.
    const std::uint32_t largest = plan.is_by_tensor != 0 ? work.state->largest : info.scale;
    send_list(plan, target, cut, info.count, scale_of_largest(plan, largest));
}

/// Whether these were the chunk's last tiles; the whole block learns it.
__device__ inline bool is_chunk_whole(const EncodeRound& round, const GroupWork& work) {
    __shared__ std::uint32_t is_whole;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        const std::uint32_t done = atomicAdd(&round.chunk_states[work.chunk].tiles_done, work.tiles) + work.tiles;
        __threadfence();
        is_whole = done == round.chunks[work.chunk].tiles ? 1U : 0U;
    }
    __syncthreads();
    return is_whole != 0;
}

__global__ void __launch_bounds__(kPassThreads, 2) send_tiles(const __grid_constant__ EncodeRound round) {
    __shared__ CodeShared shared;
    const GroupWork work = group_work(round, blockIdx.x);
    for (std::uint32_t tile = threadIdx.x / 32; tile < work.tiles; tile += kPassWarps)
        send_tile(round, work, group_tile(round, work, tile));
    if (is_chunk_whole(round, work)) code_chunk(round, work.chunk, shared);
}

}  // namespace

KernelHandle send_kernel() noexcept { return &send_tiles; }

}  // namespace gradsieve::codec::cuda
