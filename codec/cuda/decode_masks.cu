// Before lists are read: which elements those hold whose positions follow from a key, as bitmaps behind the payloads.
// Warps take tiles in turn, some blocks for each list.
#include "codec/cuda/decode_tables.hpp"
#include "codec/cuda/draw_mask.cuh"
#include "codec/cuda/launch.hpp"

namespace gradsieve::codec::cuda {
namespace {

constexpr unsigned kMaskThreads = 256;
constexpr unsigned kMaskWarps = kMaskThreads / 32;
constexpr unsigned kMaskBlocks = 16;  ///< of one list

__global__ void __launch_bounds__(kMaskThreads) draw_masks(DecodeTables tables, std::uint32_t first_list) {
    __shared__ TileMask masks[kMaskWarps];
    const DevicePayload& payload = tables.payloads[tables.lists[first_list + blockIdx.x / kMaskBlocks]];
    if (!is_keyed(payload.index_form)) return;
    auto* bits = reinterpret_cast<std::uint32_t*>(tables.mask_bytes + payload.bits_offset);
    TileMask& mask = masks[threadIdx.x / 32];
    const std::uint32_t tiles = (payload.chunk_elements + static_cast<std::uint32_t>(kTileElements) - 1) /
                                static_cast<std::uint32_t>(kTileElements);
    for (std::uint32_t tile = blockIdx.x % kMaskBlocks * kMaskWarps + threadIdx.x / 32; tile < tiles;
         tile += kMaskBlocks * kMaskWarps) {
        draw_tile(payload.rule, payload.chunk_elements, tile, mask);
        for (std::uint32_t word = threadIdx.x % 32; word < kTileMaskWords; word += 32)
            bits[tile * kTileMaskWords + word] = mask.words[word];
        __syncwarp();
    }
}

}  // namespace

int launch_draw_masks(const DecodeTables& tables, const DecodeRound& round, void* stream) {
    return launch(&draw_masks, {round.lists * kMaskBlocks, kMaskThreads}, static_cast<cudaStream_t>(stream), tables,
                  round.first_list);
}

}  // namespace gradsieve::codec::cuda
