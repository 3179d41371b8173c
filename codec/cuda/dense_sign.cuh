// sign and two_mean in the dense pass: a tile's mean magnitudes, and codes of one bit. Device code only.
#pragma once

#include "codec/cuda/dense_dither.cuh"
#include "codec/cuda/dense_form.cuh"
#include "codec/cuda/dense_payload.cuh"
#include "codec/cuda/dense_rotate.cuh"
#include "codec/cuda/dense_stage.cuh"
#include "codec/cuda/tile_send.cuh"
#include "codec/stages/two_mean.hpp"

namespace gradsieve::codec::cuda {

/// What warps tell each other of a tile's magnitudes.
struct SignShared {
    // in turn: one tile's are read while the next one's are written
    double sums[2][kPassWarps];
    std::uint32_t least_exponents[2][kPassWarps];
    float means[2];
};
/// The same of each side of zero.
struct TwoMeanShared {
    double sums[2][2][kPassWarps];
    std::uint32_t least_exponents[2][2][kPassWarps];
    std::uint32_t negatives[2][kPassWarps];
    TwoMeans means[2];
};

/// The sum of this warp's magnitudes in fp64, in any order, and the least exponent of one that is not 0.
struct WarpSum {
    double sum;
    std::uint32_t least_exponent;
};
__device__ inline WarpSum sum_warp(const Vector (&r)[kThreadVectors]) {
    double sum = 0;
    std::uint32_t least = kNothing;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const std::uint32_t size = element::magnitude_bits(r[j].at[c]);
            sum = sum + static_cast<double>(element::float_of(size));
            least = min(least, size == 0 ? kNothing : max(size >> 23U, 1U));
        }
    }
#pragma unroll
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) sum = sum + __shfl_xor_sync(~0U, sum, lanes);
    return {sum, __reduce_min_sync(~0U, least)};
}

/// Whether no sum of some of the numbers was rounded: all are multiples of the least one's last bit, and the whole sum,
/// which none exceeds, has no more than 53 bits of it. Then their order cannot show.
__device__ inline bool is_exact(double sum, std::uint32_t least_exponent) {
    if (sum == 0) return true;
    const auto exponent = static_cast<std::uint32_t>(__double2hiint(sum)) >> 20U & 0x7FFU;
    constexpr std::uint32_t kDoubleOverFloat = 1023 - 127;
    return exponent - kDoubleOverFloat + 23U <= least_exponent + 52U;
}

/// Where a tile's numbers are for one warp to see in the order of the format: over the stage's first array, which is
/// given back once nobody needs them.
struct StageValues {
    const TileStage& stage;
    __device__ void keep(const Vector (&r)[kThreadVectors]) const {
        auto* values = reinterpret_cast<float*>(stage.arrays);
        __syncwarp();  // all lanes have read
#pragma unroll
        for (unsigned j = 0; j < kThreadVectors; ++j)
            *reinterpret_cast<float4*>(values + place_of(stage.work, own_vector(j)).local) =
                make_float4(r[j].at[0], r[j].at[1], r[j].at[2], r[j].at[3]);
        before_async_writes();
    }
    __device__ float at(std::uint32_t i) const { return reinterpret_cast<const float*>(stage.arrays)[i]; }
    __device__ void release() const { arrive(stage.empty); }
};
/// Those of a rotation lie where it left them, and the stage was given back before it.
struct RotatedValues {
    const float* values;
    __device__ void keep(const Vector (&)[kThreadVectors]) const {}
    __device__ float at(std::uint32_t i) const { return values[rotated_place(i)]; }
    __device__ void release() const {}
};

__device__ inline void tell_magnitudes(const Vector (&r)[kThreadVectors], SignShared& ret_shared, unsigned turn) {
    const WarpSum own = sum_warp(r);
    if (threadIdx.x % 32 != 0) return;
    ret_shared.sums[turn][threadIdx.x / 32] = own.sum;
    ret_shared.least_exponents[turn][threadIdx.x / 32] = own.least_exponent;
}
/// What the warps told of a tile's magnitudes. A whole warp; the same in every lane.
__device__ inline WarpSum fold_warps(const SignShared& shared, unsigned turn) {
    const unsigned lane = threadIdx.x % 32;
    double sum = lane < kPassWarps ? shared.sums[turn][lane] : 0.0;
#pragma unroll
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) sum = sum + __shfl_xor_sync(~0U, sum, lanes);
    return {sum, __reduce_min_sync(~0U, lane < kPassWarps ? shared.least_exponents[turn][lane] : kNothing)};
}

/// The tile's mean magnitude as the format defines it, and the stage's arrays are given back. Nearly always its sum is
/// exact; else one warp sums up in the order of the format, by way of shared memory.
template <typename Values>
__device__ inline float mean_of_tile(const TileStage& stage, const Values& values, const Vector (&r)[kThreadVectors],
                                     SignShared& shared) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned turn = stage.number % 2;
    tell_magnitudes(r, shared, turn);
    meet_lookers();
    const WarpSum all = fold_warps(shared, turn);
    if (is_exact(all.sum, all.least_exponent)) {
        values.release();
        return static_cast<float>(all.sum / static_cast<double>(stage.work.elements));
    }
    values.keep(r);
    meet_lookers();
    if (threadIdx.x < 32) {
        const float mean = mean_magnitude(stage.work.elements, [&values](std::uint32_t at) { return values.at(at); });
        if (lane == 0) shared.means[turn] = mean;
    }
    values.release();
    meet_lookers();
    return shared.means[turn];
}

/// Codes the tile once its scale is known: its mean magnitude, or a number. Leaves what left_of says.
template <bool kDecodes, typename Values>
__device__ inline void code_signs(const TileStage& stage, const Values& values, const DensePayload& payload,
                                  Vector (&r)[kThreadVectors], SignShared& shared) {
    const TileWork& work = stage.work;
    float scale = work.plan.sign_scale;
    if (scale > 0.0F) {
        values.release();
    } else {
        scale = mean_of_tile(stage, values, r, shared);
        if (threadIdx.x == 0) reinterpret_cast<float*>(payload.scales)[work.tile_in_chunk] = scale;
    }
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j)
        store_signs<kDecodes>(work, payload.values, own_vector(j), SignScales{scale, scale}, r[j]);
}

/// The same with DRIVE's scale, the sum of squares over that of magnitudes. `lane_squares` and `magnitudes`: shared
/// memory that the warps tell each other in.
__device__ inline void code_drive(const TileStage& stage, const RotatedValues& values, const DensePayload& payload,
                                  Vector (&y)[kThreadVectors], SignShared& shared, double* lane_squares,
                                  double& magnitudes) {
    const TileWork& work = stage.work;
    const unsigned lane = threadIdx.x % 32;
    const unsigned turn = stage.number % 2;
    tell_magnitudes(y, shared, turn);
    lane_squares[threadIdx.x / 32 * kSquareRow + lane] = sum_squares_of(y[0], y[1]);
    meet_lookers();
    const WarpSum all = fold_warps(shared, turn);
    double sum = all.sum;
    if (!is_exact(all.sum, all.least_exponent)) {
        if (threadIdx.x < 32) {
            const double ordered = sum_magnitudes(work.elements, [&values](std::uint32_t at) { return values.at(at); });
            if (lane == 0) magnitudes = ordered;
        }
        meet_lookers();
        sum = magnitudes;
    }
    const float scale = sum > 0.0 ? static_cast<float>(fold_squares(lane_squares) / sum) : 0.0F;
    if (threadIdx.x == 0) reinterpret_cast<float*>(payload.scales)[work.tile_in_chunk] = scale;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j)
        store_signs<true>(work, payload.values, own_vector(j), SignScales{scale, scale}, y[j]);
}

/// The sums of this warp's magnitudes on each side of zero, as sum_warp.
struct WarpSides {
    WarpSum of[2];
    std::uint32_t negatives;
};
__device__ inline WarpSides sum_sides(const Vector (&r)[kThreadVectors]) {
    Vector sides[2][kThreadVectors];
    std::uint32_t negatives = 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const bool is_negative = r[j].at[c] < 0.0F;
            negatives += is_negative ? 1U : 0U;
            sides[0][j].at[c] = is_negative ? 0.0F : r[j].at[c];
            sides[1][j].at[c] = is_negative ? r[j].at[c] : 0.0F;
        }
    }
    return {{sum_warp(sides[0]), sum_warp(sides[1])}, __reduce_add_sync(~0U, negatives)};
}

/// The tile's means as the format defines them, and the stage's arrays are given back; see mean_of_tile.
template <typename Values>
__device__ inline TwoMeans means_of_tile(const TileStage& stage, const Values& values,
                                         const Vector (&r)[kThreadVectors], TwoMeanShared& shared) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    const unsigned turn = stage.number % 2;
    const WarpSides own = sum_sides(r);
    if (lane < 2) {
        const WarpSum& side = lane == 0 ? own.of[0] : own.of[1];
        shared.sums[turn][lane][warp] = side.sum;
        shared.least_exponents[turn][lane][warp] = side.least_exponent;
        shared.negatives[turn][warp] = own.negatives;
    }
    meet_lookers();
    // Half a warp adds up each side.
    static_assert(kPassWarps == 16);
    const unsigned side = lane / 16;
    double sum = shared.sums[turn][side][lane % 16];
    std::uint32_t least = shared.least_exponents[turn][side][lane % 16];
#pragma unroll
    for (unsigned lanes = 8; lanes > 0; lanes /= 2) {
        sum = sum + __shfl_xor_sync(~0U, sum, static_cast<int>(lanes));
        least = min(least, __shfl_xor_sync(~0U, least, static_cast<int>(lanes)));
    }
    const std::uint32_t negatives = __reduce_add_sync(~0U, lane < 16 ? shared.negatives[turn][lane] : 0U);
    const std::uint32_t counts[2] = {stage.work.elements - negatives, negatives};
    if (__all_sync(~0U, is_exact(sum, least)) != 0) {
        values.release();
        const float mean = mean_of_side(sum, side == 0 ? counts[0] : counts[1]);
        return {{__shfl_sync(~0U, mean, 0), __shfl_sync(~0U, mean, 16)}};
    }
    values.keep(r);
    meet_lookers();
    if (threadIdx.x < 32) {
        const TwoMeans means =
            means_of_sides(stage.work.elements, [&values](std::uint32_t at) { return values.at(at); });
        if (lane == 0) shared.means[turn] = means;
    }
    values.release();
    meet_lookers();
    return shared.means[turn];
}

/// Codes the tile once its means are known.
template <bool kDecodes, typename Values>
__device__ inline void code_two_means(const TileStage& stage, const Values& values, const DensePayload& payload,
                                      Vector (&r)[kThreadVectors], TwoMeanShared& shared) {
    const TileWork& work = stage.work;
    const TwoMeans means = means_of_tile(stage, values, r, shared);
    if (threadIdx.x < 2)
        reinterpret_cast<float*>(payload.scales)[work.tile_in_chunk * 2 + threadIdx.x] =
            threadIdx.x == 0 ? means.of[0] : means.of[1];
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j)
        store_signs<kDecodes>(work, payload.values, own_vector(j), SignScales{means.of[0], means.of[1]}, r[j]);
}

template <>
struct DenseForm<stages::Sign::kFacts.kind> {
    using Shared = SignShared;
    static constexpr bool kHoldsStage = true;
    static constexpr Leftover kLeftover = Leftover::kCaller;

    template <bool kDecodes, typename Values, typename Block>
    static __device__ void code(const TileStage& stage, const Values& values, const DensePayload& payload,
                                Vector (&r)[kThreadVectors], Block& shared) {
        if constexpr (kDecodes) {
            if (static_cast<Rotation>(stage.work.plan.rotation) == Rotation::kDrive)
                return code_drive(stage, values, payload, r, shared.template as<Shared>(), shared.dither.lane_squares,
                                  shared.rotate.magnitudes);
        }
        code_signs<kDecodes>(stage, values, payload, r, shared.template as<Shared>());
    }
};

template <>
struct DenseForm<stages::TwoMean::kFacts.kind> {
    using Shared = TwoMeanShared;
    static constexpr bool kHoldsStage = true;
    static constexpr Leftover kLeftover = Leftover::kCaller;

    template <bool kDecodes, typename Values, typename Block>
    static __device__ void code(const TileStage& stage, const Values& values, const DensePayload& payload,
                                Vector (&r)[kThreadVectors], Block& shared) {
        code_two_means<kDecodes>(stage, values, payload, r, shared.template as<Shared>());
    }
};

}  // namespace gradsieve::codec::cuda
