// The dense pass, written once over a set of vector operations (`Isa`); each dense_pass_<form>.cpp defines its Isa and
// includes this file, so that all forms are the same expressions in the same order. Internal linkage on purpose: code
// compiled for one instruction set must never be linked in for another. Included by those files only.
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
inline unsigned lanes_of(unsigned valid, unsigned number) {
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
inline typename Isa::Vec load_state(const float* base, const BlockPosition& at, unsigned number) {
    const float* address = base + at.offset + number * Isa::kWidth;
    if constexpr (kIsTail) return Isa::load_first(address, lanes_of<Isa>(at.valid, number));
    return Isa::load(address);
}
/// Memory of a client: the value is opaque to the compiler from here on, so that it cannot be loaded a second time.
template <typename Isa, bool kIsTail>
inline typename Isa::Vec load_sample(const float* base, const BlockPosition& at, unsigned number) {
    auto value = load_state<Isa, kIsTail>(base, at, number);
    Isa::hide(value);
    return value;
}
template <typename Isa, bool kIsTail, bool kStreams>
inline void store_state(float* base, const BlockPosition& at, unsigned number, typename Isa::Vec value) {
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
inline typename Isa::Vec saturate(typename Isa::Vec value) {
    return Isa::min(value, Isa::broadcast(FLT_MAX));
}

/// gbar of a block; with kKeeps the samples stay in the plan's scratch for the second pass over them.
template <typename Isa, bool kIsTail, bool kKeeps>
inline Block<Isa> mean_of_samples(const DensePlan& plan, const BlockPosition& at) {
    Block<Isa> mean;
    for (std::size_t sample = 0; sample < plan.sample_count; ++sample) {
        const auto weight = Isa::broadcast(plan.weights[sample]);
        for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
            const auto value = load_sample<Isa, kIsTail>(plan.samples[sample], at, j);
            if constexpr (kKeeps) Isa::store(plan.sample_scratch + sample * kPooledElements + j * Isa::kWidth, value);
            const auto product = Isa::mul(weight, value);
            mean.vector[j] = sample == 0 ? product : Isa::add(mean.vector[j], product);
        }
    }
    return mean;
}

/// s2 of a block: weighted squared deviations of the kept samples from their mean.
template <typename Isa>
inline Block<Isa> variance_of_mean(const DensePlan& plan, const Block<Isa>& mean) {
    Block<Isa> sum;
    for (std::size_t sample = 0; sample < plan.sample_count; ++sample) {
        const auto weight = Isa::broadcast(plan.weights[sample]);
        for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
            const auto value = Isa::load(plan.sample_scratch + sample * kPooledElements + j * Isa::kWidth);
            const auto deviation = Isa::sub(value, mean.vector[j]);
            const auto term = Isa::mul(weight, Isa::mul(deviation, deviation));
            sum.vector[j] = sample == 0 ? term : Isa::add(sum.vector[j], term);
        }
    }
    const auto scale = Isa::broadcast(plan.variance.deviation_scale);
    for (auto& vector : sum.vector) vector = saturate<Isa>(Isa::mul(vector, scale));
    return sum;
}

/// The average over the block in every lane; lanes that do not exist hold +0.
template <typename Isa>
inline void pool(Block<Isa>& block, unsigned valid) {
    for (unsigned half = Block<Isa>::kVectors / 2; half > 0; half /= 2) {
        for (unsigned j = 0; j < half; ++j) block.vector[j] = Isa::add(block.vector[j], block.vector[j + half]);
    }
    const float sum = Isa::fold(block.vector[0]);
    const float share = 1.0F / static_cast<float>(valid);
    const auto average = saturate<Isa>(Isa::broadcast(sum * share));
    for (auto& vector : block.vector) vector = average;
}

/// inc of a block. `ret_bad` collects lanes whose second moment is not finite.
template <typename Isa, VarianceSource kSource, bool kIsTail>
inline Block<Isa> increment(const DensePlan& plan, const BlockPosition& at, const Block<Isa>& mean,
                            std::uint32_t& ret_bad) {
    Block<Isa> inc;
    if constexpr (kSource == VarianceSource::kSecondMoment) {
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
    if constexpr (kSource == VarianceSource::kGroups || kSource == VarianceSource::kGroupsPooled) {
        inc = variance_of_mean<Isa>(plan, mean);
        if constexpr (kSource == VarianceSource::kGroupsPooled) pool<Isa>(inc, at.valid);
    }
    for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
        const auto square = saturate<Isa>(Isa::mul(mean.vector[j], mean.vector[j]));
        if constexpr (kSource == VarianceSource::kSingle) {
            inc.vector[j] = square;
        } else {
            inc.vector[j] = Isa::add(Isa::mul(inc.vector[j], Isa::broadcast(plan.variance.noise_share)),
                                     Isa::mul(square, Isa::broadcast(plan.variance.mean_share)));
        }
    }
    return inc;
}

/// Appends the lanes of `mask` to the span's lists: always written and then kept or not, since at one hit in a hundred
/// elements a branch would be guessed wrong too often.
template <typename Isa, bool kListsVariance>
inline std::size_t list_lanes(const DenseSpan& span, std::size_t listed, std::uint32_t index, std::uint32_t mask,
                              typename Isa::Vec residual, typename Isa::Vec variance) {
    Isa::compress_indices(span.indices + listed, index, mask);
    Isa::compress(span.values + listed, residual, mask);
    if constexpr (kListsVariance) Isa::compress(span.variances + listed, variance, mask);
    return listed + static_cast<std::size_t>(__builtin_popcount(mask));
}

/// State update, test, stores and list of one block. Returns the new length of the list, or nothing on trouble.
template <typename Isa, DenseRule kRule, VarianceSource kSource, bool kIsTail, bool kStreams>
inline bool run_block(const DensePlan& plan, const DenseSpan& span, const BlockPosition& at, std::size_t& ret_listed) {
    using Vec = typename Isa::Vec;
    constexpr bool kHasVariance = kSource != VarianceSource::kNone;
    constexpr bool kKeeps = kSource == VarianceSource::kGroups || kSource == VarianceSource::kGroupsPooled;
    constexpr bool kIsTopK = kRule == DenseRule::kTopK || kRule == DenseRule::kGatedTopK;
    constexpr bool kIsVarianceRule = kRule == DenseRule::kVariance || kRule == DenseRule::kVarianceHybrid;

    std::uint32_t bad = 0;
    Block<Isa> residual = mean_of_samples<Isa, kIsTail, kKeeps>(plan, at);
    Block<Isa> inc{};
    if constexpr (kHasVariance) inc = increment<Isa, kSource, kIsTail>(plan, at, residual, bad);
    if constexpr (kRule != DenseRule::kMean) {
        for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
            const auto before = load_state<Isa, kIsTail>(plan.in.residual, at, j);
            residual.vector[j] = Isa::add(Isa::mul(Isa::broadcast(plan.rescale), before), residual.vector[j]);
        }
    }
    for (const auto& vector : residual.vector) bad |= Isa::non_finite(vector);
    if (bad != 0) return false;

    std::uint32_t gate = 0;
    for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
        const Vec r = residual.vector[j];
        Vec v{};
        std::uint32_t mask = 0;
        if constexpr (kHasVariance) {
            const auto before = load_state<Isa, kIsTail>(plan.in.variance, at, j);
            v = saturate<Isa>(Isa::add(Isa::mul(Isa::broadcast(plan.rescale_squared), before), inc.vector[j]));
            const auto limit = saturate<Isa>(Isa::mul(Isa::broadcast(plan.ratio_floor), v));
            mask = Isa::greater(Isa::mul(r, r), limit);
        }
        if constexpr (kRule == DenseRule::kVarianceHybrid) {
            mask &= Isa::greater(Isa::magnitude(r), Isa::broadcast(plan.tau));
        }
        if constexpr (kIsTail) mask &= (std::uint32_t{1} << lanes_of<Isa>(at.valid, j)) - 1U;
        if constexpr (kRule == DenseRule::kGatedTopK) gate |= mask << (j * Isa::kWidth);
        if constexpr (kRule == DenseRule::kGatedTopK) mask &= Isa::magnitude_at_least(r, span.magnitude_floor);
        if constexpr (kRule == DenseRule::kTopK) mask = Isa::magnitude_at_least(r, span.magnitude_floor);

        const bool settles_residual = kIsVarianceRule && plan.settles_residual;
        const bool settles_variance = kIsVarianceRule && plan.settles_variance;
        store_state<Isa, kIsTail, kStreams>(span.residual_out, at, j, settles_residual ? Isa::zero_where(r, mask) : r);
        if constexpr (kHasVariance) {
            const auto decayed = Isa::mul(Isa::broadcast(plan.zeta), v);
            store_state<Isa, kIsTail, kStreams>(span.variance_out, at, j,
                                                settles_variance ? Isa::zero_where(decayed, mask) : decayed);
        }
        if constexpr (kIsTopK || kIsVarianceRule) {
            const auto index = span.first_index + static_cast<std::uint32_t>(at.local) + j * Isa::kWidth;
            ret_listed = list_lanes<Isa, kIsVarianceRule>(span, ret_listed, index, mask, r, v);
        }
    }
    if constexpr (kRule == DenseRule::kGatedTopK) span.gate_words[at.local / kPooledElements] = gate;
    return true;
}

template <typename Isa, DenseRule kRule, VarianceSource kSource, bool kStreams>
DenseOutcome run_blocks(const DensePlan& plan, const DenseSpan& span) {
    DenseOutcome outcome;
    const std::size_t whole = span.elements / kPooledElements * kPooledElements;
    std::size_t listed = 0;
    for (std::size_t local = 0; local < whole; local += kPooledElements) {
        const BlockPosition at{span.first + local, local, kPooledElements};
        if (run_block<Isa, kRule, kSource, false, kStreams>(plan, span, at, listed)) continue;
        return {listed, false, at.offset};
    }
    if (whole < span.elements) {
        const BlockPosition at{span.first + whole, whole, static_cast<unsigned>(span.elements - whole)};
        if (!run_block<Isa, kRule, kSource, true, false>(plan, span, at, listed)) return {listed, false, at.offset};
    }
    outcome.listed = listed;
    return outcome;
}

template <typename Isa, DenseRule kRule, VarianceSource kSource>
DenseOutcome run_span(const DensePlan& plan, const DenseSpan& span) {
    if (plan.streams) return run_blocks<Isa, kRule, kSource, true>(plan, span);
    return run_blocks<Isa, kRule, kSource, false>(plan, span);
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
