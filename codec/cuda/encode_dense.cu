// The dense pass of the pipelines that send every element (f32, f16, bf16, all but pow2): reads samples and
// residual, writes payload and residual, each once. Where a chunk's payload lies is known beforehand, so no tile waits
// for another.
#include "codec/cuda/dense_dither.cuh"
#include "codec/cuda/dense_minmax.cuh"
#include "codec/cuda/dense_payload.cuh"
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/tile_observe.cuh"
#include "codec/cuda/tile_pipe.cuh"
#include "codec/cuda/tile_send.cuh"
#include "codec/two_mean.hpp"

namespace gradsieve::codec::cuda {
namespace {

/// Threads of a block: those that look, the warp that fetches, and with dither one that finds the tiles' units.
template <QuantizerKind kQuantizer>
constexpr unsigned kDenseBlock = kPassThreads + (is_dithered(kQuantizer) ? 64 : 32);

/// Arrays that come through shared memory: r, and the sample where there is one.
template <unsigned kSamples>
constexpr unsigned kDenseArrays = kSamples == 1 ? 2 : 1;

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
/// Lies at the beginning of the block's dynamic shared memory, before the stages.
struct DenseShared {
    PipeShared pipe;
    union {
        SignShared sign;
        TwoMeanShared two_mean;
        MinMaxShared minmax;
    };
    DitherShared dither;
};

/// r of this thread's vectors of a tile that was fetched with its one sample.
__device__ inline void accumulate_fetched(const TileStage& stage, Vector (&ret_r)[kThreadVectors]) {
    const TileWork& work = stage.work;
    const SampleView sample = work.samples[0];
    const std::byte* samples = stage.arrays + kArrayBytes;
    if (sample.type == static_cast<std::uint32_t>(ElementType::kF32)) {
#pragma unroll
        for (unsigned j = 0; j < kThreadVectors; ++j) ret_r[j] = staged_floats(samples, own_vector(j));
    } else {
#pragma unroll
        for (unsigned j = 0; j < kThreadVectors; ++j) ret_r[j] = staged_sample(samples, own_vector(j), sample.type);
    }
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j)
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) ret_r[j].at[c] = sample.weight * ret_r[j].at[c];
    if (work.plan.residual_in == nullptr) return;
    const float rescale = work.plan.rescale;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        const Vector before = staged_floats(stage.arrays, own_vector(j));
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) ret_r[j].at[c] = element::carried(rescale, before.at[c], ret_r[j].at[c]);
    }
}
/// The same of any tile.
template <unsigned kSamples>
__device__ inline void accumulate_any(const TileStage& stage, Vector (&ret_r)[kThreadVectors]) {
    const TileWork& work = stage.work;
    const bool has_residual = work.plan.residual_in != nullptr;
    const bool is_fetched = kSamples != 1 && work.is_wide != 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        const unsigned number = own_vector(j);
        Vector before[1];
        if (has_residual && is_fetched) before[0] = staged_floats(stage.arrays, number);
        if (has_residual && !is_fetched) load_floats(work, work.plan.residual_in, number, before);
        Observed<1> seen;
        bool is_finite = true;  // which r tells, without moments
        observe<VarianceSource::kNone, kSamples, 1>(work, nullptr, number, seen, is_finite);
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const float mean = seen.mean[0].at[c];
            ret_r[j].at[c] = has_residual ? element::carried(work.plan.rescale, before[0].at[c], mean) : mean;
        }
    }
}
/// r of this thread's vectors. Returns their largest magnitude bits; those of what is not finite are above all others.
template <unsigned kSamples>
__device__ inline std::uint32_t accumulate(const TileStage& stage, Vector (&ret_r)[kThreadVectors]) {
    if (kSamples == 1 && stage.work.is_wide != 0)
        accumulate_fetched(stage, ret_r);
    else
        accumulate_any<kSamples>(stage, ret_r);
    // Of numbers with a sign the largest bits are those of the largest magnitude, of the others the largest signed
    // ones: three numbers are compared at a time, and no sign is taken off.
    std::int32_t positive = 0;
    std::uint32_t any = 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j)
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const std::uint32_t bits = element::bits_of(ret_r[j].at[c]);
            positive = max(positive, static_cast<std::int32_t>(bits));
            any = max(any, bits);
        }
    return max(static_cast<std::uint32_t>(positive), any & element::kMagnitudeMask);
}

/// Codes the tile as it comes.
template <QuantizerKind kQuantizer>
__device__ inline void code_values(const TileStage& stage, const DensePayload& payload, Vector (&r)[kThreadVectors]) {
    release(stage);
    float* const residual_out = stage.work.plan.residual_out;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        if constexpr (kQuantizer == QuantizerKind::kF32)
            store_code_f32(stage.work, payload.values, own_vector(j), r[j]);
        if constexpr (kQuantizer == QuantizerKind::kBf16 || kQuantizer == QuantizerKind::kF16)
            store_halves<kQuantizer>(stage.work, payload.values, own_vector(j), r[j]);
        if constexpr (kQuantizer == QuantizerKind::kNatural)
            store_natural(stage.work, payload.values, own_vector(j), r[j]);
        if constexpr (kQuantizer == QuantizerKind::kVote)
            store_signs(stage.work, payload.values, own_vector(j), SignScales{1.0F, 1.0F}, r[j]);
    }
    if constexpr (kQuantizer != QuantizerKind::kF32 && kQuantizer != QuantizerKind::kVote)
        if (residual_out != nullptr) store_vectors(stage.work, residual_out, own_vector(0), r);
}

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

/// Leaves r over the stage's first array, for one warp to see in the order of the format.
__device__ inline const float* keep_values(const TileStage& stage, const Vector (&r)[kThreadVectors]) {
    auto* values = reinterpret_cast<float*>(stage.arrays);
    __syncwarp();  // all lanes have read
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j)
        *reinterpret_cast<float4*>(values + place_of(stage.work, own_vector(j)).local) =
            make_float4(r[j].at[0], r[j].at[1], r[j].at[2], r[j].at[3]);
    before_async_writes();
    return values;
}

/// The tile's mean magnitude as the format defines it, and the stage's arrays are given back. Nearly always its sum is
/// exact; else one warp sums up in the order of the format, by way of shared memory.
__device__ inline float mean_of_tile(const TileStage& stage, const Vector (&r)[kThreadVectors], SignShared& shared) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned turn = stage.number % 2;
    const WarpSum own = sum_warp(r);
    if (lane == 0) {
        shared.sums[turn][threadIdx.x / 32] = own.sum;
        shared.least_exponents[turn][threadIdx.x / 32] = own.least_exponent;
    }
    meet(kAllHaveRead, kPassThreads);
    double sum = lane < kPassWarps ? shared.sums[turn][lane] : 0.0;
#pragma unroll
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) sum = sum + __shfl_xor_sync(~0U, sum, lanes);
    const std::uint32_t least =
        __reduce_min_sync(~0U, lane < kPassWarps ? shared.least_exponents[turn][lane] : kNothing);
    if (is_exact(sum, least)) {
        if (threadIdx.x == 0) arrive(stage.empty);
        return static_cast<float>(sum / static_cast<double>(stage.work.elements));
    }
    const float* values = keep_values(stage, r);
    meet(kAllHaveRead, kPassThreads);
    if (threadIdx.x < 32) {
        const float mean = mean_magnitude(stage.work.elements, [values](std::uint32_t at) { return values[at]; });
        if (lane == 0) shared.means[turn] = mean;
    }
    release(stage);
    return shared.means[turn];
}

/// Codes the tile once its mean magnitude is known.
__device__ inline void code_signs(const TileStage& stage, const DensePayload& payload, Vector (&r)[kThreadVectors],
                                  SignShared& shared) {
    const TileWork& work = stage.work;
    const float scale = mean_of_tile(stage, r, shared);
    if (threadIdx.x == 0) reinterpret_cast<float*>(payload.scales)[work.tile_in_chunk] = scale;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j)
        store_signs(work, payload.values, own_vector(j), SignScales{scale, scale}, r[j]);
    store_vectors(work, work.plan.residual_out, own_vector(0), r);
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
__device__ inline TwoMeans means_of_tile(const TileStage& stage, const Vector (&r)[kThreadVectors],
                                         TwoMeanShared& shared) {
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
    meet(kAllHaveRead, kPassThreads);
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
        if (threadIdx.x == 0) arrive(stage.empty);
        const float mean = mean_of_side(sum, side == 0 ? counts[0] : counts[1]);
        return {{__shfl_sync(~0U, mean, 0), __shfl_sync(~0U, mean, 16)}};
    }
    const float* values = keep_values(stage, r);
    meet(kAllHaveRead, kPassThreads);
    if (threadIdx.x < 32) {
        const TwoMeans means = means_of_sides(stage.work.elements, [values](std::uint32_t at) { return values[at]; });
        if (lane == 0) shared.means[turn] = means;
    }
    release(stage);
    return shared.means[turn];
}

/// Codes the tile once its means are known.
__device__ inline void code_two_means(const TileStage& stage, const DensePayload& payload, Vector (&r)[kThreadVectors],
                                      TwoMeanShared& shared) {
    const TileWork& work = stage.work;
    const TwoMeans means = means_of_tile(stage, r, shared);
    if (threadIdx.x < 2)
        reinterpret_cast<float*>(payload.scales)[work.tile_in_chunk * 2 + threadIdx.x] =
            threadIdx.x == 0 ? means.of[0] : means.of[1];
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j)
        store_signs(work, payload.values, own_vector(j), SignScales{means.of[0], means.of[1]}, r[j]);
    store_vectors(work, work.plan.residual_out, own_vector(0), r);
}

template <QuantizerKind kQuantizer, unsigned kSamples>
__global__ void __launch_bounds__(kDenseBlock<kQuantizer>, 2) code_tiles(const __grid_constant__ EncodeRound round) {
    auto& shared = *reinterpret_cast<DenseShared*>(dynamic_shared());
    constexpr unsigned kArrays = kDenseArrays<kSamples>;
    const StageRoom room{kStagesBegin<DenseShared>, kArrays * kArrayBytes};
    if constexpr (is_dithered(kQuantizer)) open_units(shared.dither);
    open_pipe(shared.pipe, round.stages);
    begin_kernel();
    if (threadIdx.x >= kDenseBlock<kQuantizer> - 32) {
        const auto arrays_of = [](const TileWork& work) {
            ArrayList list{};
            if (work.plan.residual_in != nullptr) {
                list.from[0] = work.plan.residual_in + work.first;
                list.bytes[0] = kArrayBytes;
            }
            if constexpr (kSamples == 1) {
                list.from[1] = sample_from(work.samples[0], work.first);
                list.bytes[1] = sample_bytes(work.samples[0]);
            }
            return list;
        };
        return fetch_tiles<kArrays>(round, shared.pipe, room, arrays_of);
    }
    if constexpr (is_dithered(kQuantizer)) {
        UnitFinder finder;
        const auto look = [&](const TileStage& stage) {
            const DensePayload payload = payload_of(stage.work, kQuantizer);
            if (stage.work.tile_in_chunk == 0 && threadIdx.x % 32 == 0) {
                store_header(payload.header, kQuantizer, stage.work.plan.code_bits);
                if constexpr (has_base(kQuantizer)) store_base(payload.header + 3, stage.work.plan.base);
            }
            finder.template find<kQuantizer>(stage, payload.scales, payload.values, shared.dither);
            return false;
        };
        if (threadIdx.x >= kPassThreads) return look_at_tiles(round, shared.pipe, room, false, look);
    }
    const auto look = [&](const TileStage& stage) {
        const TileWork& work = stage.work;
        Vector r[kThreadVectors];
        const std::uint32_t own_largest = accumulate<kSamples>(stage, r);
        if (own_largest >= element::kExponentMask)
            report_trouble(work, own_vector(0), kThreadVectors, round.tensor_states[round.chunks[work.chunk].tensor]);
        if constexpr (is_dithered(kQuantizer)) {
            code_levels<kQuantizer>(stage, r, own_largest, shared.dither);
        } else {
            const DensePayload payload = payload_of(work, kQuantizer);
            if (work.tile_in_chunk == 0 && threadIdx.x == 0)
                store_header(payload.header, kQuantizer, work.plan.code_bits);
            if constexpr (kQuantizer == QuantizerKind::kMinMax)
                if (work.tile_in_chunk == 0 && threadIdx.x == 0) store_bucket(payload.header, work.plan);
            if constexpr (kQuantizer == QuantizerKind::kSign)
                code_signs(stage, payload, r, shared.sign);
            else if constexpr (kQuantizer == QuantizerKind::kMinMax)
                code_ranges(stage, payload.scales, payload.values, r, shared.minmax);
            else if constexpr (kQuantizer == QuantizerKind::kTwoMean)
                code_two_means(stage, payload, r, shared.two_mean);
            else
                code_values<kQuantizer>(stage, payload, r);
        }
        return false;
    };
    look_at_tiles(round, shared.pipe, room, false, look);
}

template <QuantizerKind kQuantizer, unsigned kSamples>
PassKernel dense_pass() {
    return {&code_tiles<kQuantizer, kSamples>, kDenseBlock<kQuantizer>, 2, kStagesBegin<DenseShared>,
            kDenseArrays<kSamples> * kArrayBytes};
}
template <QuantizerKind kQuantizer>
PassKernel pick(unsigned samples) {
    return samples == 1 ? dense_pass<kQuantizer, 1>() : dense_pass<kQuantizer, 0>();
}

}  // namespace

PassKernel find_dense_kernel(QuantizerKind quantizer, unsigned samples) noexcept {
    switch (quantizer) {
        case QuantizerKind::kF16: return pick<QuantizerKind::kF16>(samples);
        case QuantizerKind::kBf16: return pick<QuantizerKind::kBf16>(samples);
        case QuantizerKind::kSign: return pick<QuantizerKind::kSign>(samples);
        case QuantizerKind::kTwoMean: return pick<QuantizerKind::kTwoMean>(samples);
        case QuantizerKind::kVote: return pick<QuantizerKind::kVote>(samples);
        case QuantizerKind::kNatural: return pick<QuantizerKind::kNatural>(samples);
        case QuantizerKind::kDither: return pick<QuantizerKind::kDither>(samples);
        case QuantizerKind::kExponentialDither: return pick<QuantizerKind::kExponentialDither>(samples);
        case QuantizerKind::kMinMax: return pick<QuantizerKind::kMinMax>(samples);
        case QuantizerKind::kF32:
        case QuantizerKind::kPow2: break;  // pow2 sends lists
    }
    return pick<QuantizerKind::kF32>(samples);
}

}  // namespace gradsieve::codec::cuda
