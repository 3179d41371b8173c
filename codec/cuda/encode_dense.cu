// The dense pass of the pipelines that send every element (f32, f16, bf16, all but pow2): reads samples and
// residual, writes payload and residual, each once. Where a chunk's payload lies is known beforehand, so no tile waits
// for another.
#include "codec/cuda/dense_dither.cuh"
#include "codec/cuda/dense_minmax.cuh"
#include "codec/cuda/dense_payload.cuh"
#include "codec/cuda/dense_sign.cuh"
#include "codec/cuda/dense_stage.cuh"
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/tile_observe.cuh"
#include "codec/cuda/tile_send.cuh"

namespace gradsieve::codec::cuda {
namespace {

/// Threads of a block: those that look, the warp that fetches, and with dither one that finds the tiles' units.
template <QuantizerKind kQuantizer>
constexpr unsigned kDenseBlock = kPassThreads + (is_dithered(kQuantizer) ? 64 : 32);

/// Arrays that come through shared memory: r, and the sample where there is one.
template <unsigned kSamples>
constexpr unsigned kDenseArrays = kSamples == 1 ? 2 : 1;

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
    arrive(stage.empty);
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

template <QuantizerKind kQuantizer, unsigned kSamples>
__global__ void __launch_bounds__(kDenseBlock<kQuantizer>, 2) code_tiles(const __grid_constant__ EncodeRound round) {
    auto& shared = *reinterpret_cast<DenseShared*>(dynamic_shared());
    constexpr unsigned kArrays = kDenseArrays<kSamples>;
    const StageRoom room{kStagesBegin<DenseShared>, kArrays * kArrayBytes};
    if constexpr (is_dithered(kQuantizer)) open_units(shared.dither);
    open_pipe(shared.pipe, round.stages, kPassThreads + (is_dithered(kQuantizer) ? 32U : 0U));
    begin_kernel();
    if (threadIdx.x / 32 == kPassWarps) {
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
        if (threadIdx.x / 32 > kPassWarps) return look_at_tiles(round, shared.pipe, room, look);
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
    look_at_tiles(round, shared.pipe, room, look);
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
        case QuantizerKind::kInteger:      // check_gpu_request refuses it
        case QuantizerKind::kPow2: break;  // pow2 sends lists
    }
    return pick<QuantizerKind::kF32>(samples);
}

}  // namespace gradsieve::codec::cuda
