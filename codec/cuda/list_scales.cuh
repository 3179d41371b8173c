// The section between indices and values of a list payload, read by one block: tile exponents in Rice code, or tile
// scales. False answers say that the payload is corrupt, and are the same in every thread.
#pragma once

#include "codec/cuda/list_block.cuh"
#include "codec/stages/dither.hpp"

namespace gradsieve::codec::cuda {

/// Each tile's rank among those with elements. Returns how many those are.
__device__ inline std::uint32_t rank_tiles(ListShared& shared) {
    const std::uint32_t tile = threadIdx.x;
    const bool is_present =
        tile < kMaximumTiles && shared.starts[tile * kUnitsPerTile] < shared.starts[(tile + 1) * kUnitsPerTile];
    std::uint32_t tiles = 0;
    const std::uint32_t rank = scan_block(is_present ? 1U : 0U, shared.warp_counts, tiles);
    if (tile < kMaximumTiles) shared.rank[tile] = rank;
    __syncthreads();
    return tiles;
}

/// Where the exponent code that starts at `bit` of a window ends, in the window.
__device__ inline std::uint16_t code_end(const BitSection& section, std::uint32_t window, std::uint32_t window_bits,
                                         std::uint32_t bit, unsigned parameter) {
    std::uint32_t zeros = 0;
    while (bit + zeros < window_bits && zeros <= kLongestCodeZeros) {
        const std::uint32_t word = section.word_at(window + bit + zeros);
        if (word == 0) {
            zeros += 32;
            continue;
        }
        zeros += __ffs(static_cast<int>(word)) - 1;
        const std::uint32_t end = bit + zeros + 1 + parameter;
        return end <= window_bits ? static_cast<std::uint16_t>(end) : kOutside;
    }
    return kOutside;
}

/// code_at[i] = start of the i-th code from the window's start, i <= `codes`, by doubling the length of the jumps.
__device__ inline void follow_codes(ListShared& shared, std::uint32_t window_bits, std::uint32_t codes) {
    constexpr std::uint32_t kBitsPerThread = kWindowBits / kListThreads;
    const std::uint32_t parts = (window_bits + kListThreads - 1) / kListThreads;
    const auto jump = [&](std::uint16_t from) { return from < window_bits ? shared.next[from] : kOutside; };
    if (threadIdx.x == 0) shared.code_at[0] = 0;
    __syncthreads();
    for (std::uint32_t known = 1; known <= codes; known *= 2) {
        const std::uint32_t code = known + threadIdx.x;
        if (threadIdx.x < known && code <= codes) shared.code_at[code] = jump(shared.code_at[threadIdx.x]);
        std::uint16_t doubled[kBitsPerThread];
#pragma unroll
        for (std::uint32_t part = 0; part < kBitsPerThread; ++part) {
            const std::uint32_t bit = part * kListThreads + threadIdx.x;
            doubled[part] = part < parts && bit < window_bits ? jump(shared.next[bit]) : kOutside;
        }
        __syncthreads();
#pragma unroll
        for (std::uint32_t part = 0; part < kBitsPerThread; ++part)
            if (part < parts) shared.next[part * kListThreads + threadIdx.x] = doubled[part];
        __syncthreads();
    }
}

/// The tile exponents, by rank. False if corrupt.
__device__ inline bool read_exponents(const DevicePayload& payload, const BitSection& section,
                                      std::uint32_t available_bytes, std::uint32_t tiles, ListShared& shared,
                                      std::uint32_t& ret_used_bytes) {
    const unsigned parameter = payload.exponent_parameter;
    std::uint32_t window = 0;
    std::uint32_t done = 0;
    while (done < tiles) {
        const std::uint32_t likely = max(kLeastWindowBits, (tiles - done) * (parameter + kLikelyZeros + 1));
        const std::uint32_t bits = min(min(kWindowBits, likely), 8 * available_bytes - window);
        for (std::uint32_t bit = threadIdx.x; bit < bits; bit += kListThreads)
            shared.next[bit] = code_end(section, window, bits, bit, parameter);
        __syncthreads();
        follow_codes(shared, bits, tiles - done);
        const std::uint32_t code = threadIdx.x;
        const bool is_whole = code < tiles - done && shared.code_at[code + 1] != kOutside;
        bool is_bad = false;
        if (is_whole) {
            const std::uint32_t end = shared.code_at[code + 1];
            const std::uint32_t quotient = end - shared.code_at[code] - 1 - parameter;
            const std::uint32_t octaves = (quotient << parameter) + section.read(window + end - parameter, parameter);
            is_bad = octaves >= payload.base_exponent;
            shared.tile_scale[done + code] = payload.base_exponent - octaves;
        }
        const auto whole = static_cast<std::uint32_t>(__syncthreads_count(is_whole));
        if (__syncthreads_or(is_bad) || whole == 0) return false;
        window += shared.code_at[whole];
        done += whole;
        __syncthreads();
    }
    ret_used_bytes = bytes_of(window);
    return has_clear_padding(section, window);
}

/// Two bf16 scales of each tile, by rank, as they lie: the second one above. False if corrupt.
__device__ inline bool read_scale_pairs(const BitSection& section, std::uint32_t tiles, ListShared& shared) {
    bool is_bad = false;
    if (threadIdx.x < tiles) {
        const std::uint32_t both = section.word_at(32 * threadIdx.x);
        constexpr std::uint32_t kFinite = 0x7F80U;  // no bf16 number from here on is finite and not negative
        is_bad = (both & 0xFFFFU) >= kFinite || both >> 16U >= kFinite;
        shared.tile_scale[threadIdx.x] = both;
    }
    return !__syncthreads_or(is_bad);
}

/// bf16 tile scales, by rank, none above `largest`. False if corrupt.
__device__ inline bool read_scales(const BitSection& section, std::uint32_t tiles, float largest, ListShared& shared) {
    bool is_bad = false;
    if (threadIdx.x < tiles) {
        const std::uint32_t bits = section.read(16 * threadIdx.x, 16) << 16U;
        is_bad = bits > __float_as_uint(largest);  // too large, infinite, not a number, or negative
        shared.tile_scale[threadIdx.x] = bits;
    }
    return !__syncthreads_or(is_bad);
}

/// The section between indices and values; `inout_used_bytes` of the body are read so far. False if corrupt.
template <bool kMayBeExponential>
__device__ inline bool read_tile_scales(const DevicePayload& payload, const std::byte* body, std::uint32_t tiles,
                                        ListShared& shared, std::uint32_t& inout_used_bytes) {
    const std::uint32_t available = payload.body_bytes - inout_used_bytes;
    const BitSection section(body + inout_used_bytes);
    if (has_exponents(payload.quantizer)) {
        if (payload.exponent_parameter == kNoTileExponents) {
            if (threadIdx.x < kMaximumTiles) shared.tile_scale[threadIdx.x] = payload.base_exponent;
            __syncthreads();
            return true;
        }
        std::uint32_t used = 0;
        if (!read_exponents(payload, section, available, tiles, shared, used)) return false;
        inout_used_bytes += used;
        return true;
    }
    if (scales_per_tile(payload.quantizer) == 2) {
        if (available < 4 * tiles || !read_scale_pairs(section, tiles, shared)) return false;
        inout_used_bytes += 4 * tiles;
        return true;
    }
    if (!has_tile_scales(payload.quantizer)) return true;
    const bool is_dither = is_dithered(payload.quantizer) && !has_base(payload.quantizer);
    if (payload.has_chunk_scale) {
        if (threadIdx.x < kMaximumTiles) shared.tile_scale[threadIdx.x] = __float_as_uint(payload.chunk_scale);
        __syncthreads();
        return true;
    }
    const float largest = is_dither ? largest_dither_scale(payload.code_bits) : FLT_MAX;
    if (available < 2 * tiles || !read_scales(section, tiles, largest, shared)) return false;
    inout_used_bytes += 2 * tiles;
    return true;
}

}  // namespace gradsieve::codec::cuda
