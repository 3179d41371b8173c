// The payload of one chunk out of the lists of its tiles: sizes first, then every field at its own bit, so that no
// order of threads can show. One block for each group of tiles: all of a chunk's blocks find the same sizes, the first
// one makes room, and each writes its own tiles' entries. docs/payload-format.md is the authority. Device code only.
#pragma once

#include "codec/cuda/block_scan.cuh"
#include "codec/cuda/payload_layout.cuh"
#include "codec/cuda/tile_group.cuh"

namespace gradsieve::codec::cuda {

/// Entries that a lane has under way at once: a list is read from the second-level cache.
inline constexpr unsigned kEntriesAhead = 4;
/// Consecutive tiles of the group that a warp writes.
inline constexpr std::uint32_t kWarpTiles = kGroupTiles / kWarps;

/// What a block shares while it codes.
struct CodeShared {
    ScanShared scan;
    std::uint32_t begins[kChunkTiles + 1];  ///< position of each tile's first entry in the chunk's list
    std::uint32_t unary[kChunkTiles];       ///< quotient bits before each tile
    std::uint32_t ends[kChunkTiles];        ///< index behind the last entry before each tile
    std::uint32_t partial[kWarps][32];      ///< one row per warp, on its way into a sum
    PayloadLayout layout;
    std::uint32_t is_last;
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
    const std::uint32_t tile_begin = threadIdx.x * kTile;
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
#pragma unroll
    for (unsigned r = 0; r <= kLargestRice; ++r) {
        const std::uint32_t inside = r < kRiceSums ? share.info.quotients[r < kRiceSums ? r : 0] : 0U;
        const std::uint32_t sum = __reduce_add_sync(~0U, inside + (share.boundary >> r));
        if (lane == r) shared.partial[warp][r] = sum;
    }
    __syncthreads();
    std::uint32_t key = ~0U;
    if (lane <= kLargestRice) {
        std::uint32_t quotients = 0;
#pragma unroll
        for (unsigned other = 0; other < kWarps; ++other) quotients += shared.partial[other][lane];
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
#pragma unroll
    for (unsigned p = 0; p < kNoExponents; ++p) {
        const std::uint32_t sum = __reduce_add_sync(~0U, octaves >> p);
        if (lane == p) shared.partial[warp][p] = sum;
    }
    __syncthreads();
    std::uint32_t key = ~0U;
    std::uint32_t quotients = 0;
    if (lane < kNoExponents) {
#pragma unroll
        for (unsigned other = 0; other < kWarps; ++other) quotients += shared.partial[other][lane];
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

/// Entry `position` of the chunk's list, which lies in one of the warp's tiles, `warp_tile` and the next.
__device__ inline Entry load_entry(const EncodeRound& round, std::uint32_t first_tile, const std::uint32_t* begins,
                                   std::uint32_t warp_tile, std::uint32_t position, unsigned value_bytes) {
    std::uint32_t tile = warp_tile;  // the last that begins at or before the position
#pragma unroll
    for (unsigned step = kWarpTiles / 2; step > 0; step /= 2)
        if (begins[tile + step] <= position) tile += step;
    const std::size_t cell = std::size_t{first_tile + tile} * kTile + position - begins[tile];
    Entry entry;
    entry.index = tile * kTile + round.slot_indices[cell];
    const std::byte* values = round.slot_values;
    const std::size_t tile_bytes = std::size_t{first_tile + tile} * kTile * round.slot_value_bytes;
    const std::uint32_t at = position - begins[tile];
    if (value_bytes == 1)
        entry.code = reinterpret_cast<const std::uint8_t*>(values + tile_bytes)[at];
    else if (value_bytes == 2)
        entry.code = reinterpret_cast<const std::uint16_t*>(values + tile_bytes)[at];
    else
        entry.code = reinterpret_cast<const std::uint32_t*>(values + tile_bytes)[at];
    return entry;
}

/// Fields of one entry. `position`: in the list; `unary_bit`: of the one that ends its quotient.
__device__ inline void write_entry(const PayloadLayout& layout, std::uint32_t* words, std::uint32_t position,
                                   const Entry& entry, std::uint32_t gap, std::uint32_t unary_bit) {
    switch (layout.form) {
        case IndexForm::kEvery: break;
        case IndexForm::kRice:
            if (layout.rice_parameter > 0)
                or_bits(words, layout.indices_bit + position * layout.rice_parameter,
                        gap & ((1U << layout.rice_parameter) - 1U), layout.rice_parameter);
            or_bits(words, layout.unary_bit + unary_bit, 1, 1);
            break;
        case IndexForm::kBitmap: or_bits(words, layout.indices_bit + entry.index, 1, 1); break;
        case IndexForm::kRaw32: {
            const std::uint32_t code = layout.value_bits == 0 ? entry.code << kPaperWordCodeShift : 0U;
            or_bits(words, layout.indices_bit + position * 32U, entry.index | code, 32);
            break;
        }
    }
    if (layout.value_bits > 0)
        or_bits(words, layout.values_bit + position * layout.value_bits, entry.code, layout.value_bits);
}

/// Each warp writes the entries of its tiles of the group that begins with tile `first_in_chunk`.
__device__ inline void write_entries(const EncodeRound& round, const GroupWork& work, const CodeShared& shared,
                                     std::uint32_t* words) {
    const unsigned lane = threadIdx.x % 32;
    const PayloadLayout layout = shared.layout;
    const std::uint32_t first_tile = round.first_tiles[work.chunk];
    const std::uint32_t warp_tile = work.first_in_chunk + threadIdx.x / 32 * kWarpTiles;
    const std::uint32_t end = shared.begins[warp_tile + kWarpTiles];
    std::uint32_t unary = shared.unary[warp_tile];
    std::uint32_t end_before = shared.ends[warp_tile];
    for (std::uint32_t begin = shared.begins[warp_tile]; begin < end; begin += 32 * kEntriesAhead) {
        Entry entries[kEntriesAhead];
#pragma unroll
        for (unsigned ahead = 0; ahead < kEntriesAhead; ++ahead) {
            const std::uint32_t position = min(begin + ahead * 32 + lane, end - 1);
            entries[ahead] = load_entry(round, first_tile, shared.begins, warp_tile, position, work.plan->value_bytes);
        }
#pragma unroll
        for (unsigned ahead = 0; ahead < kEntriesAhead; ++ahead) {
            const std::uint32_t position = begin + ahead * 32 + lane;
            const bool exists = position < end;
            const Entry& entry = entries[ahead];
            const std::uint32_t previous = __shfl_up_sync(~0U, entry.index, 1) + 1U;
            const std::uint32_t gap = entry.index - (lane == 0 ? end_before : previous);
            std::uint32_t bits = exists ? (gap >> layout.rice_parameter) + 1U : 0U;
#pragma unroll
            for (unsigned distance = 1; distance < 32; distance *= 2) {
                const std::uint32_t other = __shfl_up_sync(~0U, bits, distance);
                if (lane >= distance) bits += other;
            }
            if (exists) write_entry(layout, words, position, entry, gap, unary + bits - 1U);
            unary += __shfl_sync(~0U, bits, 31);
            end_before = __shfl_sync(~0U, entry.index, 31) + 1U;
        }
    }
}

/// The chunk's first group: a place for the payload, zeros, header and scales. The others wait for it.
__device__ inline void lay_out(const EncodeRound& round, const GroupWork& work, const TileShare& share,
                               std::uint32_t sent, CodeShared& shared) {
    if (threadIdx.x == 0) {
        const ByteCount reserved =
            (shared.layout.bytes + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
        shared.layout.offset = atomicAdd(reinterpret_cast<unsigned long long*>(round.cursor), reserved);
        round.chunk_results[work.chunk] = ChunkResult{shared.layout.offset, shared.layout.bytes, sent};
    }
    __syncthreads();
    const PayloadLayout& layout = shared.layout;
    auto* vectors = reinterpret_cast<uint4*>(round.payload + layout.offset);
    auto* words = reinterpret_cast<std::uint32_t*>(vectors);
    const std::uint32_t vector_count = (layout.bytes + kPayloadAlignment - 1) / kPayloadAlignment;
    for (std::uint32_t at = threadIdx.x; at < vector_count; at += kTileThreads) vectors[at] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    if (threadIdx.x == 0) write_header(*work.plan, layout, words);
    write_scales(*work.plan, share, layout, shared, words);
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence();
    atomicExch(&round.chunk_states[work.chunk].is_laid_out, 1U);
}

/// Every other group. Blocks start in order, so the chunk's first group runs already.
__device__ inline void await_layout(const EncodeRound& round, const GroupWork& work, CodeShared& shared) {
    if (threadIdx.x == 0) {
        const volatile std::uint32_t* is_laid_out = &round.chunk_states[work.chunk].is_laid_out;
        while (*is_laid_out == 0) __nanosleep(100);
        __threadfence();
        shared.layout.offset = *static_cast<const volatile std::uint64_t*>(&round.chunk_results[work.chunk].offset);
    }
    __syncthreads();
}

/// The block that finishes the chunk's last group copies the payload to host memory, where there is room.
__device__ inline void mirror_chunk(const EncodeRound& round, const GroupWork& work, CodeShared& shared) {
    __syncthreads();
    if (threadIdx.x == 0) {
        const std::uint32_t groups = (round.chunks[work.chunk].tiles + kGroupTiles - 1) / kGroupTiles;
        __threadfence();
        shared.is_last = atomicAdd(&round.chunk_states[work.chunk].groups_done, 1U) + 1 == groups ? 1U : 0U;
        __threadfence();
    }
    __syncthreads();
    const PayloadLayout& layout = shared.layout;
    const std::uint32_t vector_count = (layout.bytes + kPayloadAlignment - 1) / kPayloadAlignment;
    if (shared.is_last == 0 || layout.offset + vector_count * kPayloadAlignment > round.mirror_bytes) return;
    const auto* vectors = reinterpret_cast<const uint4*>(round.payload + layout.offset);
    auto* mirror = reinterpret_cast<uint4*>(round.mirror + layout.offset);
    for (std::uint32_t at = threadIdx.x; at < vector_count; at += kTileThreads) mirror[at] = __ldcg(vectors + at);
}

/// Codes one group of a chunk whose tiles all hold what is sent. A whole block.
__device__ inline void code_group(const EncodeRound& round, const GroupWork& work, CodeShared& shared) {
    const ChunkPlan& chunk = round.chunks[work.chunk];
    const TensorPlan& plan = *work.plan;
    const auto coder = static_cast<IndexCoderKind>(plan.index_coder);
    ListShape shape;
    shape.elements = chunk.elements;
    const TileShare share = load_tile(round, work.chunk, chunk.tiles, shared, shape);
    if (shape.count == 0) {
        if (work.first_in_chunk == 0 && threadIdx.x == 0) round.chunk_results[work.chunk] = ChunkResult{0, 0, 0};
        return;
    }
    if (coder == IndexCoderKind::kAuto || coder == IndexCoderKind::kRice) plan_rice(share, shared, shape);
    if (static_cast<QuantizerKind>(plan.quantizer) == QuantizerKind::kPow2) plan_exponents(share, shared, shape);
    if (threadIdx.x == 0) {
        shared.layout = choose_layout(plan, shape);
        shared.begins[kChunkTiles] = shape.count;
    }
    shared.begins[threadIdx.x] = share.begin;
    shared.ends[threadIdx.x] = share.end_before;
    __syncthreads();
    const bool is_rice = shared.layout.form == IndexForm::kRice;
    const std::uint32_t quotients = is_rice ? tile_quotients(share, shared.layout.rice_parameter) : 0U;
    std::uint32_t total = 0;
    shared.unary[threadIdx.x] = scan_block(share.info.count + quotients, Sum{}, shared.scan, total);
    const bool sends_all = static_cast<SelectorKind>(plan.selector) == SelectorKind::kAll;
    if (work.first_in_chunk == 0)
        lay_out(round, work, share, sends_all ? shape.elements : shape.count, shared);
    else
        await_layout(round, work, shared);
    write_entries(round, work, shared, reinterpret_cast<std::uint32_t*>(round.payload + shared.layout.offset));
    mirror_chunk(round, work, shared);
}

}  // namespace gradsieve::codec::cuda
