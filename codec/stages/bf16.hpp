// The quantizer `bf16`: the upper half of an fp32 number, nearest even (element::bf16_bits). Constants; any thread.
#pragma once

#include "codec/stages/quantizer_facts.hpp"

namespace gradsieve::codec {

struct QuantizerStage;
class QuantizerCoder;

namespace stages {

struct Bf16 {
    static constexpr QuantizerFacts kFacts = {
        .kind = QuantizerKind::kBf16, .name = "bf16", .version = 2, .route = DenseRoute::kPass, .number_bits = 16};
    static const QuantizerStage kStage;
    static const QuantizerCoder& kCoder;
};

}  // namespace stages
}  // namespace gradsieve::codec
