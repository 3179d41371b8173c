#include "codec/stages/bf16.hpp"

#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {
namespace {

class Bf16Coder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return 0; }
    double expected_bits(const Quantizer& /*quantizer*/) const noexcept override { return 16; }
};
constexpr Bf16Coder kOwnCoder;

}  // namespace

const QuantizerCoder& Bf16::kCoder = kOwnCoder;

const QuantizerStage Bf16::kStage = {
    .row = StageRow{"bf16", "quantizer", "", "element", "-", "rounds to bfloat16, nearest even, 16 bits", "-"},
    .kind = kFacts.kind,
};

}  // namespace gradsieve::codec::stages
