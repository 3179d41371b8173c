// The payload of one chunk out of the lists of its tiles: sizes first (chunk_plan.cuh), then every field at its own
// bit, so that no order of threads can show. A block of kCodeThreads for each chunk. A payload is put together in
// shared memory, or where it goes if it is too large. docs/payload-format.md is the authority. Device code only.
#pragma once

#include "codec/cuda/async_copy.cuh"
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
        const std::uint32_t sides = scales_per_tile(layout.quantizer);
        const std::uint32_t width = layout.form == IndexForm::kEvery ? 32U : 16U;
        for (std::uint32_t side = 0; side < sides; ++side) {
            const std::uint32_t rounded = share.info.scale >> (16U * side) & 0xFFFFU;
            or_bits(words, layout.scales_bit + (share.rank * sides + side) * width, rounded << (width - 16U), width);
        }
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

/// Sets a bit for each lane that has one, words that several lanes share once. Bits ascend. A whole warp.
__device__ inline void or_ones(std::uint32_t* words, std::uint32_t bit, bool exists) {
    const unsigned lane = threadIdx.x % 32;
    std::uint32_t left = __ballot_sync(~0U, exists);
    while (left != 0) {
        const unsigned leader = __ffs(static_cast<int>(left)) - 1;
        const std::uint32_t word = __shfl_sync(~0U, bit, leader) / 32;
        const bool is_here = exists && bit / 32 == word;
        const std::uint32_t ones = __reduce_or_sync(~0U, is_here ? 1U << (bit % 32) : 0U);
        if (lane == leader) atomicOr(words + word, ones);
        left &= ~__ballot_sync(~0U, is_here);
    }
}

/// Sets the first `count` lanes' fields, which stand side by side from bit `first` on, words that several lanes share
/// once. A whole warp.
__device__ inline void or_fields(std::uint32_t* words, std::uint32_t first, std::uint32_t value, unsigned width,
                                 std::uint32_t count) {
    constexpr unsigned kWide = 16;  // lanes hardly share words
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t bit = first + lane * width;
    if (width >= kWide) {
        if (lane < count) or_bits(words, bit, value, width);
        return;
    }
    const std::uint32_t first_word = first / 32;
    const std::uint32_t last_word = (first + count * width - 1) / 32;
    const int shift = static_cast<int>(bit - first_word * 32);
    std::uint32_t own = 0;
    for (std::uint32_t word = 0; word <= last_word - first_word; ++word) {
        const int offset = shift - static_cast<int>(word * 32);
        const std::uint32_t upper = offset >= 0 && offset < 32 ? value << offset : 0U;
        const std::uint32_t lower = offset < 0 && offset > -static_cast<int>(width) ? value >> -offset : 0U;
        const std::uint32_t bits = __reduce_or_sync(~0U, lane < count ? upper | lower : 0U);
        own = lane == word ? bits : own;
    }
    if (own != 0) atomicOr(words + first_word + lane, own);
}

/// Fields of the entries of the first `count` lanes. `position`: in the list, of the first lane's; `unary_bit`: of the
/// one that ends the lane's quotient. A whole warp. kIsNear: in shared memory, where lanes may meet in a word.
template <bool kIsNear>
__device__ inline void write_warp(const PayloadLayout& layout, std::uint32_t* words, std::uint32_t position,
                                  std::uint32_t count, const Entry& entry, std::uint32_t gap, std::uint32_t unary_bit) {
    const unsigned lane = threadIdx.x % 32;
    const bool exists = lane < count;
    const auto write_fields = [&](std::uint32_t first, std::uint32_t value, unsigned width) {
        if constexpr (!kIsNear) return or_fields(words, first, value, width, count);
        if (exists) or_bits(words, first + lane * width, value, width);
    };
    const auto write_one = [&](std::uint32_t bit) {
        if constexpr (!kIsNear) return or_ones(words, bit, exists);
        if (exists) or_bits(words, bit, 1, 1);
    };
    switch (layout.form) {
        case IndexForm::kEvery: break;
        case IndexForm::kRice:
        case IndexForm::kEliasFano: {
            const bool is_rice = layout.form == IndexForm::kRice;
            const std::uint32_t number = is_rice ? gap : entry.index;
            if (layout.index_parameter > 0)
                write_fields(layout.indices_bit + position * layout.index_parameter,
                             number & ((1U << layout.index_parameter) - 1U), layout.index_parameter);
            const std::uint32_t upper = (entry.index >> layout.index_parameter) + position + lane;
            write_one(layout.unary_bit + (is_rice ? unary_bit : upper));
            break;
        }
        case IndexForm::kBitmap: write_one(layout.indices_bit + entry.index); break;
        case IndexForm::kRaw32: {
            const std::uint32_t code = layout.value_bits == 0 ? entry.code << kPaperWordCodeShift : 0U;
            write_fields(layout.indices_bit + position * 32U, entry.index | code, 32);
            break;
        }
        case IndexForm::kSubset:
        case IndexForm::kBernoulli: break;
    }
    if (layout.value_bits == 0) return;
    const bool is_integer = has_step(layout.quantizer);
    write_fields(layout.values_bit + position * layout.value_bits,
                 is_integer ? integer_field(entry.code, layout.value_bits) : entry.code, layout.value_bits);
}

/// Each warp writes the entries of its tiles.
template <bool kIsNear>
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
            const std::uint32_t bits = scan_warp(exists ? (gap >> layout.index_parameter) + 1U : 0U, Sum{});
            write_warp<kIsNear>(layout, words, first, min(32U, end - first), entry, gap, unary + bits - 1U);
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
template <bool kIsNear>
__device__ inline void write_payload(const EncodeRound& round, std::uint32_t chunk, const TensorPlan& plan,
                                     const ChunkShare& share, const CodeShared& shared, std::uint32_t* words) {
    if (threadIdx.x == kChunkTiles) {
        write_header(plan, shared.layout, words);
        if (is_keyed(shared.layout.form)) write_key(round.chunks[chunk].rule, shared.layout, words);
    }
    if (threadIdx.x < kChunkTiles) write_scales(plan, share.tile, shared.layout, share.exponent_bit, words);
    write_entries<kIsNear>(round, chunk, plan.value_bytes, shared, words);
}

/// Codes a chunk whose tiles all hold what is sent. A block of kCodeThreads.
__device__ inline void code_chunk(const EncodeRound& round, std::uint32_t chunk, CodeShared& shared) {
    const ChunkPlan& chunk_plan = round.chunks[chunk];
    const TensorPlan& plan = round.tensors[chunk_plan.tensor];
    auto* near = reinterpret_cast<std::uint32_t*>(dynamic_shared());
    if (!plans_chunk()) clear_words(near, kNearPayloadBytes, kChunkTiles);
    const ChunkShare share = plan_chunk(round, chunk, chunk_plan, plan, shared);
    __syncthreads();
    const bool is_first = threadIdx.x == 0;
    const std::uint32_t bytes = shared.layout.bytes;
    const bool is_near = bytes <= kNearPayloadBytes;
    if (bytes > 0 && is_near) write_payload<true>(round, chunk, plan, share, shared, near);
    if (is_first) {
        shared.offset = share.offset;
        round.chunk_results[chunk] = ChunkResult{share.offset, bytes, share.sent};
    }
    __syncthreads();
    if (is_near) return deliver_payload(round, shared.offset, bytes, near);
    auto* far = reinterpret_cast<std::uint32_t*>(round.payload + shared.offset);
    clear_words(far, bytes, 0);
    __syncthreads();
    write_payload<false>(round, chunk, plan, share, shared, far);
}

}  // namespace gradsieve::codec::cuda
