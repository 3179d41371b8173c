// The dense pass, written once over a set of vector operations (`Isa`); each dense_pass_<form>.cpp defines its Isa and
// includes this file, so that all forms are the same expressions in the same order. Internal linkage on purpose: code
// compiled for one instruction set must never be linked in for another. Inlined by force: a block's vectors stay in
// registers only if the whole loop is one function (a call in it costs a third of the speed). Included by those files
// only.
#pragma once

#include "codec/dense_pass_stores.hpp"

namespace gradsieve::codec {
namespace {

constexpr ElementCount kNoTrouble = ~ElementCount{0};

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
        if constexpr (has_residual(kRule)) {
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

/// Lanes of one vector that are listed. `inout_gate` collects those that passed the gate of topk.
template <typename Isa, DenseRule kRule, bool kIsTail>
[[gnu::always_inline]] inline std::uint32_t pick_lanes(const DensePlan& plan, const DenseSpan& span,
                                                       const BlockPosition& at, unsigned number, typename Isa::Vec r,
                                                       typename Isa::Vec v, std::uint32_t& inout_gate) {
    std::uint32_t mask = 0;
    if constexpr (kRule == DenseRule::kMagnitude) mask = Isa::magnitude_at_least(r, span.magnitude_floor);
    if constexpr (is_variance_rule(kRule) || kRule == DenseRule::kGatedMagnitude)
        mask = test_variance<Isa, kRule>(plan, r, v);
    if constexpr (kIsTail) mask &= (std::uint32_t{1} << lanes_of<Isa>(at.valid, number)) - 1U;
    if constexpr (kRule == DenseRule::kGatedMagnitude) {
        inout_gate |= mask << (number * Isa::kWidth);
        mask &= Isa::magnitude_at_least(r, span.magnitude_floor);
    }
    return mask;
}

/// What a block has for the list, kept in registers until its neighbours' state is written too.
template <typename Isa>
struct Listing {
    Block<Isa> residual;
    Block<Isa> variance;
    std::uint32_t masks[Block<Isa>::kVectors];
    std::uint32_t gate = 0;  ///< lanes that passed the gate of topk
};

/// Asks for the block half a tile ahead. The stores of tiles that are held, to the caches and around them, fill the
/// queue in which loads wait for their turn, so that they come too late by themselves (a third of the speed on AMD Zen
/// 4; the other rules lose by asking). Beyond an array's end it asks for something that nobody reads.
template <bool kHasResidual>
[[gnu::always_inline]] inline void prefetch_inputs(const DensePlan& plan, ElementCount offset) {
    constexpr std::uintptr_t kAheadBytes = std::uintptr_t{1} << 13U;
    constexpr std::uintptr_t kLineBytes = 64;
    const auto ask = [offset](const float* base) {
        const auto address = reinterpret_cast<std::uintptr_t>(base) + offset * sizeof(float) + kAheadBytes;
        for (std::uintptr_t line = 0; line < kPooledElements * sizeof(float); line += kLineBytes)
            __builtin_prefetch(reinterpret_cast<const void*>(address + line), 0, 2);
    };
    for (std::size_t sample = 0; sample < plan.sample_count; ++sample) ask(plan.samples[sample]);
    if constexpr (kHasResidual) ask(plan.in.residual);
}

/// State update, test and stores of one block; false on trouble.
template <typename Isa, DenseRule kRule, VarianceSource kSource, unsigned kSamples, bool kIsTail, bool kStreams>
[[gnu::always_inline]] inline bool update_block(const DensePlan& plan, const DenseSpan& span, const BlockPosition& at,
                                                Listing<Isa>& ret_listing) {
    Observation<Isa> seen;
    if constexpr (is_held_rule(kRule)) prefetch_inputs<has_residual(kRule)>(plan, at.offset);
    if (!accumulate<Isa, kRule, kSource, kSamples, kIsTail>(plan, at, seen, ret_listing.residual)) return false;
    if constexpr (kRule == DenseRule::kBf16 || kRule == DenseRule::kF16) {
        store_halves<Isa, kRule, kIsTail, kStreams>(span, at, ret_listing.residual);
        return true;
    }
    if constexpr (is_natural_rule(kRule)) {
        store_natural<Isa, has_residual(kRule), kIsTail, kStreams>(plan, span, at, ret_listing.residual);
        return true;
    }
    if constexpr (kRule == DenseRule::kVote) {
        store_votes<Isa, kIsTail>(span, at, ret_listing.residual);
        return true;
    }
    if constexpr (is_held_rule(kRule)) {
        if constexpr (!kIsTail) {
            if (span.previous.values != nullptr) {
                if constexpr (is_sign_rule(kRule)) store_signs<Isa, kStreams>(span.previous, at.local);
                if constexpr (is_dither_rule(kRule))
                    store_levels<has_residual(kRule), kStreams>(span.previous, at.local);
            }
        }
        for (unsigned j = 0; j < Block<Isa>::kVectors; ++j)
            store_state<Isa, kIsTail, false>(span.residual_out, at, j, ret_listing.residual.vector[j]);
        return true;
    }
    std::uint32_t gate = 0;
    for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
        const auto r = ret_listing.residual.vector[j];
        typename Isa::Vec v{};
        if constexpr (kSource != VarianceSource::kNone) {
            v = accumulate_variance<Isa, kSource, kIsTail>(plan, at, j, seen);
            ret_listing.variance.vector[j] = v;
        }
        const std::uint32_t mask = pick_lanes<Isa, kRule, kIsTail>(plan, span, at, j, r, v, gate);
        ret_listing.masks[j] = mask;
        // Kept as an integer: GCC 12 mixes up mask registers that it has to spill (seen with eight of them alive).
        asm("" : "+r"(ret_listing.masks[j]));
        std::uint32_t guessed = mask;
        if constexpr (is_magnitude_rule(kRule)) guessed &= Isa::magnitude_at_least(r, span.guess_floor);
        store_vector<Isa, kRule, kSource, kIsTail, kStreams>(plan, span, at, j, guessed, r, v);
    }
    ret_listing.gate = gate;
    return true;
}

/// Appends what a block picked to the span's lists.
template <typename Isa, DenseRule kRule, VarianceSource kSource>
[[gnu::always_inline]] inline void list_block(const DenseSpan& span, std::size_t local, const Listing<Isa>& listing,
                                              std::size_t& inout_listed) {
    if constexpr (!is_listing_rule(kRule)) return;
    if constexpr (kRule == DenseRule::kGatedMagnitude) span.gate_words[local / kPooledElements] = listing.gate;
    for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
        if (listing.masks[j] == 0) continue;
        const auto index = span.first_index + static_cast<std::uint32_t>(local) + j * Isa::kWidth;
        inout_listed = list_lanes<Isa, kSource != VarianceSource::kNone>(
            span, inout_listed, index, listing.masks[j], listing.residual.vector[j], listing.variance.vector[j]);
    }
}

/// Sums of magnitudes, one lane for each element of a block.
template <typename Isa>
struct BlockSums {
    typename Isa::Doubles of_vector[Block<Isa>::kVectors] = {};

    [[gnu::always_inline]] void add(const Block<Isa>& residual) {
        for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) Isa::add_magnitudes(of_vector[j], residual.vector[j]);
    }
    [[gnu::always_inline]] double fold() const {
        double lanes[kPooledElements];
        for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) Isa::store_doubles(lanes + j * Isa::kWidth, of_vector[j]);
        for (unsigned half = kPooledElements / 2; half > 0; half /= 2)
            for (unsigned lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
        return lanes[0];
    }
};

/// Some neighbouring blocks: first all their state, then their lists, since each change between non-temporal and other
/// stores holds up the former. Returns where trouble is, or kNoTrouble.
template <typename Isa, DenseRule kRule, VarianceSource kSource, unsigned kSamples, bool kIsTail, bool kStreams,
          unsigned kBlocks>
[[gnu::always_inline]] inline ElementCount run_group(const DensePlan& plan, const DenseSpan& span, std::size_t local,
                                                     unsigned valid, std::size_t& inout_listed,
                                                     BlockSums<Isa>& inout_sums) {
    Listing<Isa> listings[kBlocks];
    for (unsigned block = 0; block < kBlocks; ++block) {
        const std::size_t at_local = local + block * kPooledElements;
        const BlockPosition at{span.first + at_local, at_local, valid};
        if (!update_block<Isa, kRule, kSource, kSamples, kIsTail, kStreams>(plan, span, at, listings[block]))
            return at.offset;
        if constexpr (kRule == DenseRule::kSign) inout_sums.add(listings[block].residual);
    }
    for (unsigned block = 0; block < kBlocks; ++block)
        list_block<Isa, kRule, kSource>(span, local + block * kPooledElements, listings[block], inout_listed);
    return kNoTrouble;
}

template <typename Isa, DenseRule kRule, VarianceSource kSource, unsigned kSamples, bool kStreams>
DenseOutcome run_blocks(const DensePlan& shared_plan, const DenseSpan& shared_span) {
    // Copies of our own: vector stores may alias anything the compiler cannot see through, and would have every
    // constant loaded again after each.
    const DensePlan plan = shared_plan;
    const DenseSpan span = shared_span;
    constexpr unsigned kGroup = is_listing_rule(kRule) ? Isa::kListedBlocks : 1;
    constexpr std::size_t kGroupElements = kGroup * kPooledElements;
    BlockSums<Isa> sums;
    std::size_t listed = 0;
    std::size_t local = 0;
    ElementCount trouble = kNoTrouble;
    for (; local + kGroupElements <= span.elements && trouble == kNoTrouble; local += kGroupElements)
        trouble = run_group<Isa, kRule, kSource, kSamples, false, kStreams, kGroup>(plan, span, local, kPooledElements,
                                                                                    listed, sums);
    for (; local < span.elements && trouble == kNoTrouble; local += kPooledElements) {
        const bool is_whole = span.elements - local >= kPooledElements;
        const auto valid = static_cast<unsigned>(is_whole ? kPooledElements : span.elements - local);
        trouble = run_group<Isa, kRule, kSource, kSamples, true, false, 1>(plan, span, local, valid, listed, sums);
    }
    DenseOutcome outcome;
    outcome.listed = listed;
    outcome.is_finite = trouble == kNoTrouble;
    if (!outcome.is_finite) outcome.non_finite_block = trouble;
    if constexpr (kRule == DenseRule::kSign) outcome.magnitude_sum = sums.fold();
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
        case DenseRule::kBf16: return run_span<Isa, DenseRule::kBf16, VarianceSource::kNone>;
        case DenseRule::kF16: return run_span<Isa, DenseRule::kF16, VarianceSource::kNone>;
        case DenseRule::kNatural: return run_span<Isa, DenseRule::kNatural, VarianceSource::kNone>;
        case DenseRule::kNaturalMean: return run_span<Isa, DenseRule::kNaturalMean, VarianceSource::kNone>;
        case DenseRule::kSign: return run_span<Isa, DenseRule::kSign, VarianceSource::kNone>;
        case DenseRule::kTwoMean: return run_span<Isa, DenseRule::kTwoMean, VarianceSource::kNone>;
        case DenseRule::kVote: return run_span<Isa, DenseRule::kVote, VarianceSource::kNone>;
        case DenseRule::kDither: return run_span<Isa, DenseRule::kDither, VarianceSource::kNone>;
        case DenseRule::kDitherMean: return run_span<Isa, DenseRule::kDitherMean, VarianceSource::kNone>;
        case DenseRule::kMagnitude: return run_span<Isa, DenseRule::kMagnitude, VarianceSource::kNone>;
        case DenseRule::kVariance: return find_variance_form<Isa, DenseRule::kVariance>(source);
        case DenseRule::kVarianceHybrid: return find_variance_form<Isa, DenseRule::kVarianceHybrid>(source);
        case DenseRule::kGatedMagnitude: return find_variance_form<Isa, DenseRule::kGatedMagnitude>(source);
    }
    return nullptr;
}

}  // namespace
}  // namespace gradsieve::codec
