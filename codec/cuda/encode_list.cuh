// The dense pass of the pipelines that send lists. A block looks at a tile at a time: r and v of every element, written
// as if nothing were sent, and which elements the selector picks. Then one of its warps sends those, and corrects the
// state of what it sent while its lines are in the cache; or, where the tensor must be known first (top-k,
// pow2(scope=tensor)), leaves them in the tile's slot.
#pragma once

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
    /// Of a stage: picks' indices lie over the first sample, or behind what is fetched.
    static constexpr std::uint32_t kBytes = kCount * kArrayBytes + (kFetchedSamples == 0 ? kTile * 2 : 0);
    static_assert(kCount <= kMostArrays);

    __device__ static PickRoom room_of(const TileStage& stage) {
        const TensorPlan& plan = stage.work.plan;
        PickRoom room;
        room.values = reinterpret_cast<float*>(stage.arrays);
        room.variances = kHasVariance && plan.is_hybrid != 0 ? room.values + kTile : nullptr;
        room.indices = stage.arrays + (kFetchedSamples > 0 ? kFirstSample : kCount) * kArrayBytes;
        room.index_stride = kWarpElements * (kFetchedSamples > 0 ? sample_bytes(stage.work.samples[0]) / kTile : 2U);
        return room;
    }

    __device__ static ArrayList of(const TileWork& work) {
        ArrayList list{};
        const auto add = [&list](unsigned array, const void* from, std::uint32_t bytes) {
            list.from[array] = from;
            list.bytes[array] = bytes;
        };
        add(0, work.plan.residual_in + work.first, kArrayBytes);
        if constexpr (kHasVariance) add(1, work.plan.variance_in + work.first, kArrayBytes);
        if constexpr (kFetchedSamples > 0) {
#pragma unroll
            for (unsigned sample = 0; sample < kFetchedSamples; ++sample)
                add(kFirstSample + sample, sample_from(work.samples[sample], work.first),
                    sample_bytes(work.samples[sample]));
        }
        if constexpr (kHasMoment) add(kMoment, work.moments[0] + work.first, kArrayBytes);
        return list;
    }
};

/// Blocks of a multiprocessor that the registers have to suffice for. Where v is fetched too, one whose tiles fill the
/// shared memory keeps device memory busier than two with half as many tiles on their way.
template <VarianceSource kSource, unsigned kSamples>
inline constexpr unsigned kListBlocks = kSamples == 1 && kSource == VarianceSource::kNone ? 2 : 1;

/// What the samples say of one vector, out of shared memory where it was fetched. `inout_bits`: the largest magnitude
/// bits seen, which tell whether all was finite.
template <VarianceSource kSource, unsigned kSamples>
__device__ inline Observed<1> observe_vector(const TileStage& stage, float* scratch, unsigned number,
                                             std::uint32_t& inout_bits) {
    using Arrays = ListArrays<kSource, kSamples>;
    const TileWork& work = stage.work;
    Observed<1> seen;
    if (Arrays::kFetchedSamples == 0 || work.is_wide == 0) {
        bool is_finite = true;
        observe<kSource, kSamples, 1>(work, scratch, number, seen, is_finite);
        inout_bits = is_finite ? inout_bits : ~0U;
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
            for (unsigned c = 0; c < 4; ++c) inout_bits = max(inout_bits, element::magnitude_bits(seen.noise[0].at[c]));
        }
    }
    return seen;
}

/// r and v of a thread's vectors in a part of the tile as if nothing were sent, v before any decay, and what is picked.
/// Elements that do not exist are 0, and 0 is never picked. False if something is not finite.
template <VarianceSource kSource, unsigned kSamples>
__device__ inline bool look_at_vectors(const EncodeRound& round, const TileStage& stage, unsigned part,
                                       PickedVectors& ret_picked) {
    constexpr bool kHasVariance = kSource != VarianceSource::kNone;
    const TileWork& work = stage.work;
    const TensorPlan& plan = work.plan;
    float* scratch = round.sample_scratch + std::size_t{blockIdx.x} * round.scratch_samples * kScratchThreads * 4;
    const float rescale = plan.rescale;
    const float rescale_squared = plan.rescale_squared;
    const float ratio_floor = plan.ratio_floor;
    const std::uint32_t limit = plan.magnitude_limit;
    std::uint32_t largest = 0;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        const unsigned number = vector_number(part, j);
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
        const Observed<1> seen = observe_vector<kSource, kSamples>(stage, scratch, number, largest);
        std::uint32_t above = 0;
        std::uint32_t certain = 0;
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const float residual = element::carried(rescale, r.at[c], seen.mean[0].at[c]);
            const std::uint32_t size = element::magnitude_bits(residual);
            r.at[c] = residual;
            largest = max(largest, size);
            if (size > limit) above |= 1U << c;
            if constexpr (kHasVariance) {
                const float inc = increment<kSource>(plan, seen.mean[0].at[c], seen.noise[0].at[c]);
                const float variance = element::saturated(element::carried(rescale_squared, v.at[c], inc));
                v.at[c] = variance;
                if (element::passes_variance_test(residual, ratio_floor, variance)) certain |= 1U << c;
            }
        }
        if constexpr (kHasVariance) {
            if (round.gate_words != nullptr) store_gate(round, work, certain, place_of(work, number).local);
            above &= certain;
        }
        ret_picked.masks[j] = above;
    }
    return largest < element::kExponentMask;
}

/// State as if nothing were sent.
template <bool kHasVariance>
__device__ inline void store_state(const TileWork& work, unsigned part, const PickedVectors& picked) {
    const float zeta = work.plan.zeta;
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        store_vector(work, work.plan.residual_out, vector_number(part, j), picked.r[j]);
        if constexpr (kHasVariance) {
            Vector decayed;
#pragma unroll
            for (unsigned c = 0; c < 4; ++c) decayed.at[c] = zeta * picked.v[j].at[c];
            store_vector(work, work.plan.variance_out, vector_number(part, j), decayed);
        }
    }
}

/// Lies at the beginning of the block's dynamic shared memory, before the stages.
template <bool kIsDeferred>
struct ListPassShared {
    PipeShared pipe;
    Picks picks[kPickTurns];
};
template <>
struct ListPassShared<true> {
    PipeShared pipe;
    Picks picks[kPickTurns];
    FineCounts counts;
};

template <VarianceSource kSource, unsigned kSamples, bool kIsDeferred>
__device__ inline bool look_at_tile(const EncodeRound& round, const TileStage& stage,
                                    ListPassShared<kIsDeferred>& shared) {
    const TileWork& work = stage.work;
    const unsigned part = part_of(stage.number);
    Picks& picks = shared.picks[stage.number % kPickTurns];
    PickedVectors picked;
    if (!look_at_vectors<kSource, kSamples>(round, stage, part, picked))
        report_trouble(work, vector_number(part, 0), kThreadVectors,
                       round.tensor_states[round.chunks[work.chunk].tensor]);
    store_state<kSource != VarianceSource::kNone>(work, part, picked);
    const PickRoom room = ListArrays<kSource, kSamples>::room_of(stage);
    leave_picked(picked, part, room, picks);
    const bool has_list = threadIdx.x / 32 == list_warp(stage.number);
    if (!has_list) arrive(stage.empty);
    // Two barriers in turn: the warp that sat out may come to the next one before the others have left this one.
    meet(1 + stage.number % 2, kPassThreads);
    if (!has_list) return false;
    const TileTarget target = tile_target(round, work.plan, work.tile, work.first);
    const PickedList list = gather_picked(room, picks);
    if (list.is_all_near) arrive(stage.empty);
    if constexpr (kIsDeferred)
        keep_list(round, work, target, list, shared.counts);
    else
        send_picked(work.plan, target, list);
    if (!list.is_all_near) arrive(stage.empty);
    return true;
}

template <VarianceSource kSource, unsigned kSamples, bool kIsDeferred>
__global__ void __launch_bounds__(kPickBlock, (kListBlocks<kSource, kSamples>))
    list_tiles(const __grid_constant__ EncodeRound round) {
    using Arrays = ListArrays<kSource, kSamples>;
    auto& shared = *reinterpret_cast<ListPassShared<kIsDeferred>*>(dynamic_shared());
    const StageRoom room{kStagesBegin<ListPassShared<kIsDeferred>>, Arrays::kBytes};
    if constexpr (kIsDeferred) open_counts(shared.counts);
    open_pipe(shared.pipe, round.stages, kPassThreads);
    begin_kernel();
    if (threadIdx.x >= kPickThreads) {
        return fetch_tiles<Arrays::kCount>(round, shared.pipe, room,
                                           [](const TileWork& work) { return Arrays::of(work); });
    }
    look_at_tiles(round, shared.pipe, room, [&](const TileStage& stage) {
        return look_at_tile<kSource, kSamples, kIsDeferred>(round, stage, shared);
    });
    if constexpr (kIsDeferred) {
        meet(3, kPickThreads);
        add_counts(round, shared.counts);
    }
}

template <VarianceSource kSource, unsigned kSamples, bool kIsDeferred>
PassKernel describe_list_pass() {
    return {&list_tiles<kSource, kSamples, kIsDeferred>, kPickBlock, kListBlocks<kSource, kSamples>,
            kStagesBegin<ListPassShared<kIsDeferred>>, ListArrays<kSource, kSamples>::kBytes};
}
template <VarianceSource kSource, unsigned kSamples>
PassKernel list_pass(bool is_deferred) {
    return is_deferred ? describe_list_pass<kSource, kSamples, true>() : describe_list_pass<kSource, kSamples, false>();
}

}  // namespace gradsieve::codec::cuda
