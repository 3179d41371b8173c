// The rotation's arithmetic on a device, the same as codec/rotation.hpp has it: signs, and the stages of sums and
// differences of elements that a thread, a warp or a block has in hand. A warp has vectors of four elements, 128
// consecutive ones at a time, as everywhere. Device code only.
#pragma once

#include "codec/element.hpp"
#include "codec/rotation.hpp"

#include <cuda_runtime_api.h>

namespace gradsieve::codec::cuda {

inline constexpr auto kRotatedTile = static_cast<std::uint32_t>(kTileElements);
/// One over the root of a whole tile's elements.
inline constexpr float kTileRotationScale = 1.0F / 64;
static_assert(kRotatedTile == 64 * 64);

/// The stage of pairs that are kHalf apart among a thread's own numbers.
template <unsigned kHalf, unsigned kCount>
__device__ inline void add_halves(float (&inout_numbers)[kCount]) {
#pragma unroll
    for (unsigned i = 0; i < kCount; ++i) {
        if ((i & kHalf) != 0) continue;
        const float first = inout_numbers[i];
        const float second = inout_numbers[i + kHalf];
        inout_numbers[i] = first + second;
        inout_numbers[i + kHalf] = first - second;
    }
}

/// The stage of pairs that are kLanes lanes apart. A whole warp.
template <unsigned kLanes, unsigned kCount>
__device__ inline void add_lanes(float (&inout_numbers)[kCount]) {
    const std::uint32_t second = (threadIdx.x & kLanes) * (0x80000000U / kLanes);
#pragma unroll
    for (unsigned i = 0; i < kCount; ++i) {
        const float partner = __shfl_xor_sync(~0U, inout_numbers[i], static_cast<int>(kLanes));
        inout_numbers[i] = partner + element::float_of(element::bits_of(inout_numbers[i]) ^ second);
    }
}

/// The stages of pairs of which a warp has both: those of a vector, of its lanes, and of its vectors.
template <unsigned kCount>
__device__ inline void add_in_warp(float (&inout_numbers)[kCount]) {
    add_halves<1>(inout_numbers);
    add_halves<2>(inout_numbers);
    add_lanes<1>(inout_numbers);
    add_lanes<2>(inout_numbers);
    add_lanes<4>(inout_numbers);
    add_lanes<8>(inout_numbers);
    add_lanes<16>(inout_numbers);
    if constexpr (kCount > 4) add_halves<4>(inout_numbers);
    if constexpr (kCount > 8) add_halves<8>(inout_numbers);
}

/// The signs of this lane's elements of kVectors consecutive vectors, bit 4 j + c of element c of the j-th; `counter`:
/// of the first one, which is the chunk's 128 elements of that number. A whole warp.
template <unsigned kVectors>
__device__ inline std::uint32_t draw_signs(PhiloxKey key, std::uint32_t counter) {
    static_assert(8 % kVectors == 0);
    const unsigned lane = threadIdx.x % 32;
    // Each lane draws one vector's words and shows the one that eight lanes need.
    const PhiloxBlock block = selection_words(key, kRotationPurpose, counter + lane % kVectors, 0);
    const std::uint32_t low = lane % 16 < 8 ? block.words[0] : block.words[1];
    const std::uint32_t high = lane % 16 < 8 ? block.words[2] : block.words[3];
    const std::uint32_t own = lane < 16 ? low : high;
    std::uint32_t signs = 0;
#pragma unroll
    for (unsigned j = 0; j < kVectors; ++j) {
        const std::uint32_t word = __shfl_sync(~0U, own, static_cast<int>((lane & ~7U) | j));
        signs |= (word >> (4 * (lane % 8)) & 15U) << (4 * j);
    }
    return signs;
}

/// Signs of draw_signs, of a lane's numbers in the same order.
template <unsigned kCount>
__device__ inline void flip_signs(std::uint32_t signs, float (&inout_numbers)[kCount]) {
#pragma unroll
    for (unsigned i = 0; i < kCount; ++i)
        inout_numbers[i] = element::float_of(element::bits_of(inout_numbers[i]) ^ (signs >> i & 1U) << 31U);
}

/// The order of the block that an element lies in, of a tile of so many: the largest power of four that fits; 0: it
/// does not exist.
__device__ inline std::uint32_t rotation_order(std::uint32_t element, std::uint32_t elements) {
    if (element >= elements) return 0;
    std::uint32_t order = kRotatedTile;
    while ((element & ~(order - 1U)) + order > elements) order /= 4;
    return order;
}
/// One over its root.
__device__ inline float rotation_scale(std::uint32_t order) {
    const auto log2 = static_cast<std::uint32_t>(31 - __clz(static_cast<int>(order | 1U)));
    return element::float_of((127U - log2 / 2) << 23U);
}

/// All stages of a tile that is not whole, in shared memory, where element i lies at `place(i)`; `meet`: where all of
/// the `threads` wait for each other, behind every stage.
template <typename Place, typename Meet>
__device__ inline void add_in_part(float* inout_values, std::uint32_t elements, unsigned threads, Place place,
                                   Meet meet) {
    for (std::uint32_t half = 1; half < kRotatedTile / 4; half *= 2) {
        for (std::uint32_t pair = threadIdx.x; pair < kRotatedTile / 2; pair += threads) {
            const std::uint32_t low = pair & (half - 1U);
            const std::uint32_t at = ((pair - low) << 1U) | low;
            if (rotation_order(at, elements) <= half) continue;
            float& first = inout_values[place(at)];
            float& second = inout_values[place(at + half)];
            const float sum = first + second;
            second = first - second;
            first = sum;
        }
        meet();
    }
}

}  // namespace gradsieve::codec::cuda
