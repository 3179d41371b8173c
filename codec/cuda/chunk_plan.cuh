// What is decided of a chunk's payload before any of it is written: parameters, layout, and what stands before each
// tile. The first threads of a block, the planning ones, have a tile each; all come to the barriers. Device code only.
#pragma once

#include "codec/cuda/block_scan.cuh"
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/payload_layout.cuh"

namespace gradsieve::codec::cuda {

/// Warps whose threads have a tile: the first of the block, which plan.
inline constexpr unsigned kTileWarps = kChunkTiles / 32;
static_assert(kCodeThreads > kChunkTiles);

/// What a block shares while it codes.
struct CodeShared {
    std::uint32_t begins[kChunkTiles + 1];  ///< position of each tile's first entry in the chunk's list
    std::uint32_t unary[kChunkTiles];       ///< quotient bits before each tile
    std::uint32_t ends[kChunkTiles];        ///< index behind the last entry before each tile
    // of each planning warp, on its way into what is known of the chunk
    std::uint32_t counts[kTileWarps];
    std::uint32_t last_ends[kTileWarps];
    std::uint32_t exponents[kTileWarps];
    std::uint32_t sums[kTileWarps][32];  ///< of a parameter's quotients, in the lane that stands for it
    std::uint32_t quotient_bits[kTileWarps];
    std::uint32_t scale_bits[kTileWarps];
    PayloadLayout layout;
    ByteCount offset;  ///< of the payload in the batch's; after the second barrier
};

/// Lanes that stand for a parameter: Rice's of the gaps, then those of the exponents.
inline constexpr unsigned kFirstExponentLane = kLargestRice + 1;
static_assert(kFirstExponentLane + kNoExponents <= 32);

/// Whether this is a planning thread. They could do without the others, at barriers that those pass by, but
/// compute-sanitizer's racecheck does not follow such ones, and the others have nothing else to do.
__device__ inline bool plans_chunk() { return threadIdx.x < kChunkTiles; }

/// One tile of the chunk, held by the planning thread of its number.
struct TileShare {
    TileInfo info;
    std::uint32_t begin = 0;     ///< entries before it
    std::uint32_t rank = 0;      ///< tiles with entries before it
    std::uint32_t boundary = 0;  ///< gap in front of its first entry
    std::uint32_t end_before = 0;
    std::uint32_t octaves = 0;  ///< pow2: that its exponent lies below the chunk's largest
};

/// Combines what the warps left: `ret_before`, of those before this one. Returns the combination of all.
template <typename Combine>
__device__ inline std::uint32_t combine_warps(const std::uint32_t (&of_warp)[kTileWarps], Combine combine,
                                              std::uint32_t& ret_before) {
    const unsigned warp = threadIdx.x / 32;
    std::uint32_t all = 0;
    ret_before = 0;
#pragma unroll
    for (unsigned other = 0; other < kTileWarps; ++other) {
        if (other == warp) ret_before = all;
        all = combine(all, of_warp[other]);
    }
    return all;
}

__device__ inline TileShare load_tile(const EncodeRound& round, std::uint32_t chunk, std::uint32_t tiles,
                                      CodeShared& shared, ListShape& ret_shape) {
    TileShare share;
    share.info = TileInfo{};
    const bool plans = plans_chunk();
    if (threadIdx.x < tiles) {
        const auto* words = reinterpret_cast<const uint4*>(round.tiles + round.first_tiles[chunk] + threadIdx.x);
        uint4 loaded[sizeof(TileInfo) / sizeof(uint4)];
#pragma unroll
        for (unsigned word = 0; word < sizeof(TileInfo) / sizeof(uint4); ++word) loaded[word] = __ldcg(words + word);
        share.info = *reinterpret_cast<const TileInfo*>(loaded);
    }
    constexpr unsigned kRankShift = 21;  // a chunk's count needs 21 bits
    constexpr std::uint32_t kCountMask = (1U << kRankShift) - 1U;
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    const bool has_entries = share.info.count > 0;
    const std::uint32_t tile_begin = threadIdx.x * kTile;
    const std::uint32_t own_count = share.info.count | (has_entries ? 1U << kRankShift : 0U);
    std::uint32_t counts = 0;
    std::uint32_t ends = 0;
    if (plans) {
        counts = scan_warp(own_count, Sum{});
        ends = scan_warp(has_entries ? tile_begin + share.info.last + 1U : 0U, Largest{});
        const std::uint32_t exponent = __reduce_max_sync(~0U, has_entries ? share.info.scale : 0U);
        if (lane == 31) {
            shared.counts[warp] = counts;
            shared.last_ends[warp] = ends;
            shared.exponents[warp] = exponent;
        }
    }
    __syncthreads();
    if (!plans) return share;
    std::uint32_t before = 0;
    const std::uint32_t all = combine_warps(shared.counts, Sum{}, before);
    ret_shape.count = all & kCountMask;
    ret_shape.tiles = all >> kRankShift;
    before += counts - own_count;
    share.begin = before & kCountMask;
    share.rank = before >> kRankShift;
    ret_shape.base_exponent = combine_warps(shared.exponents, Largest{}, before);
    share.octaves = has_entries ? ret_shape.base_exponent - share.info.scale : 0U;
    combine_warps(shared.last_ends, Largest{}, before);
    const std::uint32_t end_before = __shfl_up_sync(~0U, ends, 1);
    share.end_before = lane == 0 ? before : max(before, end_before);
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

/// The Rice parameter of the fewest bits, the lower one on a tie, and, for pow2, that of the exponents' distances from
/// the chunk's largest. Every planning thread gets them.
__device__ inline void plan_parameters(const TensorPlan& plan, const TileShare& share, CodeShared& shared,
                                       ListShape& inout_shape) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    const auto coder = static_cast<IndexCoderKind>(plan.index_coder);
    const bool has_rice = coder == IndexCoderKind::kAuto || coder == IndexCoderKind::kRice;
    const bool has_exponents = codec::has_exponents(static_cast<QuantizerKind>(plan.quantizer));
    const bool plans = plans_chunk();
    std::uint32_t own = 0;
    if (plans && has_rice) {
#pragma unroll
        for (unsigned r = 0; r <= kLargestRice; ++r) {
            const std::uint32_t inside = r < kRiceSums ? share.info.quotients[r < kRiceSums ? r : 0] : 0U;
            const std::uint32_t sum = __reduce_add_sync(~0U, inside + (share.boundary >> r));
            own = lane == r ? sum : own;
        }
    }
    if (plans && has_exponents) {
#pragma unroll
        for (unsigned p = 0; p < kNoExponents; ++p) {
            const std::uint32_t sum = __reduce_add_sync(~0U, share.octaves >> p);
            own = lane == kFirstExponentLane + p ? sum : own;
        }
    }
    if (plans) shared.sums[warp][lane] = own;
    __syncthreads();
    if (!plans) return;
    std::uint32_t quotients = 0;
#pragma unroll
    for (unsigned other = 0; other < kTileWarps; ++other) quotients += shared.sums[other][lane];
    if (has_rice) {
        std::uint32_t key = ~0U;
        if (lane <= kLargestRice)
            key = (inout_shape.count * lane + quotients) << 5U | lane;  // 2^25 bits at most, and 5 for the parameter
        key = __reduce_min_sync(~0U, key);
        inout_shape.rice_parameter = key & 31U;
        inout_shape.unary_bits = (key >> 5U) - inout_shape.count * inout_shape.rice_parameter + inout_shape.count;
    }
    if (has_exponents) {
        const unsigned parameter = lane - kFirstExponentLane;
        std::uint32_t key = ~0U;
        if (lane >= kFirstExponentLane && parameter < kNoExponents)
            key = (inout_shape.tiles * (1U + parameter) + quotients) << 3U | parameter;
        key = __reduce_min_sync(~0U, key);
        const bool are_equal = __shfl_sync(~0U, quotients, kFirstExponentLane) == 0;
        inout_shape.exponent_parameter = are_equal ? kNoExponents : key & 7U;
        inout_shape.exponent_bits = are_equal ? 0U : key >> 3U;
    }
}

/// Bits of the exponent's distance of a tile.
__device__ inline std::uint32_t exponent_width(const TileShare& share, const PayloadLayout& layout) {
    const bool is_written = codec::has_exponents(layout.quantizer) && layout.exponent_parameter != kNoExponents;
    if (!is_written || share.info.count == 0) return 0;
    return (share.octaves >> layout.exponent_parameter) + 1U + layout.exponent_parameter;
}

/// Bits before each tile, of its unary part and of its exponent; the latter is returned.
__device__ inline std::uint32_t count_bits(const TileShare& share, const PayloadLayout& layout, CodeShared& shared) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    const bool plans = plans_chunk();
    std::uint32_t own_unary = 0;
    std::uint32_t own_scale = 0;
    std::uint32_t unary = 0;
    std::uint32_t scale = 0;
    if (plans) {
        const bool is_rice = layout.form == IndexForm::kRice;
        own_unary = share.info.count + (is_rice ? tile_quotients(share, layout.index_parameter) : 0U);
        own_scale = exponent_width(share, layout);
        unary = scan_warp(own_unary, Sum{});
        scale = scan_warp(own_scale, Sum{});
        if (lane == 31) {
            shared.quotient_bits[warp] = unary;
            shared.scale_bits[warp] = scale;
        }
    }
    __syncthreads();
    if (!plans) return 0;
    std::uint32_t before = 0;
    combine_warps(shared.quotient_bits, Sum{}, before);
    shared.unary[threadIdx.x] = before + unary - own_unary;
    combine_warps(shared.scale_bits, Sum{}, before);
    return before + scale - own_scale;
}

/// Takes a place for the payload: its offset. One thread.
__device__ inline ByteCount make_room(const EncodeRound& round, const PayloadLayout& layout) {
    const ByteCount reserved = (layout.bytes + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
    return atomicAdd(reinterpret_cast<unsigned long long*>(round.cursor), reserved);
}

/// What a planning thread knows once the chunk is planned.
struct ChunkShare {
    TileShare tile;
    std::uint32_t exponent_bit = 0;
    ByteCount offset = 0;    ///< of the payload: the first thread
    std::uint32_t sent = 0;  ///< elements
};

/// The layout of a chunk whose tiles all hold what is sent, and what stands before each tile, in shared memory. Every
/// thread of the block; those that do not plan need `shared` after a barrier. A layout of no bytes: nothing is sent.
__device__ inline ChunkShare plan_chunk(const EncodeRound& round, std::uint32_t chunk, const ChunkPlan& chunk_plan,
                                        const TensorPlan& plan, CodeShared& shared) {
    ChunkShare share;
    ListShape shape;
    shape.elements = chunk_plan.elements;
    share.tile = load_tile(round, chunk, chunk_plan.tiles, shared, shape);
    plan_parameters(plan, share.tile, shared, shape);
    PayloadLayout layout{};
    if (plans_chunk()) {
        if (shape.count > 0) layout = choose_layout(plan, shape);
        const bool sends_all = static_cast<Selection>(plan.selection) == Selection::kEvery;
        share.sent = sends_all && shape.count > 0 ? shape.elements : shape.count;
        if (threadIdx.x == 0) {
            shared.layout = layout;
            shared.begins[kChunkTiles] = shape.count;
            if (shape.count > 0) share.offset = make_room(round, layout);  // not waited for before it is needed
        }
        shared.begins[threadIdx.x] = share.tile.begin;
        shared.ends[threadIdx.x] = share.tile.end_before;
    }
    share.exponent_bit = count_bits(share.tile, layout, shared);
    return share;
}

}  // namespace gradsieve::codec::cuda
