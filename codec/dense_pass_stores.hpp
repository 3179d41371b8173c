// Last part of the dense pass: what is written of a block once r and v are known, state and codes. See
// dense_pass_kernel.hpp, which is its only user, for how the forms share this code, and why it has internal linkage and
// is inlined by force.
#pragma once

#include "codec/dense_pass_samples.hpp"
#include "codec/dither_kernel.inl"
#include "codec/f16_kernel.inl"
#include "codec/natural_kernel.inl"

namespace gradsieve::codec {
namespace {

constexpr bool is_dither_rule(DenseRule rule) { return rule == DenseRule::kDither || rule == DenseRule::kDitherMean; }
constexpr bool is_natural_rule(DenseRule rule) {
    return rule == DenseRule::kNatural || rule == DenseRule::kNaturalMean;
}
constexpr bool is_sign_rule(DenseRule rule) { return rule == DenseRule::kSign || rule == DenseRule::kTwoMean; }
constexpr bool is_held_rule(DenseRule rule) { return is_sign_rule(rule) || is_dither_rule(rule); }
constexpr bool is_of_groups(VarianceSource source) {
    return source == VarianceSource::kGroups || source == VarianceSource::kGroupsPooled;
}
constexpr bool is_variance_rule(DenseRule rule) {
    return rule == DenseRule::kVariance || rule == DenseRule::kVarianceHybrid;
}
constexpr bool is_magnitude_rule(DenseRule rule) {
    return rule == DenseRule::kMagnitude || rule == DenseRule::kGatedMagnitude;
}
constexpr bool is_listing_rule(DenseRule rule) { return is_variance_rule(rule) || is_magnitude_rule(rule); }

/// What is left of r where the pass guesses that it is sent (see SentGuess).
template <typename Isa>
[[gnu::always_inline]] inline typename Isa::Vec guess_residual(const DensePlan& plan, typename Isa::Vec r,
                                                               std::uint32_t guessed) {
    const auto decoded = Isa::add_and_mask_bits(r, plan.guess.add_bits, plan.guess.keep_bits);
    return Isa::sub(r, Isa::keep_where(decoded, guessed));
}

/// Writes one vector of both state arrays; `guessed`: the lanes taken to be sent.
template <typename Isa, DenseRule kRule, VarianceSource kSource, bool kIsTail, bool kStreams>
[[gnu::always_inline]] inline void store_vector(const DensePlan& plan, const DenseSpan& span, const BlockPosition& at,
                                                unsigned number, std::uint32_t guessed, typename Isa::Vec r,
                                                typename Isa::Vec v) {
    if constexpr (is_listing_rule(kRule)) {
        if (plan.guess.keep_bits != 0) r = guess_residual<Isa>(plan, r, guessed);
    }
    store_state<Isa, kIsTail, kStreams>(span.residual_out, at, number, r);
    if constexpr (kSource == VarianceSource::kNone) return;
    auto decayed = Isa::mul(Isa::broadcast(plan.zeta), v);
    if constexpr (is_listing_rule(kRule)) {
        if (plan.guesses_variance) decayed = Isa::keep_where(decayed, ~guessed);
    }
    store_state<Isa, kIsTail, kStreams>(span.variance_out, at, number, decayed);
}

/// A block's codes of 16 bits, in the upper halves of the lanes, and what they decode to.
template <typename Isa>
struct HalvedBlock {
    Block<Isa> codes;
    Block<Isa> decoded;
};
template <typename Isa, DenseRule kRule>
[[gnu::always_inline]] inline HalvedBlock<Isa> halve(const Block<Isa>& residual) {
    HalvedBlock<Isa> halved;
    if constexpr (kRule == DenseRule::kBf16) {
        for (unsigned j = 0; j < Block<Isa>::kVectors; ++j)
            halved.codes.vector[j] = halved.decoded.vector[j] = Isa::round_bf16(residual.vector[j]);
    } else {
        Floats values[kRunVectors];
        Words codes[kRunVectors];
        Words decoded[kRunVectors];
        __builtin_memcpy(values, residual.vector, sizeof(values));
        for (unsigned j = 0; j < kRunVectors; ++j) {
            codes[j] = f16_codes(values[j]);
            decoded[j] = f16_words(codes[j]);
            codes[j] <<= 16U;
        }
        __builtin_memcpy(halved.codes.vector, codes, sizeof(codes));
        __builtin_memcpy(halved.decoded.vector, decoded, sizeof(decoded));
    }
    return halved;
}

/// Writes a block's codes of 16 bits and what they leave of r.
template <typename Isa, DenseRule kRule, bool kIsTail, bool kStreams>
[[gnu::always_inline]] inline void store_halves(const DenseSpan& span, const BlockPosition& at,
                                                const Block<Isa>& residual) {
    const HalvedBlock<Isa> halved = halve<Isa, kRule>(residual);
    for (unsigned j = 0; j < Block<Isa>::kVectors; ++j)
        store_state<Isa, kIsTail, kStreams>(span.residual_out, at, j,
                                            Isa::sub(residual.vector[j], halved.decoded.vector[j]));
    auto* codes = reinterpret_cast<std::uint16_t*>(span.codes) + at.local;
    if constexpr (kIsTail) {
        alignas(64) std::uint16_t block[kPooledElements];
        Isa::template store_halves<false>(block, halved.codes.vector);
        __builtin_memcpy(codes, block, at.valid * sizeof(std::uint16_t));
    } else {
        Isa::template store_halves<kStreams>(codes, halved.codes.vector);
    }
}

/// Writes a block's codes of natural and what they leave of r.
template <typename Isa, bool kHasResidual, bool kIsTail, bool kStreams>
[[gnu::always_inline]] inline void store_natural(const DensePlan& plan, const DenseSpan& span, const BlockPosition& at,
                                                 const Block<Isa>& residual) {
    Floats values[kRunVectors];
    __builtin_memcpy(values, residual.vector, sizeof(values));
    const NaturalRun run = natural_run(plan.natural, at.offset, values);
    if constexpr (kHasResidual) {
        for (unsigned j = 0; j < kRunVectors; ++j) values[j] = values[j] - run.decoded[j];
        Block<Isa> left;
        __builtin_memcpy(left.vector, values, sizeof(values));
        for (unsigned j = 0; j < Block<Isa>::kVectors; ++j)
            store_state<Isa, kIsTail, kStreams>(span.residual_out, at, j, left.vector[j]);
    }
    __builtin_memcpy(span.codes + at.local, run.codes, kIsTail ? at.valid : kPooledElements);
}

/// Writes a block's signs.
template <typename Isa, bool kIsTail>
[[gnu::always_inline]] inline void store_votes(const DenseSpan& span, const BlockPosition& at,
                                               const Block<Isa>& residual) {
    std::uint32_t signs = 0;
    for (unsigned j = 0; j < Block<Isa>::kVectors; ++j)
        signs |= Isa::greater(Isa::broadcast(0.0F), residual.vector[j]) << (j * Isa::kWidth);
    if constexpr (kIsTail) {
        if (at.valid < kPooledElements) signs &= (std::uint32_t{1} << at.valid) - 1U;
    }
    __builtin_memcpy(span.codes + at.local / 8, &signs, kIsTail ? (at.valid + 7) / 8 : sizeof(signs));
}

/// Writes one block of the tile before: its signs, and what they leave of r.
template <typename Isa, bool kStreams>
[[gnu::always_inline]] inline void store_signs(const HeldTile& tile, std::size_t local) {
    const BlockPosition at{0, local, kPooledElements};
    std::uint32_t signs = 0;
    for (unsigned j = 0; j < Block<Isa>::kVectors; ++j) {
        const auto r = Isa::load(tile.values + local + j * Isa::kWidth);
        const std::uint32_t negative = Isa::greater(Isa::broadcast(0.0F), r);
        const auto decoded = Isa::add(Isa::keep_where(Isa::broadcast(tile.scale), ~negative),
                                      Isa::keep_where(Isa::broadcast(-tile.negative_scale), negative));
        store_state<Isa, false, kStreams>(tile.residual_out, at, j, Isa::sub(r, decoded));
        signs |= negative << (j * Isa::kWidth);
    }
    __builtin_memcpy(tile.codes + local / 8, &signs, sizeof(signs));
}

/// Writes one block of the tile before: its codes, and what they leave of r.
template <bool kHasResidual, bool kStreams>
[[gnu::always_inline]] inline void store_levels(const HeldTile& tile, std::size_t local) {
    Floats values[kRunVectors];
    __builtin_memcpy(values, tile.values + local, sizeof(values));
    const DitheredRun run = dither_run(tile.dither, tile.dither.first_element + local, values);
    if constexpr (kHasResidual) {
        for (unsigned j = 0; j < kRunVectors; ++j)
            store_floats(tile.residual_out + local + j * kLanes, values[j] - run.decoded[j], kStreams);
    }
    pack_run(run.codes, tile.dither.bits, tile.codes + local / 8 * tile.dither.bits);
}

}  // namespace
}  // namespace gradsieve::codec
