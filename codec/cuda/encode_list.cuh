// The dense pass of the pipelines that send lists. A block looks at a tile at a time: r and v of every element, and
// which of them the selector picks. Then either the tile is sent at once, its scale being known after one barrier, and
// what is written is settled already; or, where the tensor must be known first (top-k, pow2(scope=tensor)), a list
// waits in the tile's slot. The block that makes a chunk whole codes it while others go on.
#pragma once

#include "codec/cuda/chunk_code.cuh"
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/tile_observe.cuh"
#include "codec/cuda/tile_pick.cuh"
#include "codec/cuda/tile_pipe.cuh"

namespace gradsieve::codec::cuda {

/// Which arrays come through shared memory, in this order: r, v, samples, the second moment. Many samples are loaded
/// where they are needed: they keep device memory busy by themselves.
template <VarianceSource kSource, unsigned kSamples>
struct ListArrays {
    static constexpr bool kHasVariance = kSource != VarianceSource::kNone;
    static constexpr unsigned kFirstSample = kHasVariance ? 2 : 1;
    static constexpr unsigned kFetchedSamples = kSamples <= 2 ? kSamples : 0;
    static constexpr bool kHasMoment = kSource == VarianceSource::kSecondMoment && kSamples == 1;
    static constexpr unsigned kMoment = kFirstSample + kFetchedSamples;
    static constexpr unsigned kCount = kMoment + (kHasMoment ? 1 : 0);
    static_assert(kCount <= kMostArrays);

    __device__ static ArrayList of(const TileWork& work) {
        ArrayList list{};
        const auto add = [&list](unsigned array, const void* from, std::uint32_t bytes) {
            list.from[array] = from;
            list.bytes[array] = bytes;
        };
        add(0, work.plan.residual_in + work.first, kArrayBytes);
        if constexpr (kHasVariance) add(1, work.plan.variance_in + work.first, kArrayBytes);
#pragma unroll
        for (unsigned sample = 0; sample < kFetchedSamples; ++sample)
            add(kFirstSample + sample, sample_from(work.samples[sample], work.first),
                sample_bytes(work.samples[sample]));
        if constexpr (kHasMoment) add(kMoment, work.moments[0] + work.first, kArrayBytes);
        return list;
    }
};

/// Blocks of a multiprocessor that the registers have to suffice for.
template <VarianceSource kSource, unsigned kSamples>
inline constexpr unsigned kListBlocks = kSamples == 1 && kSource != VarianceSource::kSecondMoment ? 2 : 1;

/// What the samples say of one vector, out of shared memory where it was fetched.
template <VarianceSource kSource, unsigned kSamples>
__device__ inline Observed<1> observe_vector(const TileStage& stage, float* scratch, unsigned number,
                                             bool& inout_is_finite) {
    using Arrays = ListArrays<kSource, kSamples>;
    const TileWork& work = stage.work;
    Observed<1> seen;
    if (Arrays::kFetchedSamples == 0 || work.is_wide == 0) {
        observe<kSource, kSamples, 1>(work, scratch, number, seen, inout_is_finite);
        return seen;
    }
    if constexpr (Arrays::kFetchedSamples > 0) {
        Vector values[Arrays::kFetchedSamples][1];
#pragma unroll
        for (unsigned sample = 0; sample < Arrays::kFetchedSamples; ++sample)
            values[sample][0] = staged_sample(stage.arrays + (Arrays::kFirstSample + sample) * kArrayBytes, number,
                                              work.samples[sample].type);
        if constexpr (kIsOfGroups<kSource>) {
            combine_groups<1, Arrays::kFetchedSamples>(work, values, seen);
            if constexpr (kSource == VarianceSource::kGroupsPooled) pool_noise(work, number, seen.noise[0]);
        } else {
#pragma unroll
            for (unsigned c = 0; c < 4; ++c) seen.mean[0].at[c] = work.samples[0].weight * values[0][0].at[c];
        }
        if constexpr (Arrays::kHasMoment) {
            seen.noise[0] = staged_floats(stage.arrays + Arrays::kMoment * kArrayBytes, number);
#pragma unroll
            for (unsigned c = 0; c < 4; ++c) inout_is_finite = inout_is_finite && element::is_finite(seen.noise[0].at[c]);
        }
    }
    return seen;
}

/// r and v of a thread's vectors as if nothing were sent, v before any decay, and what is picked.
template <VarianceSource kSource, unsigned kSamples>
__device__ inline bool look_at_vectors(const EncodeRound& round, const TileStage& stage, PickedVectors& ret_picked) {
    constexpr bool kHasVariance = kSource != VarianceSource::kNone;
    const TileWork& work = stage.work;
    const TensorPlan& plan = work.plan;
    float* scratch = round.sample_scratch + std::size_t{blockIdx.x} * round.scratch_samples * kPassThreads * 4;
    bool is_finite = true;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        const unsigned number = vector_number(j);
        Vector& r = ret_picked.r[j];
        Vector& v = ret_picked.v[j];
        if (work.is_wide != 0) {
            r = staged_floats(stage.arrays, number);
            if constexpr (kHasVariance) v = staged_floats(stage.arrays + kArrayBytes, number);
        } else {
            Vector loaded[1];
            load_floats(work, plan.residual_in, number, loaded);
            r = loaded[0];
            if constexpr (kHasVariance) {
                load_floats(work, plan.variance_in, number, loaded);
                v = loaded[0];
            }
        }
        const Observed<1> seen = observe_vector<kSource, kSamples>(stage, scratch, number, is_finite);
        const std::uint32_t valid = place_of(work, number).valid;
        std::uint32_t mask = 0;
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const float residual = element::carried(plan.rescale, r.at[c], seen.mean[0].at[c]);
            r.at[c] = residual;
            is_finite = is_finite && element::is_finite(residual);
            bool is_picked = c < valid;
            if constexpr (kHasVariance) {
                const float inc = increment<kSource>(plan, seen.mean[0].at[c], seen.noise[0].at[c]);
                const float variance = element::saturated(element::carried(plan.rescale_squared, v.at[c], inc));
                v.at[c] = variance;
                is_picked = is_picked && element::passes_variance_test(residual, plan.ratio_floor, variance) &&
                            element::magnitude(residual) > plan.least_magnitude;
            }
            mask |= is_picked ? 1U << c : 0U;
        }
        if (kHasVariance && round.gate_words != nullptr) store_gate(round, work, mask, place_of(work, number).local);
#pragma unroll
        for (unsigned c = 0; c < 4; ++c)
            if (element::magnitude_bits(r.at[c]) < plan.magnitude_floor) mask &= ~(1U << c);
        ret_picked.masks[j] = mask;
    }
    return is_finite;
}

/// Lies at the beginning of the block's dynamic shared memory, before the stages.
template <bool kIsDeferred>
struct ListShared {
    PipeShared pipe;
    PickShared pick;
};
template <>
struct ListShared<false> {
    PipeShared pipe;
    PickShared pick;
    CodeShared code;
};

template <VarianceSource kSource, unsigned kSamples, bool kIsDeferred>
__global__ void __launch_bounds__(kPassBlock, (kListBlocks<kSource, kSamples>))
    list_tiles(const __grid_constant__ EncodeRound round) {
    using Arrays = ListArrays<kSource, kSamples>;
    auto& shared = *reinterpret_cast<ListShared<kIsDeferred>*>(dynamic_shared());
    constexpr std::uint32_t kSharedBytes = kStagesBegin<ListShared<kIsDeferred>>;
    open_picks(shared.pick);
    open_pipe(shared.pipe, round.stages);
    if (threadIdx.x >= kPassThreads) {
        fetch_tiles<Arrays::kCount>(
            round, shared.pipe, kSharedBytes, [](const TileWork& work) { return Arrays::of(work); },
            [&](unsigned slot) {
                if constexpr (kIsDeferred) return kNothing;
                return close_tile(round, shared.pipe.works[slot], shared.pick.quotients[slot]);
            });
        return;
    }
    const auto look = [&](const TileStage& stage, auto release) {
        PickedVectors picked;
        const bool is_finite = look_at_vectors<kSource, kSamples>(round, stage, picked);
        if (!is_finite)
            report_trouble(stage.work, vector_number(0), kThreadVectors,
                           round.tensor_states[round.chunks[stage.work.chunk].tensor]);
        if constexpr (kIsDeferred)
            list_picked(round, stage, picked, shared.pick, release);
        else
            send_picked(round, stage, picked, shared.pick, release);
    };
    look_at_tiles<Arrays::kCount>(round, shared.pipe, kSharedBytes, look, [&](std::uint32_t chunk) {
        if constexpr (!kIsDeferred) code_chunk(round, chunk, shared.code);
    });
}

template <VarianceSource kSource, unsigned kSamples, bool kIsDeferred>
PassKernel describe_list_pass() {
    return {&list_tiles<kSource, kSamples, kIsDeferred>, kListBlocks<kSource, kSamples>,
            kStagesBegin<ListShared<kIsDeferred>>, ListArrays<kSource, kSamples>::kCount * kArrayBytes};
}
template <VarianceSource kSource, unsigned kSamples>
PassKernel list_pass(bool is_deferred) {
    return is_deferred ? describe_list_pass<kSource, kSamples, true>() : describe_list_pass<kSource, kSamples, false>();
}

}  // namespace gradsieve::codec::cuda
