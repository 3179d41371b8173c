// A warp draws which elements of a tile a random selector sends, the same as the CPU does (codec/random_mask.cpp).
// Device code only.
#pragma once

#include "codec/random_selection.hpp"

#include <cuda_runtime_api.h>

namespace gradsieve::codec::cuda {

/// Draws that a warp has under way: four of a counter for each lane.
inline constexpr std::uint32_t kDrawsAhead = 4 * 32;

/// A warp's memory for one tile.
struct TileMask {
    std::uint32_t words[kTileMaskWords];  ///< bit i % 32 of word i / 32: element i is sent
    std::uint32_t draws[kDrawsAhead];
};

/// Floyd's subset: draws that follow from the key alone side by side, then one after the other put in.
__device__ inline void draw_tile_subset(const SelectionRule& rule, std::uint32_t tile, std::uint32_t elements,
                                        std::uint32_t draws, TileMask& inout_mask) {
    const unsigned lane = threadIdx.x % 32;
    for (std::uint32_t begin = 0; begin < draws; begin += kDrawsAhead) {
        const std::uint32_t number = tile * kTileCounters + begin / 4 + lane;
        if (begin + 4 * lane < draws) {
            const PhiloxBlock block = selection_words(rule.key, kDrawPurpose, number, 0);
#pragma unroll
            for (std::uint32_t place = 0; place < 4; ++place) {
                const std::uint32_t draw = begin + 4 * lane + place;
                if (draw >= draws) break;
                inout_mask.draws[4 * lane + place] = selection_number(rule.key, kDrawPurpose, number, place,
                                                                      elements - draws + draw + 1, block.words[place]);
            }
        }
        __syncwarp();
        const std::uint32_t count = min(kDrawsAhead, draws - begin);
        for (std::uint32_t draw = 0; lane == 0 && draw < count; ++draw) {
            std::uint32_t drawn = inout_mask.draws[draw];
            if ((inout_mask.words[drawn / 32] >> (drawn % 32) & 1U) != 0) drawn = elements - draws + begin + draw;
            inout_mask.words[drawn / 32] |= 1U << (drawn % 32);
        }
        __syncwarp();
    }
}

/// Each element by itself: a lane draws four neighbours, eight lanes make a word.
__device__ inline void draw_tile_kept(PhiloxKey key, std::uint32_t first, std::uint32_t limit, TileMask& ret_mask) {
    const unsigned lane = threadIdx.x % 32;
    for (std::uint32_t begin = 0; begin < kTileMaskWords; begin += 4) {
        const PhiloxBlock block = selection_words(key, kKeepPurpose, (first + 32 * begin) / 4 + lane, 0);
        std::uint32_t word = 0;
#pragma unroll
        for (std::uint32_t place = 0; place < 4; ++place)
            word |= (block.words[place] <= limit ? 1U : 0U) << (4 * (lane % 8) + place);
        for (unsigned distance = 4; distance > 0; distance /= 2) word |= __shfl_xor_sync(~0U, word, distance);
        if (lane % 8 == 0) ret_mask.words[begin + lane / 8] = word;
    }
    __syncwarp();
}

/// Clears what lies behind a tile's elements.
__device__ inline void cut_mask(std::uint32_t elements, TileMask& inout_mask) {
    for (std::uint32_t word = threadIdx.x % 32; word < kTileMaskWords; word += 32) {
        const std::uint32_t begin = 32 * word;
        if (begin >= elements)
            inout_mask.words[word] = 0;
        else if (elements - begin < 32)
            inout_mask.words[word] &= (1U << (elements - begin)) - 1U;
    }
    __syncwarp();
}

/// Tile `tile` of a chunk of `chunk_elements`. A whole warp.
__device__ inline void draw_tile(const SelectionRule& rule, std::uint32_t chunk_elements, std::uint32_t tile,
                                 TileMask& ret_mask) {
    constexpr auto kElements = static_cast<std::uint32_t>(kTileElements);
    const std::uint32_t first = tile * kElements;
    const std::uint32_t elements = min(kElements, chunk_elements - first);
    if (rule.is_subset == 0) {
        const std::uint32_t tiles = (chunk_elements + kElements - 1) / kElements;
        draw_tile_kept(rule.key, first, tile_limit(rule, tile, tiles), ret_mask);
        return cut_mask(elements, ret_mask);
    }
    for (std::uint32_t word = threadIdx.x % 32; word < kTileMaskWords; word += 32) ret_mask.words[word] = 0;
    __syncwarp();
    const std::uint32_t share =
        tile_share(rule.count, chunk_offset(rule, chunk_elements), chunk_elements, first, first + elements);
    const std::uint32_t draws = drawn_share(share, elements);
    draw_tile_subset(rule, tile, elements, draws, ret_mask);
    if (draws == share) return;
    for (std::uint32_t word = threadIdx.x % 32; word < kTileMaskWords; word += 32)
        ret_mask.words[word] = ~ret_mask.words[word];
    __syncwarp();
    cut_mask(elements, ret_mask);
}

}  // namespace gradsieve::codec::cuda
