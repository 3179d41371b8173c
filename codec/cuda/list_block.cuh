// What the parts of the list kernel share: one block of threads reads one list with this shared memory.
#pragma once

#include "codec/cuda/bit_section.cuh"
#include "codec/cuda/decode_tables.hpp"

namespace gradsieve::codec::cuda {

inline constexpr unsigned kListThreads = 512;
inline constexpr unsigned kListWarps = kListThreads / 32;
inline constexpr std::uint32_t kUnitsPerThread = kUnitsPerChunk / kListThreads;
static_assert(kUnitsPerChunk % kListThreads == 0 && kListThreads > kMaximumTiles);
/// Tile exponents are read in windows of as many bits as they likely take, but more than any code takes (261); what a
/// window does not hold whole is read with the next one.
inline constexpr std::uint32_t kWindowBits = 4096;
inline constexpr std::uint32_t kLeastWindowBits = 512;
inline constexpr std::uint32_t kLikelyZeros = 3;
inline constexpr std::uint16_t kOutside = 0xFFFF;  ///< of a window
inline constexpr std::uint32_t kLongestCodeZeros = 254;

struct ListShared {
    std::uint32_t warp_counts[kListWarps];
    std::uint64_t warp_sums[kListWarps];
    std::uint32_t used_bits;
    std::uint32_t starts[kUnitsPerChunk + 1];
    std::uint32_t rank[kMaximumTiles];        ///< tiles before this one that hold elements
    std::uint32_t tile_scale[kMaximumTiles];  ///< by rank: pow2 biased exponent, sign fp32 bits of the scale
    std::uint16_t next[kWindowBits];          ///< where a code that starts here ends
    std::uint16_t code_at[kMaximumTiles + 1];
};

/// Sum over the threads before this one; `ret_total` over all. Every thread of the block.
template <typename Number>
__device__ Number scan_block(Number value, Number* warp_sums, Number& ret_total) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    Number sum = value;
    for (unsigned distance = 1; distance < 32; distance *= 2) {
        const Number lower = __shfl_up_sync(~0U, sum, distance);
        if (lane >= distance) sum += lower;
    }
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    Number before = 0;
    Number total = 0;
    for (unsigned other = 0; other < kListWarps; ++other) {
        const Number of_warp = warp_sums[other];
        before += other < warp ? of_warp : 0;
        total += of_warp;
    }
    __syncthreads();
    ret_total = total;
    return before + sum - value;
}

__device__ inline std::uint32_t units_in(const DevicePayload& payload) {
    return (payload.chunk_elements + kUnitElements - 1) / kUnitElements;
}

__device__ inline std::uint32_t bytes_of(std::uint32_t bits) { return bits / 8 + (bits % 8 != 0 ? 1 : 0); }

/// Whether the bits behind the first `used_bits` of a section's last byte are clear.
__device__ inline bool has_clear_padding(const BitSection& section, std::uint32_t used_bits) {
    return used_bits % 8 == 0 || section.read(used_bits, 8 - used_bits % 8) == 0;
}

}  // namespace gradsieve::codec::cuda
