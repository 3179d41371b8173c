// r and v of a thread's elements from samples, moments and the generation before: the formulas of
// codec/variance_source.hpp in their order. Also says where a number is not finite. Device code only.
#pragma once

#include "codec/cuda/tile_load.cuh"
#include "codec/variance_source.hpp"

namespace gradsieve::codec::cuda {

template <VarianceSource kSource>
inline constexpr bool kIsOfGroups = kSource == VarianceSource::kGroups || kSource == VarianceSource::kGroupsPooled;

/// What the samples of kCount vectors say: gbar, and s2 or the sum of the second moments.
template <unsigned kCount>
struct Observed {
    Vector mean[kCount];
    Vector noise[kCount];
};

/// gbar and s2 of a number of samples known when compiled: they stay in registers between the two looks at them.
template <unsigned kCount, unsigned kSamples>
__device__ inline void combine_groups(const TileWork& work, const Vector (&values)[kSamples][kCount],
                                      Observed<kCount>& ret_seen) {
#pragma unroll
    for (unsigned j = 0; j < kCount; ++j) {
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            float mean = work.samples[0].weight * values[0][j].at[c];
#pragma unroll
            for (unsigned sample = 1; sample < kSamples; ++sample)
                mean = mean + work.samples[sample].weight * values[sample][j].at[c];
            float sum = element::deviation_term(work.samples[0].weight, values[0][j].at[c], mean);
#pragma unroll
            for (unsigned sample = 1; sample < kSamples; ++sample)
                sum = sum + element::deviation_term(work.samples[sample].weight, values[sample][j].at[c], mean);
            ret_seen.mean[j].at[c] = mean;
            ret_seen.noise[j].at[c] = element::saturated(sum * work.plan.deviation_scale);
        }
    }
}

template <unsigned kCount, unsigned kSamples>
__device__ inline void observe_few_groups(const TileWork& work, unsigned number, Observed<kCount>& ret_seen) {
    Vector values[kSamples][kCount];
#pragma unroll
    for (unsigned sample = 0; sample < kSamples; ++sample)
        load_sample(work, work.samples[sample], number, values[sample]);
    combine_groups<kCount, kSamples>(work, values, ret_seen);
}

template <unsigned kCount>
__device__ inline void observe_mean(const TileWork& work, unsigned number, Observed<kCount>& ret_seen) {
    load_sample(work, work.samples[0], number, ret_seen.mean);
    for (unsigned j = 0; j < kCount; ++j)
        for (float& value : ret_seen.mean[j].at) value = work.samples[0].weight * value;
    for (unsigned sample = 1; sample < work.plan.sample_count; ++sample) {
        const SampleView view = sample_view(work, sample);
        Vector values[kCount];
        load_sample(work, view, number, values);
#pragma unroll
        for (unsigned j = 0; j < kCount; ++j)
#pragma unroll
            for (unsigned c = 0; c < 4; ++c)
                ret_seen.mean[j].at[c] = ret_seen.mean[j].at[c] + view.weight * values[j].at[c];
    }
}

/// Any number of samples: they wait in the block's scratch for the second look, one vector of each at a time.
__device__ inline void observe_many_groups(const TileWork& work, unsigned number, float* scratch, Vector& ret_mean,
                                           Vector& ret_noise) {
    float4* kept = reinterpret_cast<float4*>(scratch) + threadIdx.x;
    Vector mean;
    for (unsigned sample = 0; sample < work.plan.sample_count; ++sample) {
        const SampleView view = sample_view(work, sample);
        Vector values[1];
        load_sample(work, view, number, values);
        const float* at = values[0].at;
        kept[sample * kScratchThreads] = make_float4(at[0], at[1], at[2], at[3]);
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const float part = view.weight * at[c];
            mean.at[c] = sample == 0 ? part : mean.at[c] + part;
        }
    }
    Vector sum;
    for (unsigned sample = 0; sample < work.plan.sample_count; ++sample) {
        const float weight = sample_view(work, sample).weight;
        const float4 value = kept[sample * kScratchThreads];
        const float at[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const float term = element::deviation_term(weight, at[c], mean.at[c]);
            sum.at[c] = sample == 0 ? term : sum.at[c] + term;
        }
    }
    ret_mean = mean;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) ret_noise.at[c] = element::saturated(sum.at[c] * work.plan.deviation_scale);
}

/// Averages s2 over aligned groups of 32 elements, which eight lanes hold: element i + 16 onto i, then 8, 4, 2, 1.
__device__ inline void pool_noise(const TileWork& work, unsigned number, Vector& inout_noise) {
    float* at = inout_noise.at;
#pragma unroll
    for (unsigned lanes = 4; lanes > 0; lanes /= 2) {
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) at[c] = at[c] + __shfl_xor_sync(~0U, at[c], lanes);
    }
    const float sum = (at[0] + at[2]) + (at[1] + at[3]);
    const std::uint32_t group = place_of(work, number).local & ~31U;
    const std::uint32_t valid = work.elements > group ? min(32U, work.elements - group) : 32U;
    const float average = element::saturated(sum * (1.0F / static_cast<float>(valid)));
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) at[c] = average;
}

/// `ret_is_finite` turns false if a second moment is not.
template <unsigned kCount>
__device__ inline void observe_moments(const TileWork& work, unsigned number, Observed<kCount>& ret_seen,
                                       bool& ret_is_finite) {
    for (unsigned rank = 0; rank < work.plan.moment_count; ++rank) {
        Vector moments[kCount];
        load_floats(work, work.moments[rank], number, moments);
#pragma unroll
        for (unsigned j = 0; j < kCount; ++j) {
#pragma unroll
            for (unsigned c = 0; c < 4; ++c) {
                const float moment = moments[j].at[c];
                ret_is_finite = ret_is_finite && element::is_finite(moment);
                ret_seen.noise[j].at[c] = rank == 0 ? moment : ret_seen.noise[j].at[c] + moment;
            }
        }
    }
}

template <VarianceSource kSource, unsigned kSamples, unsigned kCount>
__device__ inline void observe(const TileWork& work, float* scratch, unsigned number, Observed<kCount>& ret_seen,
                               bool& ret_is_finite) {
    if constexpr (!kIsOfGroups<kSource>) {
        if constexpr (kSource == VarianceSource::kSecondMoment) observe_moments(work, number, ret_seen, ret_is_finite);
        if constexpr (kSamples == 1) {
            load_sample(work, work.samples[0], number, ret_seen.mean);
#pragma unroll
            for (unsigned j = 0; j < kCount; ++j)
                for (float& value : ret_seen.mean[j].at) value = work.samples[0].weight * value;
        } else {
            observe_mean(work, number, ret_seen);
        }
    } else if constexpr (kSamples > 0) {
        observe_few_groups<kCount, kSamples>(work, number, ret_seen);
    } else {
#pragma unroll
        for (unsigned j = 0; j < kCount; ++j)
            observe_many_groups(work, number + j, scratch, ret_seen.mean[j], ret_seen.noise[j]);
    }
    if constexpr (kSource == VarianceSource::kGroupsPooled)
#pragma unroll
        for (unsigned j = 0; j < kCount; ++j) pool_noise(work, number + j, ret_seen.noise[j]);
}

/// What v grows by.
template <VarianceSource kSource>
__device__ inline float increment(const TensorPlan& plan, float mean, float noise) {
    if constexpr (kSource == VarianceSource::kSecondMoment) return element::moment_increment(noise, plan.moment_scale);
    if constexpr (kSource == VarianceSource::kSingle) return element::saturated(mean * mean);
    return element::group_increment(noise, mean, plan.noise_share, plan.mean_share);
}

/// The trouble with one element, as codec/dense_pass.cpp words it: the sample, the first sample of the moment's rank,
/// or sample 0 if only the sum is not finite; kNothing. Reads the element again, only to say so.
static __device__ __noinline__ std::uint32_t find_trouble(const TileWork& work, std::uint32_t index) {
    const TensorPlan& plan = work.plan;
    float mean = 0;
    for (std::uint32_t sample = 0; sample < plan.sample_count; ++sample) {
        const SampleView view = work.all_samples[sample];
        const float value = load_sample_at(view, index);
        if (!element::is_finite(value)) return sample;
        mean = mean + view.weight * value;
    }
    for (std::uint32_t moment = 0; moment < plan.moment_count; ++moment) {
        if (element::is_finite(load_once(work.moments[moment] + index))) continue;
        const std::uint64_t sample = std::uint64_t{moment} * plan.sample_count / plan.moment_count;
        return min(static_cast<std::uint32_t>(sample), plan.sample_count - 1);
    }
    const float residual =
        plan.residual_in == nullptr ? mean : element::carried(plan.rescale, plan.residual_in[index], mean);
    return element::is_finite(residual) ? kNothing : 0U;
}

/// This thread saw something that is not finite among its vectors, `count` from `first` on: keeps the least (element,
/// sample) of the tensor.
static __device__ __noinline__ void report_trouble(const TileWork& work, unsigned first, unsigned count,
                                                   TensorState& state) {
    for (unsigned number = first; number < first + count; ++number) {
        const VectorPlace place = place_of(work, number);
        for (unsigned c = 0; c < place.valid; ++c) {
            const std::uint32_t index = work.first + place.local + c;
            const std::uint32_t sample = find_trouble(work, index);
            if (sample == kNothing) continue;
            atomicMin(reinterpret_cast<unsigned long long*>(&state.non_finite), (std::uint64_t{index} << 16U) | sample);
            return;
        }
    }
    // The samples were changed since: the step fails all the same.
    const std::uint32_t index = work.first + place_of(work, first).local;
    if (index < work.plan.elements)
        atomicMin(reinterpret_cast<unsigned long long*>(&state.non_finite), std::uint64_t{index} << 16U);
}

}  // namespace gradsieve::codec::cuda
