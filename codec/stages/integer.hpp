// Scaled integer rounding: each element becomes a whole number of steps of 1/scale, at random without bias or the
// nearer one. The arithmetic of an element, once for all forms of the CPU. Must hold no state, no memory access and
// nothing of one form. Any thread.
//
// An element between two multiples of the step loses f (1 - f) squared steps in the mean, f being how far it is from
// the lower one, so less than a step at any time; the nearer multiple loses at most half a step. Neither bound shrinks
// with the element: of magnitudes x below a step, E ||C(x)||^2 = x step, which no finite z times x^2 bounds, and
// nearest rounding sends nothing of those below half a step. So the operator is in none of the classes B1, B2, B3 and
// U(z) of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410, and there is nothing that it could be scaled
// by; with error feedback a residual stays below a step, whatever comes in.
//
// A code has a sign and a magnitude of at most 23 bits. Such a whole number is an fp32 number, and those of 256 nodes
// add up to less than 2^31. What is larger is the largest one; the rest stays in the residual, if there is one.
#pragma once

#include "codec/element.hpp"
#include "codec/stages/quantizer_facts.hpp"

namespace gradsieve::codec {

struct QuantizerStage;
class QuantizerCoder;

/// A code's bits, its sign included.
inline constexpr std::uint32_t kLeastIntegerBits = 2;
inline constexpr std::uint32_t kMostIntegerBits = 24;
inline constexpr std::uint32_t kMostInteger = (1U << (kMostIntegerBits - 1U)) - 1U;
/// Steps that a payload may say; 1/scale is between them for every scale that a codec may say.
inline constexpr float kLeastStep = 0x1p-100F;
inline constexpr float kMostStep = 0x1p100F;
/// Bits of the part of a step that is compared with a random number.
inline constexpr std::uint32_t kIntegerFractionBits = 24;
/// The random number of nearest rounding: from half a step on it goes up.
inline constexpr std::uint32_t kHalfStepWord = 0x80000000U;

/// What whole numbers are multiplied by.
GRADSIEVE_HOST_DEVICE inline float integer_step_size(float scale) { return 1.0F / scale; }

/// The magnitude of an element's whole number. `word`: its random word.
GRADSIEVE_HOST_DEVICE inline std::uint32_t integer_magnitude(float value, float scale, std::uint32_t word) {
    const float exact = element::magnitude(value) * scale;
    constexpr auto kMost = static_cast<float>(kMostInteger);
    const float limited = exact < kMost ? exact : kMost;
    const auto whole = static_cast<std::int32_t>(limited);
    const float part = (limited - static_cast<float>(whole)) * static_cast<float>(1U << kIntegerFractionBits);
    const auto fraction = static_cast<std::uint32_t>(static_cast<std::int32_t>(part));
    return static_cast<std::uint32_t>(whole) + ((fraction + (word >> 8U)) >> kIntegerFractionBits);
}

/// fp32 bits of what a field of `bits` decodes to, its sign in its highest bit. `size`: integer_step_size, or what a
/// payload says.
GRADSIEVE_HOST_DEVICE inline std::uint32_t integer_decoded_bits(std::uint32_t field, unsigned bits, float size) {
    const std::uint32_t magnitude = field & ((1U << (bits - 1U)) - 1U);
    const float value = static_cast<float>(static_cast<std::int32_t>(magnitude)) * size;
    return element::bits_of(value) | field >> (bits - 1U) << 31U;
}

/// Bits of a code that holds every one of some magnitudes, which are or-ed together in `magnitudes`.
GRADSIEVE_HOST_DEVICE constexpr std::uint32_t integer_bits(std::uint32_t magnitudes) noexcept {
    std::uint32_t bits = kLeastIntegerBits;
    while (magnitudes >> (bits - 1U) != 0) ++bits;
    return bits;
}

namespace stages {

struct Integer {
    static constexpr QuantizerFacts kFacts = {.kind = QuantizerKind::kInteger,
                                              .name = "integer",
                                              .route = DenseRoute::kChunk,
                                              .has_step = true,
                                              .is_random = true,
                                              .has_bound = false,
                                              .may_be_rotated = false};
    static const QuantizerStage kStage;
    static const QuantizerCoder& kCoder;
};

}  // namespace stages

}  // namespace gradsieve::codec
