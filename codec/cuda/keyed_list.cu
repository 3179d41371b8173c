// Lists of selectors whose positions follow from a key (codec/random_selection.hpp): a warp draws a tile's positions,
// takes the values there from what the pass before has just written, and sends all of them, zeros as well. Blocks: one
// per group of tiles of one chunk, a warp for a tile.
#include "codec/cuda/block_scan.cuh"
#include "codec/cuda/draw_mask.cuh"
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/encode_sizes.hpp"
#include "codec/cuda/tile_group.cuh"

namespace gradsieve::codec::cuda {
namespace {

/// The positions as the tile's list. Returns how many there are. A whole warp.
__device__ inline std::uint32_t list_mask(const TileMask& mask, std::uint16_t* ret_indices) {
    const unsigned lane = threadIdx.x % 32;
    std::uint32_t count = 0;
    for (std::uint32_t begin = 0; begin < kTileMaskWords; begin += 32) {
        std::uint32_t word = mask.words[begin + lane];
        const std::uint32_t own = __popc(word);
        const std::uint32_t ends = scan_warp(own, Sum{});
        for (std::uint32_t at = count + ends - own; word != 0; word &= word - 1U)
            ret_indices[at++] = static_cast<std::uint16_t>(32 * (begin + lane) + __ffs(static_cast<int>(word)) - 1);
        count += __shfl_sync(~0U, ends, 31);
    }
    __syncwarp();
    return count;
}

/// Where a tile's values lie, and what is coded of them.
struct KeyedValues {
    const float* values;  ///< of the tile's first element
    float factor;         ///< 0: as they are

    __device__ float at(std::uint32_t index) const {
        const float value = values[index];
        return factor > 0.0F ? raised_value(value, factor) : value;
    }
};

/// What receivers decode, and the code that stands for it.
template <Draw kDraw>
__device__ inline float code_value(const TensorPlan& plan, const TileScale& scale, float value, std::uint32_t element,
                                   std::uint32_t& ret_code) {
    if (kDraw != Draw::kNone && plan.draws != 0) {
        const Drawn drawn = draw_at<kDraw>(plan, scale.to_levels, scale.scale, value, element);
        ret_code = drawn.code;
        return element::float_of(drawn.decoded_bits);
    }
    const bool is_sign = is_sign_bit(static_cast<QuantizerKind>(plan.quantizer));
    float decoded = is_sign && value == 0.0F ? scale.scale : decoded_of(plan, scale, value);
    if (decoded == 0.0F) decoded = 0.0F;  // without a sign
    ret_code = code_of(plan, scale, decoded, 0);
    return decoded;
}

template <Draw kDraw>
__device__ inline void send_keyed_tile(const EncodeRound& round, const GroupWork& work, std::uint32_t number,
                                       TileMask& mask) {
    const TensorPlan& plan = *work.plan;
    const ChunkPlan& chunk = round.chunks[work.chunk];
    const GroupTile place = group_tile(round, work, number);
    const std::uint32_t in_chunk = work.first_in_chunk + number;
    draw_tile(chunk.rule, chunk.elements, in_chunk, mask);
    std::uint16_t* indices = round.slot_indices + std::size_t{place.tile} * kTile;
    std::byte* codes = round.slot_values + std::size_t{place.tile} * kTile * round.slot_value_bytes;
    const std::uint32_t count = list_mask(mask, indices);
    KeyedValues values{plan.residual_out + place.first, 0.0F};
    if (plan.raise_factor > 0.0F) {
        const std::byte* means = round.payload + chunk.payload_offset + kMeanHeaderBytes;
        values = {reinterpret_cast<const float*>(means) + in_chunk * kTile, plan.raise_factor};
    }
    const TileScale scale =
        scale_of_list<kDraw>(plan, count, [&](std::uint32_t entry) { return values.at(indices[entry]); });
    const unsigned lane = threadIdx.x % 32;
    std::uint32_t largest = 0;  // integer: code
    for (std::uint32_t entry = lane; entry < count; entry += 32) {
        const std::uint32_t index = indices[entry];
        const float value = values.at(index);
        std::uint32_t code = 0;
        const float decoded = code_value<kDraw>(plan, scale, value, place.first + index, code);
        store_code(plan, code, codes, entry);
        if constexpr (kDraw == Draw::kExponential) largest = max(largest, code & kIntegerMagnitude);
        if (!(plan.raise_factor > 0.0F)) plan.residual_out[place.first + index] = value - decoded;
    }
    TileInfo& info = round.tiles[place.tile];
    GapSums{}.write(info);
    std::uint32_t written = scale.written;
    if constexpr (kDraw == Draw::kExponential)
        if (has_step(static_cast<QuantizerKind>(plan.quantizer))) written = __reduce_max_sync(~0U, largest);
    if (lane != 0) return;
    info.count = count;
    info.first = count > 0 ? indices[0] : 0U;
    info.last = count > 0 ? indices[count - 1] : 0U;
    info.scale = written;
}

template <Draw kDraw>
__global__ void __launch_bounds__(kTileThreads, 4) send_keyed(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    __shared__ TileMask masks[kWarps];
    const GroupWork work = group_work(round, blockIdx.x);
    for (std::uint32_t tile = threadIdx.x / 32; tile < work.tiles; tile += kWarps)
        send_keyed_tile<kDraw>(round, work, tile, masks[threadIdx.x / 32]);
}

}  // namespace

KernelHandle keyed_kernel(Draw draw) noexcept {
    if (draw == Draw::kNone) return &send_keyed<Draw::kNone>;
    return draw == Draw::kRandom ? &send_keyed<Draw::kRandom> : &send_keyed<Draw::kExponential>;
}

}  // namespace gradsieve::codec::cuda
