// Adaptive random sparsification over the lists that wait in their slots: of each block of a tile those elements stay
// that are drawn by their magnitudes (codec/stages/adaptive_random.hpp). Integer sums only. Nothing of other tiles is
// needed, so this is one launch. Blocks: one per group of tiles of one chunk, a warp for a tile.
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/list_cut.cuh"
#include "codec/cuda/tile_group.cuh"
#include "codec/stages/adaptive_random.hpp"

namespace gradsieve::codec::cuda {
namespace {

constexpr std::uint32_t kStretches = kTile / 32;

/// A warp's memory for one block of elements.
struct DrawShared {
    std::uint64_t ends[kStretches];   ///< sum of the weights up to each stretch of 32 candidates
    std::uint32_t drawn[kStretches];  ///< a bit for each candidate
};

/// The sum over this lane and those before it. A whole warp.
__device__ inline std::uint64_t scan_weights(std::uint64_t value) {
    for (unsigned distance = 1; distance < 32; distance *= 2) {
        const std::uint64_t lower = __shfl_up_sync(~0U, value, distance);
        if (threadIdx.x % 32 >= distance) value += lower;
    }
    return value;
}

/// Candidates of one block, entries [begin, end) of the tile's list.
struct DrawBlock {
    const float* values;
    std::uint32_t begin, end;
    std::uint32_t largest;

    [[nodiscard]] __device__ std::uint64_t weight(std::uint32_t stretch) const {
        const std::uint32_t entry = begin + 32 * stretch + threadIdx.x % 32;
        return entry < end ? draw_weight(element::magnitude_bits(values[entry]), largest) : 0U;
    }
    [[nodiscard]] __device__ std::uint32_t stretches() const { return (end - begin + 31) / 32; }
};

/// Marks what `draws` draws hit. A whole warp.
__device__ inline void draw_candidates(const DrawBlock& block, const RandomStream& stream, std::uint64_t first_element,
                                       std::uint32_t draws, DrawShared& shared) {
    const unsigned lane = threadIdx.x % 32;
    std::uint64_t total = 0;
    for (std::uint32_t stretch = 0; stretch < block.stretches(); ++stretch) {
        total += __shfl_sync(~0U, scan_weights(block.weight(stretch)), 31);
        if (lane == 0) {
            shared.ends[stretch] = total;
            shared.drawn[stretch] = 0;
        }
    }
    __syncwarp();
    for (std::uint32_t begin = 0; begin < draws; begin += 32) {
        const std::uint32_t count = min(32U, draws - begin);
        const std::uint64_t own =
            lane < count ? draw_target(draw_word(stream, first_element, begin + lane), total) : 0U;
        std::uint32_t low = 0;  // the first stretch that ends behind it
        for (std::uint32_t high = block.stretches() - 1; low < high;) {
            const std::uint32_t middle = (low + high) / 2;
            if (shared.ends[middle] > own)
                high = middle;
            else
                low = middle + 1;
        }
        for (std::uint32_t draw = 0; draw < count; ++draw) {
            const std::uint32_t stretch = __shfl_sync(~0U, low, draw);
            const std::uint64_t target = __shfl_sync(~0U, own, draw);
            const std::uint64_t before = stretch > 0 ? shared.ends[stretch - 1] : 0U;
            const std::uint32_t behind = __ballot_sync(~0U, before + scan_weights(block.weight(stretch)) > target);
            if (lane == 0) shared.drawn[stretch] |= behind & (0U - behind);
        }
        __syncwarp();
    }
}

/// Leaves of the tile's list what is drawn. One warp.
__device__ inline void draw_tile(const EncodeRound& round, const GroupWork& work, std::uint32_t number,
                                 DrawShared& shared) {
    const TensorPlan& plan = *work.plan;
    const GroupTile place = group_tile(round, work, number);
    const TileTarget target = tile_target(round, plan, place.tile, place.first);
    auto* values = reinterpret_cast<float*>(target.values);
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t count = target.info->count;
    const std::uint32_t size = 1U << plan.draw_log2;
    std::uint32_t kept = 0;
    std::uint32_t largest = 0;
    std::uint32_t begin = 0;
    for (std::uint32_t first = 0; begin < count; first += size) {
        const std::uint32_t end = entries_below(target.indices, begin, count, first + size);
        if (end == begin) continue;
        const bool is_whole = place.elements - first >= size;
        DrawBlock block{values, begin, end, 0};
        block.largest = largest_magnitude(end - begin, [&](std::uint32_t at) { return values[begin + at]; });
        draw_candidates(block, plan.stream, std::uint64_t{plan.first_element} + place.first + first,
                        is_whole ? plan.keep_count : plan.last_keep_count, shared);
        for (std::uint32_t stretch = 0; stretch < block.stretches(); ++stretch) {
            const std::uint32_t entry = begin + 32 * stretch + lane;
            const WaitingEntry read = waiting_entry(target.indices, values, entry, end);
            const std::uint32_t keepers = shared.drawn[stretch];
            const bool is_kept = ((keepers >> lane) & 1U) != 0;
            largest = max(largest, __reduce_max_sync(~0U, is_kept ? element::magnitude_bits(read.value) : 0U));
            kept = move_down(read, keepers, kept, target.indices, values);
        }
        begin = end;
    }
    if (lane != 0) return;
    target.info->count = kept;
    target.info->scale = largest;
}

__global__ void __launch_bounds__(kTileThreads) draw_blocks(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    __shared__ DrawShared shared[kWarps];
    const GroupWork work = group_work(round, blockIdx.x);
    if (work.plan->draw_log2 == 0) return;
    for (std::uint32_t tile = threadIdx.x / 32; tile < work.tiles; tile += kWarps)
        draw_tile(round, work, tile, shared[threadIdx.x / 32]);
}

}  // namespace

KernelHandle adaptive_kernel() noexcept { return &draw_blocks; }

}  // namespace gradsieve::codec::cuda
