// The dense pass, written once over a set of vector operations (`Isa`); each dense_pass_<form>.cpp defines its Isa and
// includes this file, so that all forms are the same expressions in the same order. Internal linkage on purpose: code
// compiled for one instruction set must never be linked in for another. Inlined by force: a block's vectors stay in
// registers only if the whole loop is one function (a call in it costs a third of the speed). Included by those files
// only.
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

/// Appends the lanes of `mask` to the span's lists.
template <typename Isa, bool kListsVariance>
[[gnu::always_inline]] inline std::size_t list_lanes(const DenseSpan& span, std::size_t listed, std::uint32_t index,
                                                     std::uint32_t mask, typename Isa::Vec residual,
                                                     typename Isa::Vec variance) {
    Isa::compress_indices(span.indices + listed, index, mask);
    Isa::compress(span.values + listed, residual, mask);
    if constexpr (kListsVariance) Isa::compress(span.variances + listed, variance, mask);
    return listed + static_cast<std::size_t>(__builtin_popcount(mask));
}

constexpr bool is_of_groups(VarianceSource source) {
    return source == VarianceSource::kGroups || source == VarianceSource::kGroupsPooled;
}
constexpr bool is_variance_rule(DenseRule rule) {
    return rule == DenseRule::kVariance || rule == DenseRule::kVarianceHybrid;
}
constexpr bool is_top_k_rule(DenseRule rule) { return rule == DenseRule::kTopK || rule == DenseRule::kGatedTopK; }

/// Reads a block's samples and accumulates r; false if something is not finite. kSamples 0: any number.
template <typename Isa, DenseRule kRule, VarianceSource kSource, unsigned kSamples, bool kIsTail>
[[gnu::always_inline]] inline bool accumulate(const DensePlan& plan, const BlockPosition& at,
                                              Observation<Isa>& ret_seen, Block<Isa>& ret_r) {
    std::uint32_t bad = 0;
    if constexpr (kSamples > 0) {
        observe_few<Isa, kIsTail, kSamples, is_of_groups(kSource)>(plan, at, ret_seen);
    } else {
        observe_many<Isa, kIsTail, is_of_groups(kSource)>(plan, at, ret_seen);
    }
    if constexpr (kSource == VarianceSource::kGroupsPooled) pool<Isa>(ret_seen.variance, at.valid);
    if constexpr (kSource == VarianceSource::kSecondMoment) {
        ret_seen.variance = moment_increment<Isa, kIsTail>(plan, at, bad);
    }
    for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
        ret_r.vector[j] = ret_seen.mean.vector[j];
        if constexpr (kRule != DenseRule::kMean) {
            const auto before = load_state<Isa, kIsTail>(plan.in.residual, at, j);
            ret_r.vector[j] = Isa::add(Isa::mul(Isa::broadcast(plan.rescale), before), ret_r.vector[j]);
        }
        // A sample that is not finite makes r not finite, whatever its weight: 0 * infinity is NaN.
        bad |= Isa::non_finite(ret_r.vector[j]);
    }
    return bad == 0;
}

/// v of one vector, before any decay.
template <typename Isa, VarianceSource kSource, bool kIsTail>
[[gnu::always_inline]] inline typename Isa::Vec accumulate_variance(const DensePlan& plan, const BlockPosition& at,
                                                                    unsigned number, const Observation<Isa>& seen) {
    const auto before = load_state<Isa, kIsTail>(plan.in.variance, at, number);
    auto inc = seen.variance.vector[number];
    if constexpr (kSource != VarianceSource::kSecondMoment) {
        inc = sample_increment<Isa, kSource>(plan, seen.mean.vector[number], inc);
    }
    return saturate<Isa>(Isa::add(Isa::mul(Isa::broadcast(plan.rescale_squared), before), inc));
}

/// Lanes that pass the variance test (and the hybrid's threshold).
template <typename Isa, DenseRule kRule>
[[gnu::always_inline]] inline std::uint32_t test_variance(const DensePlan& plan, typename Isa::Vec r,
                                                          typename Isa::Vec v) {
    const auto limit = saturate<Isa>(Isa::mul(Isa::broadcast(plan.ratio_floor), v));
    std::uint32_t mask = Isa::greater(Isa::mul(r, r), limit);
    if constexpr (kRule == DenseRule::kVarianceHybrid) {
        mask &= Isa::greater(Isa::magnitude(r), Isa::broadcast(plan.tau));
    }
    return mask;
}

/// Writes one vector of both state arrays; `mask`: the lanes listed.
template <typename Isa, DenseRule kRule, VarianceSource kSource, bool kIsTail, bool kStreams>
[[gnu::always_inline]] inline void store_vector(const DensePlan& plan, const DenseSpan& span, const BlockPosition& at,
                                                unsigned number, std::uint32_t mask, typename Isa::Vec r,
                                                typename Isa::Vec v) {
    if constexpr (is_variance_rule(kRule)) {
        if (plan.settles_residual) r = Isa::zero_where(r, mask);
    }
    store_state<Isa, kIsTail, kStreams>(span.residual_out, at, number, r);
    if constexpr (kSource == VarianceSource::kNone) return;
    auto decayed = Isa::mul(Isa::broadcast(plan.zeta), v);
    if constexpr (is_variance_rule(kRule)) {
        if (plan.settles_variance) decayed = Isa::zero_where(decayed, mask);
    }
    store_state<Isa, kIsTail, kStreams>(span.variance_out, at, number, decayed);
}

/// State update, test, stores and list of one block; false on trouble.
template <typename Isa, DenseRule kRule, VarianceSource kSource, unsigned kSamples, bool kIsTail, bool kStreams>
[[gnu::always_inline]] inline bool run_block(const DensePlan& plan, const DenseSpan& span, const BlockPosition& at,
                                             std::size_t& ret_listed) {
    Observation<Isa> seen;
    Block<Isa> residual;
    if (!accumulate<Isa, kRule, kSource, kSamples, kIsTail>(plan, at, seen, residual)) return false;
    std::uint32_t gate = 0;
    for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
        const auto r = residual.vector[j];
        typename Isa::Vec v{};
        std::uint32_t mask = 0;
        if constexpr (kSource != VarianceSource::kNone) {
            v = accumulate_variance<Isa, kSource, kIsTail>(plan, at, j, seen);
            mask = test_variance<Isa, kRule>(plan, r, v);
        }
        if constexpr (kIsTail) mask &= (std::uint32_t{1} << lanes_of<Isa>(at.valid, j)) - 1U;
        if constexpr (kRule == DenseRule::kGatedTopK) gate |= mask << (j * Isa::kWidth);
        if constexpr (kRule == DenseRule::kGatedTopK) mask &= Isa::magnitude_at_least(r, span.magnitude_floor);
        if constexpr (kRule == DenseRule::kTopK) mask = Isa::magnitude_at_least(r, span.magnitude_floor);
        store_vector<Isa, kRule, kSource, kIsTail, kStreams>(plan, span, at, j, mask, r, v);
        if constexpr (is_variance_rule(kRule) || is_top_k_rule(kRule)) {
            if (mask == 0) continue;
            const auto index = span.first_index + static_cast<std::uint32_t>(at.local) + j * Isa::kWidth;
            ret_listed = list_lanes<Isa, is_variance_rule(kRule)>(span, ret_listed, index, mask, r, v);
        }
    }
    if constexpr (kRule == DenseRule::kGatedTopK) span.gate_words[at.local / kPooledElements] = gate;
    return true;
}

template <typename Isa, DenseRule kRule, VarianceSource kSource, unsigned kSamples, bool kStreams>
DenseOutcome run_blocks(const DensePlan& shared_plan, const DenseSpan& shared_span) {
    // Copies of our own: vector stores may alias anything the compiler cannot see through, and would have every
    // constant loaded again after each.
    const DensePlan plan = shared_plan;
    const DenseSpan span = shared_span;
    DenseOutcome outcome;
    const std::size_t whole = span.elements / kPooledElements * kPooledElements;
    std::size_t listed = 0;
    for (std::size_t local = 0; local < whole; local += kPooledElements) {
        const BlockPosition at{span.first + local, local, kPooledElements};
        if (run_block<Isa, kRule, kSource, kSamples, false, kStreams>(plan, span, at, listed)) continue;
        return {listed, false, at.offset};
    }
    if (whole < span.elements) {
        const BlockPosition at{span.first + whole, whole, static_cast<unsigned>(span.elements - whole)};
        if (!run_block<Isa, kRule, kSource, kSamples, true, false>(plan, span, at, listed))
            return {listed, false, at.offset};
    }
    outcome.listed = listed;
    return outcome;
}

template <typename Isa, DenseRule kRule, VarianceSource kSource, unsigned kSamples>
DenseOutcome run_samples(const DensePlan& plan, const DenseSpan& span) {
    if (plan.streams) return run_blocks<Isa, kRule, kSource, kSamples, true>(plan, span);
    return run_blocks<Isa, kRule, kSource, kSamples, false>(plan, span);
}

/// The usual numbers of samples have code of their own: one gradient, and two or four micro-batches or ranks.
template <typename Isa, DenseRule kRule, VarianceSource kSource>
DenseOutcome run_span(const DensePlan& plan, const DenseSpan& span) {
    if constexpr (is_of_groups(kSource)) {
        if (plan.sample_count == 2) return run_samples<Isa, kRule, kSource, 2>(plan, span);
        if (plan.sample_count == 4) return run_samples<Isa, kRule, kSource, 4>(plan, span);
    } else {
        if (plan.sample_count == 1) return run_samples<Isa, kRule, kSource, 1>(plan, span);
    }
    return run_samples<Isa, kRule, kSource, 0>(plan, span);
}

template <typename Isa, DenseRule kRule>
DensePass find_variance_form(VarianceSource source) {
    switch (source) {
        case VarianceSource::kNone: return nullptr;
        case VarianceSource::kSecondMoment: return run_span<Isa, kRule, VarianceSource::kSecondMoment>;
        case VarianceSource::kGroups: return run_span<Isa, kRule, VarianceSource::kGroups>;
        case VarianceSource::kGroupsPooled: return run_span<Isa, kRule, VarianceSource::kGroupsPooled>;
        case VarianceSource::kSingle: return run_span<Isa, kRule, VarianceSource::kSingle>;
    }
    return nullptr;
}

template <typename Isa>
DensePass find_form(DenseRule rule, VarianceSource source) {
    switch (rule) {
        case DenseRule::kMean: return run_span<Isa, DenseRule::kMean, VarianceSource::kNone>;
        case DenseRule::kEverything: return run_span<Isa, DenseRule::kEverything, VarianceSource::kNone>;
        case DenseRule::kTopK: return run_span<Isa, DenseRule::kTopK, VarianceSource::kNone>;
        case DenseRule::kVariance: return find_variance_form<Isa, DenseRule::kVariance>(source);
        case DenseRule::kVarianceHybrid: return find_variance_form<Isa, DenseRule::kVarianceHybrid>(source);
        case DenseRule::kGatedTopK: return find_variance_form<Isa, DenseRule::kGatedTopK>(source);
    }
    return nullptr;
}

}  // namespace
}  // namespace gradsieve::codec
