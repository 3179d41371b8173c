// The payload of one chunk out of the lists of its tiles: sizes first (chunk_plan.cuh), then every field at its own
// bit, so that no order of threads can show. A block of kCodeThreads for each chunk. A payload is put together in
// shared memory, or where it goes if it is too large. docs/payload-format.md is the authority. Device code only.
#pragma once

#include "codec/cuda/chunk_plan.cuh"

namespace gradsieve::codec::cuda {

/// Entries that a lane has under way at once: a list is read from the second-level cache.
inline constexpr unsigned kEntriesAhead = 4;
/// Consecutive tiles that a warp writes.
inline constexpr std::uint32_t kWarpTiles = kChunkTiles / (kCodeThreads / 32);

/// Tile scales: pow2's distances from the base exponent, or sign's and dither's numbers. `exponent_bit`: where the
/// tile's distance stands among them. Planning threads.
__device__ inline void write_scales(const TensorPlan& plan, const TileShare& share, const PayloadLayout& layout,
                                    std::uint32_t exponent_bit, std::uint32_t* words) {
    if (share.info.count == 0) return;
    if (has_tile_scales(plan)) {
        if (layout.form == IndexForm::kEvery)
            or_bits(words, layout.scales_bit + share.rank * 32U, share.info.scale << 16U, 32);
        else
            or_bits(words, layout.scales_bit + share.rank * 16U, share.info.scale, 16);
    }
    if (exponent_width(share, layout) == 0) return;
    const std::uint32_t quotient = share.octaves >> layout.exponent_parameter;
    const std::uint32_t remainder = share.octaves & ((1U << layout.exponent_parameter) - 1U);
    or_bits(words, layout.scales_bit + exponent_bit + quotient, (remainder << 1U) | 1U, 1U + layout.exponent_parameter);
}

/// One entry of a chunk's list.
struct Entry {
    std::uint32_t index;  ///< in the chunk
    std::uint32_t code;
};

/// Entries of the chunk's list from `position` on, 32 apart, which lie in the warp's tiles, `warp_tile` and the next
/// ones; the last one where there are no more.
__device__ inline void load_entries(const EncodeRound& round, std::uint32_t first_tile, const std::uint32_t* begins,
                                    std::uint32_t warp_tile, std::uint32_t position, unsigned value_bytes,
                                    Entry (&ret_entries)[kEntriesAhead]) {
    const std::uint32_t last = begins[warp_tile + kWarpTiles] - 1U;
#pragma unroll
    for (unsigned ahead = 0; ahead < kEntriesAhead; ++ahead) {
        const std::uint32_t at = min(position + ahead * 32, last);
        std::uint32_t tile = warp_tile;  // the last that begins at or before the entry
#pragma unroll
        for (unsigned step = kWarpTiles / 2; step > 0; step /= 2)
            if (begins[tile + step] <= at) tile += step;
        ret_entries[ahead].index = tile;
        ret_entries[ahead].code = at - begins[tile];
    }
#pragma unroll
    for (unsigned ahead = 0; ahead < kEntriesAhead; ++ahead) {
        const std::uint32_t tile = ret_entries[ahead].index;
        const std::uint32_t at = ret_entries[ahead].code;
        const std::byte* values = round.slot_values + std::size_t{first_tile + tile} * kTile * round.slot_value_bytes;
        ret_entries[ahead].index = tile * kTile + round.slot_indices[std::size_t{first_tile + tile} * kTile + at];
        if (value_bytes == 1)
            ret_entries[ahead].code = reinterpret_cast<const std::uint8_t*>(values)[at];
        else if (value_bytes == 2)
            ret_entries[ahead].code = reinterpret_cast<const std::uint16_t*>(values)[at];
        else
            ret_entries[ahead].code = reinterpret_cast<const std::uint32_t*>(values)[at];
    }
}

/// Sets bits in zeroed memory, of which other lanes and warps may set others.
__device__ inline void or_word(std::uint32_t* word, std::uint32_t bits) {
    if (bits != 0) atomicOr(word, bits);
}

/// Sets the first `count` lanes' fields, which stand side by side from bit `first` on. Lanes that share a word put
/// their fields together first, since atomics on one word wait for each other. A whole warp.
__device__ inline void or_fields(std::uint32_t* words, std::uint32_t first, std::uint32_t value, unsigned width,
                                 std::uint32_t count) {
    const unsigned lane = threadIdx.x % 32;
    std::uint32_t packed = lane < count ? value : 0U;
    unsigned lanes = 1;
    for (unsigned bits = width; bits <= 16 && lanes < 32; bits *= 2) {
        packed |= __shfl_down_sync(~0U, packed, lanes) << bits;
        lanes *= 2;
    }
    if (lane % lanes != 0) return;
    const std::uint32_t bit = first + lane * width;
    or_word(words + bit / 32, packed << (bit % 32));
    if (bit % 32 != 0) or_word(words + bit / 32 + 1, packed >> (32 - bit % 32));
}

/// Sets a bit for each of the first `count` lanes; bits ascend. A whole warp.
__device__ inline void or_ones(std::uint32_t* words, std::uint32_t bit, std::uint32_t count) {
    constexpr std::uint32_t kFewWords = 6;
    const unsigned lane = threadIdx.x % 32;
    const bool exists = lane < count;
    const std::uint32_t first_word = __shfl_sync(~0U, bit, 0) / 32;
    const std::uint32_t word_count = __shfl_sync(~0U, bit, static_cast<int>(count) - 1) / 32 - first_word + 1;
    const std::uint32_t one = 1U << (bit % 32);
    if (word_count > kFewWords) {  // lanes hardly share words
        if (exists) atomicOr(words + bit / 32, one);
        return;
    }
    const std::uint32_t own_word = bit / 32 - first_word;
    std::uint32_t own = 0;
    for (std::uint32_t word = 0; word < word_count; ++word) {
        const std::uint32_t ones = __reduce_or_sync(~0U, exists && own_word == word ? one : 0U);
        own = lane == word ? ones : own;
    }
    or_word(words + first_word + lane, own);
}

/// Fields of the entries of the first `count` lanes. `position`: in the list, of the first lane's; `unary_bit`: of the
/// one that ends the lane's quotient. A whole warp.
__device__ inline void write_warp(const PayloadLayout& layout, std::uint32_t* words, std::uint32_t position,
                                  std::uint32_t count, const Entry& entry, std::uint32_t gap, std::uint32_t unary_bit) {
    const auto write_fields = [&](std::uint32_t first, std::uint32_t value, unsigned width) {
        or_fields(words, first + position * width, value, width, count);
    };
    switch (layout.form) {
        case IndexForm::kEvery: break;
        case IndexForm::kRice:
            if (layout.rice_parameter > 0)
                write_fields(layout.indices_bit, gap & ((1U << layout.rice_parameter) - 1U), layout.rice_parameter);
            or_ones(words, layout.unary_bit + unary_bit, count);
            break;
        case IndexForm::kBitmap: or_ones(words, layout.indices_bit + entry.index, count); break;
        case IndexForm::kRaw32: {
            const std::uint32_t code = layout.value_bits == 0 ? entry.code << kPaperWordCodeShift : 0U;
            write_fields(layout.indices_bit, entry.index | code, 32);
            break;
        }
    }
    if (layout.value_bits > 0) write_fields(layout.values_bit, entry.code, layout.value_bits);
}

/// Each warp writes the entries of its tiles.
__device__ inline void write_entries(const EncodeRound& round, std::uint32_t chunk, std::uint32_t value_bytes,
                                     const CodeShared& shared, std::uint32_t* words) {
    const unsigned lane = threadIdx.x % 32;
    const PayloadLayout layout = shared.layout;
    const std::uint32_t first_tile = round.first_tiles[chunk];
    const std::uint32_t warp_tile = threadIdx.x / 32 * kWarpTiles;
    const std::uint32_t end = shared.begins[warp_tile + kWarpTiles];
    std::uint32_t unary = shared.unary[warp_tile];
    std::uint32_t end_before = shared.ends[warp_tile];
    for (std::uint32_t begin = shared.begins[warp_tile]; begin < end; begin += 32 * kEntriesAhead) {
        Entry entries[kEntriesAhead];
        load_entries(round, first_tile, shared.begins, warp_tile, begin + lane, value_bytes, entries);
#pragma unroll
        for (unsigned ahead = 0; ahead < kEntriesAhead; ++ahead) {
            const std::uint32_t first = begin + ahead * 32;
            if (first >= end) break;
            const bool exists = first + lane < end;
            const Entry& entry = entries[ahead];
            const std::uint32_t previous = __shfl_up_sync(~0U, entry.index, 1) + 1U;
            const std::uint32_t gap = entry.index - (lane == 0 ? end_before : previous);
            const std::uint32_t bits = scan_warp(exists ? (gap >> layout.rice_parameter) + 1U : 0U, Sum{});
            write_warp(layout, words, first, min(32U, end - first), entry, gap, unary + bits - 1U);
            unary += __shfl_sync(~0U, bits, 31);
            end_before = __shfl_sync(~0U, entry.index, 31) + 1U;
        }
    }
}

/// Clears the block's threads' share, those from `first_thread` on.
__device__ inline void clear_words(std::uint32_t* words, std::uint32_t bytes, std::uint32_t first_thread) {
    const std::uint32_t vector_count = (bytes + kPayloadAlignment - 1) / kPayloadAlignment;
    for (std::uint32_t at = threadIdx.x - first_thread; at < vector_count; at += kCodeThreads - first_thread)
        reinterpret_cast<uint4*>(words)[at] = make_uint4(0, 0, 0, 0);
}

/// Copies a payload from shared memory to where it goes.
__device__ inline void deliver_payload(const EncodeRound& round, ByteCount offset, std::uint32_t bytes,
                                       const std::uint32_t* from) {
    const std::uint32_t vector_count = (bytes + kPayloadAlignment - 1) / kPayloadAlignment;
    auto* payload = reinterpret_cast<uint4*>(round.payload + offset);
    for (std::uint32_t at = threadIdx.x; at < vector_count; at += kCodeThreads)
        payload[at] = reinterpret_cast<const uint4*>(from)[at];
}

/// All fields of the payload, in cleared memory.
__device__ inline void write_payload(const EncodeRound& round, std::uint32_t chunk, const TensorPlan& plan,
                                     const ChunkShare& share, const CodeShared& shared, std::uint32_t* words) {
    if (threadIdx.x == kChunkTiles) write_header(plan, shared.layout, words);
    if (threadIdx.x < kChunkTiles) write_scales(plan, share.tile, shared.layout, share.exponent_bit, words);
    write_entries(round, chunk, plan.value_bytes, shared, words);
}

/// Codes a chunk whose tiles all hold what is sent. A block of kCodeThreads.
__device__ inline void code_chunk(const EncodeRound& round, std::uint32_t chunk, CodeShared& shared) {
    const ChunkPlan& chunk_plan = round.chunks[chunk];
    const TensorPlan& plan = round.tensors[chunk_plan.tensor];
    auto* near = reinterpret_cast<std::uint32_t*>(dynamic_shared());
    ChunkShare share;
    if (threadIdx.x < kChunkTiles)
        share = plan_chunk(round, chunk, chunk_plan, plan, shared);
    else
        clear_words(near, kNearPayloadBytes, kChunkTiles);
    __syncthreads();
    const bool is_first = threadIdx.x == 0;
    const std::uint32_t bytes = shared.layout.bytes;
    const bool is_near = bytes <= kNearPayloadBytes;
    if (bytes > 0 && is_near) write_payload(round, chunk, plan, share, shared, near);
    if (is_first) {
        shared.offset = share.offset;
        round.chunk_results[chunk] = ChunkResult{share.offset, bytes, share.sent};
    }
    __syncthreads();
    if (is_near) return deliver_payload(round, shared.offset, bytes, near);
    auto* far = reinterpret_cast<std::uint32_t*>(round.payload + shared.offset);
    clear_words(far, bytes, 0);
    __syncthreads();
    write_payload(round, chunk, plan, share, shared, far);
}

}  // namespace gradsieve::codec::cuda
