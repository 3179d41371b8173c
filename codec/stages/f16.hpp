// The quantizer `f16`: IEEE half precision, nearest even (element::f16_bits). Constants; any thread.
#pragma once

#include "codec/stages/quantizer_facts.hpp"

namespace gradsieve::codec {

struct QuantizerStage;
class QuantizerCoder;

namespace stages {

struct F16 {
    static constexpr QuantizerFacts kFacts = {
        .kind = QuantizerKind::kF16, .name = "f16", .version = 3, .route = DenseRoute::kPass, .number_bits = 16};
    static const QuantizerStage kStage;
    static const QuantizerCoder& kCoder;
};

}  // namespace stages
}  // namespace gradsieve::codec
