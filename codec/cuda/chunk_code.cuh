// The payload of one chunk out of the lists of its tiles: sizes first, then every field at its own bit, so that no
// order of threads can show. A block of kCodeThreads for each chunk, whose first threads have a tile each. A payload
// is put together in shared memory, or where it goes if it is too large. docs/payload-format.md is the authority.
// Device code only.
#pragma once

#include "codec/cuda/async_copy.cuh"
#include "codec/cuda/block_scan.cuh"
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/payload_layout.cuh"

namespace gradsieve::codec::cuda {

/// Entries that a lane has under way at once: a list is read from the second-level cache.
inline constexpr unsigned kEntriesAhead = 4;
/// Consecutive tiles that a warp writes.
inline constexpr std::uint32_t kWarpTiles = kChunkTiles / (kCodeThreads / 32);
/// Warps whose threads have a tile.
inline constexpr unsigned kTileWarps = kChunkTiles / 32;
static_assert(kCodeThreads >= kChunkTiles);

/// What a block shares while it codes.
struct CodeShared {
    ScanShared<kCodeThreads> scan;
    std::uint32_t begins[kChunkTiles + 1];  ///< position of each tile's first entry in the chunk's list
    std::uint32_t unary[kChunkTiles];       ///< quotient bits before each tile
    std::uint32_t ends[kChunkTiles];        ///< index behind the last entry before each tile
    std::uint32_t partial[kTileWarps][32];  ///< one row per warp, on its way into a sum
    PayloadLayout layout;
};

/// One tile of the chunk, held by the thread of its number.
struct TileShare {
    TileInfo info;
    std::uint32_t begin = 0;     ///< entries before it
    std::uint32_t rank = 0;      ///< tiles with entries before it
    std::uint32_t boundary = 0;  ///< gap in front of its first entry
    std::uint32_t end_before = 0;
};

__device__ inline TileShare load_tile(const EncodeRound& round, std::uint32_t chunk, std::uint32_t tiles,
                                      CodeShared& shared, ListShape& ret_shape) {
    TileShare share;
    share.info = TileInfo{};
    if (threadIdx.x < tiles) {
        const auto* words = reinterpret_cast<const uint4*>(round.tiles + round.first_tiles[chunk] + threadIdx.x);
        uint4 loaded[sizeof(TileInfo) / sizeof(uint4)];
#pragma unroll
        for (unsigned word = 0; word < sizeof(TileInfo) / sizeof(uint4); ++word) loaded[word] = __ldcg(words + word);
        share.info = *reinterpret_cast<const TileInfo*>(loaded);
    }
    constexpr unsigned kRankShift = 21;  // a chunk's count needs 21 bits
    const bool has_entries = share.info.count > 0;
    std::uint32_t total = 0;
    const std::uint32_t before =
        scan_block(share.info.count | (has_entries ? 1U << kRankShift : 0U), Sum{}, shared.scan, total);
    share.begin = before & ((1U << kRankShift) - 1U);
    share.rank = before >> kRankShift;
    ret_shape.count = total & ((1U << kRankShift) - 1U);
    ret_shape.tiles = total >> kRankShift;
    const std::uint32_t tile_begin = threadIdx.x * kTile;  // not of a tile: it has no entries
    share.end_before = scan_block(has_entries ? tile_begin + share.info.last + 1U : 0U, Largest{}, shared.scan, total);
    share.boundary = has_entries ? tile_begin + share.info.first - share.end_before : 0U;
    return share;
}

/// Quotient sum of a tile, the gap in front of it included.
__device__ inline std::uint32_t tile_quotients(const TileShare& share, unsigned parameter) {
    std::uint32_t inside = 0;
#pragma unroll
    for (unsigned r = 0; r < kRiceSums; ++r) inside = r == parameter ? share.info.quotients[r] : inside;
    return inside + (share.boundary >> parameter);
}

/// The Rice parameter of the fewest bits, the lower one on a tie; every thread gets it.
__device__ inline void plan_rice(const TileShare& share, CodeShared& shared, ListShape& ret_shape) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    if (warp < kTileWarps) {
#pragma unroll
        for (unsigned r = 0; r <= kLargestRice; ++r) {
            const std::uint32_t inside = r < kRiceSums ? share.info.quotients[r < kRiceSums ? r : 0] : 0U;
            const std::uint32_t sum = __reduce_add_sync(~0U, inside + (share.boundary >> r));
            if (lane == r) shared.partial[warp][r] = sum;
        }
    }
    __syncthreads();
    std::uint32_t key = ~0U;
    if (lane <= kLargestRice) {
        std::uint32_t quotients = 0;
#pragma unroll
        for (unsigned other = 0; other < kTileWarps; ++other) quotients += shared.partial[other][lane];
        key = (ret_shape.count * lane + quotients) << 5U | lane;  // 2^25 bits at most, and 5 for the parameter
    }
    key = __reduce_min_sync(~0U, key);
    ret_shape.rice_parameter = key & 31U;
    ret_shape.unary_bits = (key >> 5U) - ret_shape.count * ret_shape.rice_parameter + ret_shape.count;
    __syncthreads();
}

/// Base exponent and the parameter of the fewest bits for the distances from it; every thread gets them.
__device__ inline void plan_exponents(const TileShare& share, CodeShared& shared, ListShape& ret_shape) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    scan_block(share.info.count > 0 ? share.info.scale : 0U, Largest{}, shared.scan, ret_shape.base_exponent);
    const std::uint32_t octaves = share.info.count > 0 ? ret_shape.base_exponent - share.info.scale : 0U;
    if (warp < kTileWarps) {
#pragma unroll
        for (unsigned p = 0; p < kNoExponents; ++p) {
            const std::uint32_t sum = __reduce_add_sync(~0U, octaves >> p);
            if (lane == p) shared.partial[warp][p] = sum;
        }
    }
    __syncthreads();
    std::uint32_t key = ~0U;
    std::uint32_t quotients = 0;
    if (lane < kNoExponents) {
#pragma unroll
        for (unsigned other = 0; other < kTileWarps; ++other) quotients += shared.partial[other][lane];
        key = (ret_shape.tiles * (1U + lane) + quotients) << 3U | lane;
    }
    key = __reduce_min_sync(~0U, key);
    const bool are_equal = __shfl_sync(~0U, quotients, 0) == 0;
    ret_shape.exponent_parameter = are_equal ? kNoExponents : key & 7U;
    ret_shape.exponent_bits = are_equal ? 0U : key >> 3U;
    __syncthreads();
}

// ---- writing ----

/// Tile scales: pow2's distances from the base exponent, or sign's and dither's numbers.
__device__ inline void write_scales(const TensorPlan& plan, const TileShare& share, const PayloadLayout& layout,
                                    CodeShared& shared, std::uint32_t* words) {
    const bool has_entries = share.info.count > 0;
    if (has_tile_scales(plan)) {
        if (!has_entries) return;
        if (layout.form == IndexForm::kEvery)
            or_bits(words, layout.scales_bit + share.rank * 32U, share.info.scale << 16U, 32);
        else
            or_bits(words, layout.scales_bit + share.rank * 16U, share.info.scale, 16);
    }
    if (layout.quantizer != QuantizerKind::kPow2 || layout.exponent_parameter == kNoExponents) return;
    const std::uint32_t octaves = has_entries ? layout.base_exponent - share.info.scale : 0U;
    const std::uint32_t quotient = octaves >> layout.exponent_parameter;
    std::uint32_t total = 0;
    const std::uint32_t bit =
        layout.scales_bit +
        scan_block(has_entries ? quotient + 1U + layout.exponent_parameter : 0U, Sum{}, shared.scan, total);
    if (!has_entries) return;
    const std::uint32_t remainder = octaves & ((1U << layout.exponent_parameter) - 1U);
    or_bits(words, bit + quotient, (remainder << 1U) | 1U, 1U + layout.exponent_parameter);
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
            if (layout.rice_parameter > 0)
                write_fields(layout.indices_bit + position * layout.rice_parameter,
                             gap & ((1U << layout.rice_parameter) - 1U), layout.rice_parameter);
            write_one(layout.unary_bit + unary_bit);
            break;
        case IndexForm::kBitmap: write_one(layout.indices_bit + entry.index); break;
        case IndexForm::kRaw32: {
            const std::uint32_t code = layout.value_bits == 0 ? entry.code << kPaperWordCodeShift : 0U;
            write_fields(layout.indices_bit + position * 32U, entry.index | code, 32);
            break;
        }
    }
    if (layout.value_bits > 0)
        write_fields(layout.values_bit + position * layout.value_bits, entry.code, layout.value_bits);
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
            const std::uint32_t bits = scan_warp(exists ? (gap >> layout.rice_parameter) + 1U : 0U, Sum{});
            write_warp<kIsNear>(layout, words, first, min(32U, end - first), entry, gap, unary + bits - 1U);
            unary += __shfl_sync(~0U, bits, 31);
            end_before = __shfl_sync(~0U, entry.index, 31) + 1U;
        }
    }
}

/// A place for the payload. The result goes to the host.
__device__ inline void make_room(const EncodeRound& round, std::uint32_t chunk, std::uint32_t sent,
                                 PayloadLayout& inout_layout) {
    const ByteCount reserved = (inout_layout.bytes + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
    inout_layout.offset = atomicAdd(reinterpret_cast<unsigned long long*>(round.cursor), reserved);
    round.chunk_results[chunk] = ChunkResult{inout_layout.offset, inout_layout.bytes, sent};
}

/// All fields of the payload, in cleared memory.
template <bool kIsNear>
__device__ inline void write_payload(const EncodeRound& round, std::uint32_t chunk, const TensorPlan& plan,
                                     const TileShare& share, CodeShared& shared, std::uint32_t* words) {
    const std::uint32_t vector_count = (shared.layout.bytes + kPayloadAlignment - 1) / kPayloadAlignment;
    for (std::uint32_t at = threadIdx.x; at < vector_count; at += kCodeThreads)
        reinterpret_cast<uint4*>(words)[at] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    if (threadIdx.x == 0) write_header(plan, shared.layout, words);
    write_scales(plan, share, shared.layout, shared, words);
    write_entries<kIsNear>(round, chunk, plan.value_bytes, shared, words);
    __syncthreads();
}

/// Copies a payload from shared memory to where it goes.
__device__ inline void deliver_payload(const EncodeRound& round, const PayloadLayout& layout,
                                       const std::uint32_t* from) {
    const std::uint32_t vector_count = (layout.bytes + kPayloadAlignment - 1) / kPayloadAlignment;
    auto* payload = reinterpret_cast<uint4*>(round.payload + layout.offset);
    for (std::uint32_t at = threadIdx.x; at < vector_count; at += kCodeThreads)
        payload[at] = reinterpret_cast<const uint4*>(from)[at];
}

/// Codes a chunk whose tiles all hold what is sent. A block of kCodeThreads.
__device__ inline void code_chunk(const EncodeRound& round, std::uint32_t chunk, CodeShared& shared) {
    const ChunkPlan& chunk_plan = round.chunks[chunk];
    const TensorPlan& plan = round.tensors[chunk_plan.tensor];
    const auto coder = static_cast<IndexCoderKind>(plan.index_coder);
    ListShape shape;
    shape.elements = chunk_plan.elements;
    const TileShare share = load_tile(round, chunk, chunk_plan.tiles, shared, shape);
    if (shape.count == 0) {
        if (threadIdx.x == 0) round.chunk_results[chunk] = ChunkResult{0, 0, 0};
        return;
    }
    if (coder == IndexCoderKind::kAuto || coder == IndexCoderKind::kRice) plan_rice(share, shared, shape);
    if (static_cast<QuantizerKind>(plan.quantizer) == QuantizerKind::kPow2) plan_exponents(share, shared, shape);
    if (threadIdx.x == 0) {
        const bool sends_all = static_cast<SelectorKind>(plan.selector) == SelectorKind::kAll;
        PayloadLayout layout = choose_layout(plan, shape);
        make_room(round, chunk, sends_all ? shape.elements : shape.count, layout);
        shared.layout = layout;
        shared.begins[kChunkTiles] = shape.count;
    }
    if (threadIdx.x < kChunkTiles) {
        shared.begins[threadIdx.x] = share.begin;
        shared.ends[threadIdx.x] = share.end_before;
    }
    __syncthreads();
    const bool is_rice = shared.layout.form == IndexForm::kRice;
    const std::uint32_t quotients = is_rice ? tile_quotients(share, shared.layout.rice_parameter) : 0U;
    std::uint32_t total = 0;
    const std::uint32_t unary = scan_block(share.info.count + quotients, Sum{}, shared.scan, total);
    if (threadIdx.x < kChunkTiles) shared.unary[threadIdx.x] = unary;
    if (shared.layout.bytes <= kNearPayloadBytes) {
        auto* words = reinterpret_cast<std::uint32_t*>(dynamic_shared());
        write_payload<true>(round, chunk, plan, share, shared, words);
        deliver_payload(round, shared.layout, words);
    } else {
        auto* words = reinterpret_cast<std::uint32_t*>(round.payload + shared.layout.offset);
        write_payload<false>(round, chunk, plan, share, shared, words);
    }
}

}  // namespace gradsieve::codec::cuda
