// minmax in the dense pass: warps look for the ends of every 64 elements and, where values are scaled, add up squares;
// a thread of each bucket finds its unit, and all code with it. Device code only.
#pragma once

#include "codec/cuda/dense_form.cuh"
#include "codec/cuda/dense_payload.cuh"
#include "codec/cuda/dense_stage.cuh"
#include "codec/cuda/dither_levels.cuh"
#include "codec/stages/minmax.hpp"

#include <cfloat>

namespace gradsieve::codec::cuda {

/// Half a warp looks at a smallest bucket: 16 lanes, a vector each.
inline constexpr unsigned kPieceLanes = 16;
inline constexpr unsigned kPieces = kTile >> kLeastBucketLog2;
static_assert(4 * kPieceLanes == 1U << kLeastBucketLog2);

/// What they tell each other of a tile's smallest buckets.
struct MinMaxShared {
    MinMaxRange ends[kPieces];
    std::uint32_t squares[kPieces];
    MinMaxUnit units[kPieces];  ///< of buckets
};

/// The least and the largest of a half warp's vectors, of which `valid` elements exist; the same in its lanes.
__device__ inline MinMaxRange ends_of(const Vector& r, std::uint32_t valid) {
    MinMaxRange ends{FLT_MAX, -FLT_MAX};
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
        if (c >= valid) continue;
        ends.low = r.at[c] < ends.low ? r.at[c] : ends.low;
        ends.high = r.at[c] > ends.high ? r.at[c] : ends.high;
    }
#pragma unroll
    for (int lanes = kPieceLanes / 2; lanes > 0; lanes /= 2) {
        const float low = __shfl_xor_sync(~0U, ends.low, lanes);
        const float high = __shfl_xor_sync(~0U, ends.high, lanes);
        ends.low = low < ends.low ? low : ends.low;
        ends.high = high > ends.high ? high : ends.high;
    }
    return ends;
}
/// The sum of a half warp's whole squares; what does not exist is 0.
__device__ inline std::uint32_t squares_of(const Vector& r, std::uint32_t valid, float units) {
    std::uint32_t sum = 0;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c)
        if (c < valid) sum += whole_square(element::magnitude(r.at[c]), units);
#pragma unroll
    for (int lanes = kPieceLanes / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0U, sum, lanes);
    return sum;
}

/// A bucket's range, from the ends of its pieces.
__device__ inline MinMaxRange range_of_bucket(const MinMaxShared& shared, std::uint32_t bucket,
                                              std::uint32_t pieces_log2) {
    const std::uint32_t first = bucket << pieces_log2;
    MinMaxRange ends = shared.ends[first];
    for (std::uint32_t piece = first + 1; piece < first + (1U << pieces_log2); ++piece) {
        const MinMaxRange other = shared.ends[piece];
        ends.low = other.low < ends.low ? other.low : ends.low;
        ends.high = other.high > ends.high ? other.high : ends.high;
    }
    return minmax_range(ends.low, ends.high);
}

/// Leaves the units of the tile's buckets in `shared` and their ranges in the payload; gives the stage back, unless
/// that is done.
template <bool kHasStage>
__device__ inline void find_ranges(const TileStage& stage, std::byte* scales, const Vector (&r)[kThreadVectors],
                                   MinMaxShared& shared) {
    const TileWork& work = stage.work;
    const std::uint32_t bucket_log2 = work.plan.bucket_log2;
    const std::uint32_t pieces_log2 = bucket_log2 - kLeastBucketLog2;
    const std::uint32_t bits = work.plan.code_bits;
    const bool is_scaled = work.plan.is_scaled != 0;
    const bool is_first_lane = threadIdx.x % kPieceLanes == 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        const VectorPlace place = place_of(work, vector_number(threadIdx.x / 32, j));
        const MinMaxRange ends = ends_of(r[j], place.valid);
        if (is_first_lane) shared.ends[place.local >> kLeastBucketLog2] = ends;
    }
    if constexpr (kHasStage) arrive(stage.empty);
    meet_lookers();
    if (is_scaled) {
#pragma unroll
        for (unsigned j = 0; j < kThreadVectors; ++j) {
            const VectorPlace place = place_of(work, vector_number(threadIdx.x / 32, j));
            const MinMaxRange range = range_of_bucket(shared, place.local >> bucket_log2, pieces_log2);
            const std::uint32_t squares = squares_of(r[j], place.valid, square_units(range));
            if (is_first_lane) shared.squares[place.local >> kLeastBucketLog2] = squares;
        }
        meet_lookers();
    }
    const std::uint32_t bucket = threadIdx.x;
    const std::uint32_t first = bucket << bucket_log2;
    if (bucket < kPieces >> pieces_log2 && first < work.elements) {
        const MinMaxRange range = range_of_bucket(shared, bucket, pieces_log2);
        double z = 1.0;
        if (is_scaled) {
            std::uint64_t squares = 0;
            for (std::uint32_t piece = 0; piece < 1U << pieces_log2; ++piece)
                squares += shared.squares[(bucket << pieces_log2) + piece];
            z = minmax_bound(range, bits, min(1U << bucket_log2, work.elements - first), squares);
        }
        const MinMaxUnit unit = minmax_unit(range, bits, z);
        shared.units[bucket] = unit;
        // Behind three bytes of header, so at no alignment.
        std::byte* at = scales + ((work.tile_in_chunk * (kTile >> bucket_log2)) + bucket) * sizeof(MinMaxRange);
        for (unsigned byte = 0; byte < sizeof(float); ++byte) {
            at[byte] = static_cast<std::byte>(element::bits_of(unit.sent_low) >> (8 * byte));
            at[sizeof(float) + byte] = static_cast<std::byte>(element::bits_of(unit.sent_high) >> (8 * byte));
        }
    }
    meet_lookers();
}

/// Codes the tile once its buckets' units are known, and stores what the codes lose, or leaves what they decode to.
template <bool kDecodes>
__device__ inline void code_ranges(const TileStage& stage, std::byte* scales, std::byte* values,
                                   Vector (&r)[kThreadVectors], MinMaxShared& shared) {
    const TileWork& work = stage.work;
    find_ranges<!kDecodes>(stage, scales, r, shared);
    const std::uint32_t bits = work.plan.code_bits;
    const float most = minmax_most(bits);
    std::byte* const codes = values + work.tile_in_chunk * (kTile / 8) * bits;
    const std::uint32_t first_block = first_block_of(work);
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        const unsigned number = vector_number(threadIdx.x / 32, j);
        const VectorPlace place = place_of(work, number);
        const MinMaxUnit unit = shared.units[place.local >> work.plan.bucket_log2];
        const float step_size = minmax_step_size(unit.sent_low, unit.sent_high, bits);
        const PhiloxBlock random = random_block(work.plan.random, first_block + own_block(number));
        std::uint32_t bytes = 0;
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            if (c >= place.valid) continue;
            const std::uint32_t level = minmax_level(r[j].at[c], unit.low, unit.to_levels, most, random.words[c]);
            bytes |= level << (8 * c);
            const float decoded = minmax_decoded(level, unit.sent_low, step_size);
            r[j].at[c] = kDecodes ? decoded : r[j].at[c] - decoded;
        }
        store_codes(codes, work.elements, bits, number, bytes);
    }
    if (!kDecodes && work.plan.residual_out != nullptr)
        store_vectors(work, work.plan.residual_out, vector_number(threadIdx.x / 32, 0), r);
    // The next tile's ends may be told once all have read this one's units, which the next release waits for.
}

template <>
struct DenseForm<stages::MinMax::kFacts.kind> {
    using Shared = MinMaxShared;
    static constexpr bool kHoldsStage = true;
    static constexpr Leftover kLeftover = Leftover::kNobody;

    template <bool kDecodes, typename Values, typename Block>
    static __device__ void code(const TileStage& stage, const Values& /*values*/, const DensePayload& payload,
                                Vector (&r)[kThreadVectors], Block& shared) {
        code_ranges<kDecodes>(stage, payload.scales, payload.values, r, shared.template as<Shared>());
    }
};

}  // namespace gradsieve::codec::cuda
