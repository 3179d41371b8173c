// Natural compression (Horvath, Ho, Horvath, Sahu, Canini, Richtarik 2019): the arithmetic of an element, once for the
// CPU's forms and the GPU's. Must hold no state, no memory access and nothing of one form. Any thread.
//
// A magnitude 2^e (1 + m), 0 <= m < 1, becomes 2^(e+1) with probability m and 2^e else, so that the expectation is the
// magnitude. In units of 2^e its second moment is 1 + 3 m, against (1 + m)^2: the ratio is largest at m = 1/3, where it
// is z = 9/8. With error feedback the magnitude is multiplied by 1/z before it is rounded, and what is sent is still a
// power of two: E ||C(x)||^2 <= z ||x / z||^2 and <E C(x), x> = ||x||^2 / z, hence E ||x - C(x)||^2 <= (1 - 1/z)
// ||x||^2 = ||x||^2 / 9. Unscaled it is a contraction too, of 1/8, since z < 2.
//
// A code of 8 bits has a sign and one of 127 exponents or zero. Exponents are those of 2^-108 to 2^18: magnitudes below
// are zero, and those above are the largest.
#pragma once

#include "codec/element.hpp"
#include "codec/stages/quantizer_facts.hpp"

namespace gradsieve::codec {

struct QuantizerStage;
class QuantizerCoder;

/// Biased exponents of the smallest and the largest power of two that has a code.
inline constexpr std::uint32_t kLeastNaturalExponent = 19;
inline constexpr std::uint32_t kMostNaturalExponent = 145;
/// A code without its sign and its exponent differ by this; code 0 is zero.
inline constexpr std::uint32_t kNaturalExponentOffset = kLeastNaturalExponent - 1;
inline constexpr std::uint32_t kNaturalCodeBits = 8;
static_assert(kMostNaturalExponent - kNaturalExponentOffset == 0x7F);
/// Bits of the random word that are not used: a mantissa has 23.
inline constexpr unsigned kNaturalUnusedBits = 9;

/// What magnitudes are multiplied by.
GRADSIEVE_HOST_DEVICE constexpr float natural_factor(bool is_scaled) { return is_scaled ? 8.0F / 9.0F : 1.0F; }

/// `word`: the element's random word, which carries into the exponent with the mantissa's probability.
GRADSIEVE_HOST_DEVICE inline std::uint32_t natural_code(float value, float factor, std::uint32_t word) {
    const std::uint32_t bits = element::bits_of(element::magnitude(value) * factor);
    if (bits < kLeastNaturalExponent << 23U) return 0;
    const std::uint32_t rounded = (bits + (word >> kNaturalUnusedBits)) >> 23U;
    const std::uint32_t exponent = rounded < kMostNaturalExponent ? rounded : kMostNaturalExponent;
    return (exponent - kNaturalExponentOffset) | (element::bits_of(value) >> 31U) << 7U;
}

/// fp32 bits of what a code decodes to.
GRADSIEVE_HOST_DEVICE inline std::uint32_t natural_decoded_bits(std::uint32_t code) {
    const std::uint32_t size = code & 0x7FU;
    return (size == 0 ? 0U : (size + kNaturalExponentOffset) << 23U) | (code & 0x80U) << 24U;
}

namespace stages {

struct Natural {
    static constexpr QuantizerFacts kFacts = {.kind = QuantizerKind::kNatural,
                                              .name = "natural",
                                              .version = 3,
                                              .route = DenseRoute::kPass,
                                              .is_random = true};
    static const QuantizerStage kStage;
    static const QuantizerCoder& kCoder;
};

}  // namespace stages

}  // namespace gradsieve::codec
