// Adaptive random sparsification (Beznosikov, Horvath, Richtarik, Safaryan 2020): elements of a block are drawn with
// probabilities in proportion to their magnitudes, with replacement, and what was drawn is sent as it is. The
// arithmetic once for the CPU's forms and the GPU's: integers alone, so that no order of sums can show. Must hold no
// state, no memory access and nothing of one form. Any thread.
//
// With one draw, E ||C(x)||^2 = <E C(x), x> = ||x||_3^3 / ||x||_1 >= ||x||^2 / d of a block of d elements; more draws
// only raise each element's probability, so the error is at most (1 - 1/d) ||x||^2.
#pragma once

#include "codec/philox.hpp"

namespace gradsieve::codec {

struct SelectorStage;

/// What the words are for, in the counter's second word: drawing by magnitude.
inline constexpr std::uint32_t kAdaptivePurpose = 6U << 24U;

/// A magnitude in units of 2^-30 of the largest one's power of two, rounded down: below 2^31. `bits`: its fp32 bits.
GRADSIEVE_HOST_DEVICE inline std::uint32_t draw_weight(std::uint32_t bits, std::uint32_t largest_bits) {
    const std::uint32_t exponent = bits >> 23U;
    const std::uint32_t top = largest_bits >> 23U;
    const std::uint32_t fraction = (bits & 0x7FFFFFU) | (exponent > 0 ? 0x800000U : 0U);
    const std::uint32_t octaves = (top > 0 ? top : 1U) - (exponent > 0 ? exponent : 1U);
    return octaves < 31 ? (fraction << 7U) >> octaves : 0U;
}

/// floor(word * total / 2^64), below `total`; `total` < 2^43.
GRADSIEVE_HOST_DEVICE inline std::uint64_t draw_target(std::uint64_t word, std::uint64_t total) {
    constexpr std::uint64_t kLow = 0xFFFFFFFFU;
    const std::uint64_t low = ((word & kLow) * (total & kLow)) >> 32U;
    const std::uint64_t middle = (word >> 32U) * (total & kLow) + low;
    const std::uint64_t other = (word & kLow) * (total >> 32U) + (middle & kLow);
    return (word >> 32U) * (total >> 32U) + (middle >> 32U) + (other >> 32U);
}

/// The word of a block's draw `draw`; `first_element` of the block in the tensor. A block has no more draws than
/// elements.
GRADSIEVE_HOST_DEVICE inline std::uint64_t draw_word(const RandomStream& stream, std::uint64_t first_element,
                                                     std::uint32_t draw) {
    const std::uint64_t number = first_element / 2 + draw / 2;
    const PhiloxBlock block =
        philox({{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32U) | kAdaptivePurpose,
                 stream.step_low, stream.step_high}},
               stream.key);
    const std::uint32_t place = 2 * (draw % 2);
    return block.words[place] | std::uint64_t{block.words[place + 1]} << 32U;
}

namespace stages {

struct AdaptiveRandom {
    static const SelectorStage kStage;
};

}  // namespace stages

}  // namespace gradsieve::codec
