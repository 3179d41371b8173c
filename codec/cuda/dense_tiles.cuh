// The dense pass of the pipelines that send every element (all but those whose payloads are lists): reads samples and
// residual, writes payload and residual, each once. Where a chunk's payload lies is known beforehand, so no tile waits
// for another. Device code only; kernels with and without a rotation are in files of their own.
#pragma once

#include "codec/cuda/dense_dither.cuh"
#include "codec/cuda/dense_form.cuh"
#include "codec/cuda/dense_integer.cuh"
#include "codec/cuda/dense_minmax.cuh"
#include "codec/cuda/dense_payload.cuh"
#include "codec/cuda/dense_rotate.cuh"
#include "codec/cuda/dense_sign.cuh"
#include "codec/cuda/dense_stage.cuh"
#include "codec/cuda/dense_vectors.cuh"
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/tile_observe.cuh"
#include "codec/cuda/tile_send.cuh"

#include <type_traits>

namespace gradsieve::codec::cuda {

/// Threads of a block: those that look, the warp that fetches, and with dither one that finds the tiles' units.
template <QuantizerKind kQuantizer>
inline constexpr unsigned kDenseBlock = kPassThreads + (is_dithered(kQuantizer) ? 64 : 32);

/// Arrays that come through shared memory: r, and the sample where there is one.
template <unsigned kSamples>
inline constexpr unsigned kDenseArrays = kSamples == 1 ? 2 : 1;

/// Lies at the beginning of the block's dynamic shared memory, before the stages.
struct DenseShared {
    PipeShared pipe;
    alignas(double) std::byte form[largest_shared(Quantizers{})];  ///< DenseForm::Shared
    DitherShared dither;

    template <typename Shared>
    __device__ Shared& as() {
        static_assert(alignof(Shared) <= alignof(double));
        return *reinterpret_cast<Shared*>(form);
    }
};
struct RotatedShared : DenseShared {
    RotateShared rotate;
};
template <bool kRotated>
using SharedOf = std::conditional_t<kRotated, RotatedShared, DenseShared>;

/// The largest magnitude bits of this thread's vectors; those of what is not finite are above all others.
__device__ inline std::uint32_t largest_bits(const Vector (&r)[kThreadVectors]) {
    // Of numbers with a sign the largest bits are those of the largest magnitude, of the others the largest signed
    // ones: three numbers are compared at a time, and no sign is taken off.
    std::int32_t positive = 0;
    std::uint32_t any = 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j)
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const std::uint32_t bits = element::bits_of(r[j].at[c]);
            positive = max(positive, static_cast<std::int32_t>(bits));
            any = max(any, bits);
        }
    return max(static_cast<std::uint32_t>(positive), any & element::kMagnitudeMask);
}

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
/// r of this thread's vectors. Returns their largest_bits.
template <unsigned kSamples>
__device__ inline std::uint32_t accumulate(const TileStage& stage, Vector (&ret_r)[kThreadVectors]) {
    if (kSamples == 1 && stage.work.is_wide != 0)
        accumulate_fetched(stage, ret_r);
    else
        accumulate_any<kSamples>(stage, ret_r);
    return largest_bits(ret_r);
}

/// Codes the tile and writes what is left of it.
template <QuantizerKind kQuantizer>
__device__ inline void code_tile(const TileStage& stage, Vector (&r)[kThreadVectors], std::uint32_t own_largest,
                                 DenseShared& shared) {
    const TileWork& work = stage.work;
    if constexpr (is_dithered(kQuantizer)) {
        code_levels<kQuantizer, false>(stage, r, own_largest, shared.dither);
    } else {
        const DensePayload payload = payload_of<false>(work, kQuantizer);
        if (work.tile_in_chunk == 0 && threadIdx.x == 0) store_header<kQuantizer>(work.plan, payload.header);
        using Form = DenseForm<kQuantizer>;
        if constexpr (!Form::kHoldsStage) arrive(stage.empty);
        Form::template code<false>(stage, StageValues{stage}, payload, r, shared);
        float* const residual_out = work.plan.residual_out;
        if constexpr (Form::kLeftover == Leftover::kNobody) return;
        if (Form::kLeftover == Leftover::kCaller || residual_out != nullptr)
            store_vectors(work, residual_out, own_vector(0), r);
    }
}

/// A finite tile has a number that is too large to be rotated: its largest is where the step fails.
__device__ inline void report_large(const TileWork& work, const Vector (&r)[kThreadVectors], std::uint32_t largest,
                                    TensorState& state) {
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j)
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            if (element::magnitude_bits(r[j].at[c]) != largest) continue;
            const std::uint32_t index = work.first + place_of(work, own_vector(j)).local + c;
            atomicMin(reinterpret_cast<unsigned long long*>(&state.non_finite), std::uint64_t{index} << 16U);
        }
}

/// Rotates the tile, codes it, and takes off what its codes decode to, rotated back.
template <QuantizerKind kQuantizer>
__device__ inline void code_rotated_tile(const EncodeRound& round, const TileStage& stage,
                                         const Vector (&r)[kThreadVectors], std::uint32_t own_largest,
                                         RotatedShared& shared) {
    const TileWork& work = stage.work;
    if constexpr (!is_dithered(kQuantizer)) arrive(stage.empty);
    const ChunkPlan& chunk = round.chunks[work.chunk];
    const PhiloxKey key = chunk.rule.key;
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t largest_of_warp = __reduce_max_sync(~0U, own_largest);
    std::uint32_t(&told)[kPassWarps] = shared.rotate.largest[stage.number % 2];
    if (lane == 0) told[threadIdx.x / 32] = largest_of_warp;
    const std::uint32_t signs = draw_signs<kThreadVectors>(key, work.tile_in_chunk * (kTile / 128) + own_vector(0));
    Vector y[kThreadVectors];
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) y[j] = r[j];
    rotate_vectors<false>(work.elements, signs, shared.rotate, y);
    const std::uint32_t largest = __reduce_max_sync(~0U, told[lane % kPassWarps]);
    if (largest > element::bits_of(kMostRotated) && largest < element::kExponentMask && own_largest == largest)
        report_large(work, r, largest, round.tensor_states[chunk.tensor]);
    if constexpr (is_dithered(kQuantizer)) {
        code_levels<kQuantizer, true>(stage, y, largest_bits(y), shared.dither);
    } else {
        const DensePayload payload = payload_of<true>(work, kQuantizer);
        if (work.tile_in_chunk == 0 && threadIdx.x == 0) store_header<kQuantizer>(work.plan, payload.header, &key);
        DenseForm<kQuantizer>::template code<true>(stage, RotatedValues{shared.rotate.values}, payload, y, shared);
    }
    if (work.plan.residual_out == nullptr) return;
    rotate_vectors<true>(work.elements, signs, shared.rotate, y);
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j)
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) y[j].at[c] = r[j].at[c] - y[j].at[c];
    store_vectors(work, work.plan.residual_out, own_vector(0), y);
}

template <QuantizerKind kQuantizer, unsigned kSamples, bool kRotated>
__global__ void __launch_bounds__(kDenseBlock<kQuantizer>, 2) code_tiles(const __grid_constant__ EncodeRound round) {
    using Shared = SharedOf<kRotated>;
    auto& shared = *reinterpret_cast<Shared*>(dynamic_shared());
    constexpr unsigned kArrays = kDenseArrays<kSamples>;
    const StageRoom room{kStagesBegin<Shared>, kArrays * kArrayBytes};
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
            const DensePayload payload = payload_of<kRotated>(stage.work, kQuantizer);
            if (stage.work.tile_in_chunk == 0 && threadIdx.x % 32 == 0) {
                if constexpr (kRotated)
                    store_header<kQuantizer>(stage.work.plan, payload.header, &round.chunks[stage.work.chunk].rule.key);
                else
                    store_header<kQuantizer>(stage.work.plan, payload.header);
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
        if constexpr (kRotated)
            code_rotated_tile<kQuantizer>(round, stage, r, own_largest, shared);
        else if constexpr (has_step(kQuantizer))
            code_integer_tile(round, stage, r, shared.template as<IntegerShared>());
        else
            code_tile<kQuantizer>(stage, r, own_largest, shared);
        return false;
    };
    look_at_tiles(round, shared.pipe, room, look);
}

template <QuantizerKind kQuantizer, bool kRotated, unsigned kSamples>
PassKernel dense_pass() {
    return {&code_tiles<kQuantizer, kSamples, kRotated>, kDenseBlock<kQuantizer>, 2, kStagesBegin<SharedOf<kRotated>>,
            kDenseArrays<kSamples> * kArrayBytes};
}
/// The dense pass with or without a rotation, of a number of samples.
template <QuantizerKind kQuantizer, bool kRotated>
PassKernel pick_dense(unsigned samples) {
    return samples == 1 ? dense_pass<kQuantizer, kRotated, 1>() : dense_pass<kQuantizer, kRotated, 0>();
}

}  // namespace gradsieve::codec::cuda
