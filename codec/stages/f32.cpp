#include "codec/stages/f32.hpp"

#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {
namespace {

class F32Coder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return 0; }
    double expected_bits(const Quantizer& /*quantizer*/) const noexcept override { return 32; }
};
constexpr F32Coder kOwnCoder;

}  // namespace

const QuantizerCoder& F32::kCoder = kOwnCoder;

const QuantizerStage F32::kStage = {
    .row = StageRow{"f32", "quantizer", "", "element", "-", "sends the value itself, 32 bits", "-"},
    .kind = kFacts.kind,
};

}  // namespace gradsieve::codec::stages
