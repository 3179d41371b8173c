// Kernels of the stages in front of the selector; see payload_kernels.inl, its only user, for how the forms share this
// code.
#pragma once

#include "codec/low_pass_step.hpp"
#include "codec/momentum_step.hpp"
#include "codec/vector_types.inl"

#include <cfloat>

namespace gradsieve::codec {
namespace {

/// The samples' mean of kLanes elements from `element` on.
[[gnu::always_inline]] inline Floats mean_lanes(const MomentumStep* step, std::uint64_t element) {
    Floats value;
    __builtin_memcpy(&value, step->samples[0] + element, sizeof(value));
    Floats mean = step->weights[0] * value;
    for (std::size_t sample = 1; sample < step->sample_count; ++sample) {
        __builtin_memcpy(&value, step->samples[sample] + element, sizeof(value));
        mean = mean + step->weights[sample] * value;
    }
    return mean;
}
[[gnu::always_inline]] inline float mean_of(const MomentumStep* step, std::uint64_t element) {
    float mean = step->weights[0] * step->samples[0][element];
    for (std::size_t sample = 1; sample < step->sample_count; ++sample)
        mean = mean + step->weights[sample] * step->samples[sample][element];
    return mean;
}

/// Elements [first, first + count) of the samples' mean.
void average_samples(const MomentumStep* step, std::uint64_t first, std::uint32_t count, float* ret_mean) {
    const std::uint32_t whole = count / kLanes * kLanes;
    for (std::uint32_t at = 0; at < whole; at += kLanes) {
        const Floats mean = mean_lanes(step, first + at);
        __builtin_memcpy(ret_mean + at, &mean, sizeof(mean));
    }
    for (std::uint32_t at = whole; at < count; ++at) ret_mean[at] = mean_of(step, first + at);
}

/// Elements [first, first + count) of u.
void accumulate_momentum(const MomentumStep* step, std::uint64_t first, std::uint32_t count) {
    const float* before = step->before + first;
    float* after = step->after + first;
    const std::uint32_t whole = count / kLanes * kLanes;
    for (std::uint32_t at = 0; at < whole; at += kLanes) {
        const Floats mean = mean_lanes(step, first + at);
        Floats value;
        __builtin_memcpy(&value, before + at, sizeof(value));
        value = step->factor * value + mean;
        __builtin_memcpy(after + at, &value, sizeof(value));
    }
    for (std::uint32_t at = whole; at < count; ++at) after[at] = step->factor * before[at] + mean_of(step, first + at);
}

/// Elements [first, first + count) of r.
void low_pass(const LowPassStep* step, std::uint64_t first, std::uint32_t count) {
    const float* before = step->before + first;
    float* after = step->after + first;
    const float keep = step->keep;
    const float take = step->take;
    const Floats most = FLT_MAX - Floats{};
    const std::uint32_t whole = count / kLanes * kLanes;
    for (std::uint32_t at = 0; at < whole; at += kLanes) {
        Floats old;
        Floats left;
        __builtin_memcpy(&old, before + at, sizeof(old));
        __builtin_memcpy(&left, after + at, sizeof(left));
        Floats mixed = keep * old + take * left;
        mixed = mixed > most ? most : mixed;
        mixed = mixed < -most ? -most : mixed;
        __builtin_memcpy(after + at, &mixed, sizeof(mixed));
    }
    for (std::uint32_t at = whole; at < count; ++at) {
        const float mixed = keep * before[at] + take * after[at];
        after[at] = mixed > FLT_MAX ? FLT_MAX : mixed < -FLT_MAX ? -FLT_MAX : mixed;
    }
}

}  // namespace
}  // namespace gradsieve::codec
