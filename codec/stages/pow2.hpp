// The quantizer `pow2` (Tsuzuku et al. 2018, the 4-bit quantization): signs and powers of two (element::pow2_decoded).
// What is too small for its tile is not sent, so that it always sends lists. Constants; any thread.
#pragma once

#include "codec/stages/quantizer_facts.hpp"

namespace gradsieve::codec {

struct QuantizerStage;
class QuantizerCoder;

namespace stages {

struct Pow2 {
    static constexpr QuantizerFacts kFacts = {.kind = QuantizerKind::kPow2,
                                              .name = "pow2",
                                              .version = 2,
                                              .route = DenseRoute::kList,
                                              .has_exponents = true,
                                              .codes_zero = false,
                                              .may_be_rotated = false};
    static const QuantizerStage kStage;
    static const QuantizerCoder& kCoder;
};

}  // namespace stages
}  // namespace gradsieve::codec
