// The quantizer `f32`: values as they are. Constants; any thread.
#pragma once

#include "codec/stages/quantizer_facts.hpp"

namespace gradsieve::codec {

struct QuantizerStage;
class QuantizerCoder;

namespace stages {

struct F32 {
    static constexpr QuantizerFacts kFacts = {.kind = QuantizerKind::kF32,
                                              .name = "f32",
                                              .version = 2,
                                              .route = DenseRoute::kPass,
                                              .number_bits = 32,
                                              .is_exact = true};
    static const QuantizerStage kStage;
    static const QuantizerCoder& kCoder;
};

}  // namespace stages
}  // namespace gradsieve::codec
