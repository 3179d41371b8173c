// First half of the dense pass: what the samples of one block of elements say, in registers. See dense_pass_kernel.hpp,
// which is its only user, for how the forms share this code, and why it has internal linkage and is inlined by force.
#pragma once

#include "codec/dense_pass.hpp"

#include <cfloat>

namespace gradsieve::codec {
namespace {

/// One block of kPooledElements elements as an array of vectors.
template <typename Isa>
struct Block {
    static constexpr unsigned kVectors = kPooledElements / Isa::kWidth;
    typename Isa::Vec vector[kVectors];
};

/// Valid lanes of vector `number` in a block of which `valid` elements exist.
template <typename Isa>
[[gnu::always_inline]] inline unsigned lanes_of(unsigned valid, unsigned number) {
    const unsigned begin = number * Isa::kWidth;
    if (valid <= begin) return 0;
    return valid - begin < Isa::kWidth ? valid - begin : Isa::kWidth;
}

/// Arguments of one block; `offset` counts from the tensor's start, `local` from the span's.
struct BlockPosition {
    ElementCount offset = 0;
    std::size_t local = 0;
    unsigned valid = kPooledElements;
};

template <typename Isa, bool kIsTail>
[[gnu::always_inline]] inline typename Isa::Vec load_state(const float* base, const BlockPosition& at,
                                                           unsigned number) {
    const float* address = base + at.offset + number * Isa::kWidth;
    if constexpr (kIsTail) return Isa::load_first(address, lanes_of<Isa>(at.valid, number));
    return Isa::load(address);
}
/// Memory of a client: the value is opaque to the compiler from here on, so that it cannot be loaded a second time.
template <typename Isa, bool kIsTail>
[[gnu::always_inline]] inline typename Isa::Vec load_sample(const float* base, const BlockPosition& at,
                                                            unsigned number) {
    auto value = load_state<Isa, kIsTail>(base, at, number);
    Isa::hide(value);
    return value;
}
template <typename Isa, bool kIsTail, bool kStreams>
[[gnu::always_inline]] inline void store_state(float* base, const BlockPosition& at, unsigned number,
                                               typename Isa::Vec value) {
    float* address = base + at.local + number * Isa::kWidth;
    if constexpr (kIsTail) {
        Isa::store_first(address, lanes_of<Isa>(at.valid, number), value);
    } else if constexpr (kStreams) {
        Isa::stream(address, value);
    } else {
        Isa::store(address, value);
    }
}

template <typename Isa>
[[gnu::always_inline]] inline typename Isa::Vec saturate(typename Isa::Vec value) {
    return Isa::min(value, Isa::broadcast(FLT_MAX));
}

/// What the samples of one block say: gbar, and s2 if it is wanted.
template <typename Isa>
struct Observation {
    Block<Isa> mean;
    Block<Isa> variance;
};

/// Term of one sample in S: w * ((h - gbar) * (h - gbar)).
template <typename Isa>
[[gnu::always_inline]] inline typename Isa::Vec deviation_term(typename Isa::Vec weight, typename Isa::Vec value,
                                                               typename Isa::Vec mean) {
    const auto deviation = Isa::sub(value, mean);
    return Isa::mul(weight, Isa::mul(deviation, deviation));
}

/// A number of samples known when compiled: they stay in registers between the two looks at them.
template <typename Isa, bool kIsTail, unsigned kSamples, bool kWantsVariance>
[[gnu::always_inline]] inline void observe_few(const DensePlan& plan, const BlockPosition& at, Observation<Isa>& ret) {
    const auto scale = Isa::broadcast(plan.variance.deviation_scale);
    for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
        typename Isa::Vec values[kSamples];
        for (unsigned sample = 0; sample < kSamples; ++sample) {
            values[sample] = load_sample<Isa, kIsTail>(plan.samples[sample], at, j);
        }
        auto mean = Isa::mul(Isa::broadcast(plan.weights[0]), values[0]);
        for (unsigned sample = 1; sample < kSamples; ++sample) {
            mean = Isa::add(mean, Isa::mul(Isa::broadcast(plan.weights[sample]), values[sample]));
        }
        ret.mean.vector[j] = mean;
        if constexpr (!kWantsVariance) continue;
        auto sum = deviation_term<Isa>(Isa::broadcast(plan.weights[0]), values[0], mean);
        for (unsigned sample = 1; sample < kSamples; ++sample) {
            sum = Isa::add(sum, deviation_term<Isa>(Isa::broadcast(plan.weights[sample]), values[sample], mean));
        }
        ret.variance.vector[j] = saturate<Isa>(Isa::mul(sum, scale));
    }
}

/// Any number of samples: they wait in the plan's scratch for the second look.
template <typename Isa, bool kIsTail, bool kWantsVariance>
[[gnu::always_inline]] inline void observe_many(const DensePlan& plan, const BlockPosition& at, Observation<Isa>& ret) {
    const auto look = [&](std::size_t sample, unsigned j) {
        const auto value = load_sample<Isa, kIsTail>(plan.samples[sample], at, j);
        if constexpr (kWantsVariance) {
            Isa::store(plan.sample_scratch + sample * kPooledElements + j * Isa::kWidth, value);
        }
        return Isa::mul(Isa::broadcast(plan.weights[sample]), value);
    };
    for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) ret.mean.vector[j] = look(0, j);
    for (std::size_t sample = 1; sample < plan.sample_count; ++sample) {
        for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
            ret.mean.vector[j] = Isa::add(ret.mean.vector[j], look(sample, j));
        }
    }
    if constexpr (!kWantsVariance) return;
    const auto scale = Isa::broadcast(plan.variance.deviation_scale);
    for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
        const float* values = plan.sample_scratch + j * Isa::kWidth;
        auto sum = deviation_term<Isa>(Isa::broadcast(plan.weights[0]), Isa::load(values), ret.mean.vector[j]);
        for (std::size_t sample = 1; sample < plan.sample_count; ++sample) {
            const auto value = Isa::load(values + sample * kPooledElements);
            sum = Isa::add(sum, deviation_term<Isa>(Isa::broadcast(plan.weights[sample]), value, ret.mean.vector[j]));
        }
        ret.variance.vector[j] = saturate<Isa>(Isa::mul(sum, scale));
    }
}

/// The average over the block in every lane; lanes that do not exist hold +0.
template <typename Isa>
[[gnu::always_inline]] inline void pool(Block<Isa>& block, unsigned valid) {
    for (unsigned half = Block<Isa>::kVectors / 2; half > 0; half /= 2) {
        for (unsigned j = 0; j < half; ++j) block.vector[j] = Isa::add(block.vector[j], block.vector[j + half]);
    }
    const float sum = Isa::fold(block.vector[0]);
    const float share = 1.0F / static_cast<float>(valid);
    const auto average = saturate<Isa>(Isa::broadcast(sum * share));
    for (auto& vector : block.vector) vector = average;
}

/// inc of a block from second moments. `ret_bad` collects lanes that are not finite.
template <typename Isa, bool kIsTail>
[[gnu::always_inline]] inline Block<Isa> moment_increment(const DensePlan& plan, const BlockPosition& at,
                                                          std::uint32_t& ret_bad) {
    Block<Isa> inc{};
    for (std::size_t rank = 0; rank < plan.second_moment_count; ++rank) {
        for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
            const auto moment = load_sample<Isa, kIsTail>(plan.second_moments[rank], at, j);
            ret_bad |= Isa::non_finite(moment);
            inc.vector[j] = rank == 0 ? moment : Isa::add(inc.vector[j], moment);
        }
    }
    const auto scale = Isa::broadcast(plan.variance.moment_scale);
    for (auto& vector : inc.vector) vector = Isa::max(Isa::mul(vector, scale), Isa::broadcast(0.0F));
    return inc;
}

/// inc of one vector from its samples.
template <typename Isa, VarianceSource kSource>
[[gnu::always_inline]] inline typename Isa::Vec sample_increment(const DensePlan& plan, typename Isa::Vec mean,
                                                                 typename Isa::Vec variance) {
    const auto square = saturate<Isa>(Isa::mul(mean, mean));
    if constexpr (kSource == VarianceSource::kSingle) return square;
    return Isa::add(Isa::mul(variance, Isa::broadcast(plan.variance.noise_share)),
                    Isa::mul(square, Isa::broadcast(plan.variance.mean_share)));
}

}  // namespace
}  // namespace gradsieve::codec
