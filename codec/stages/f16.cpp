#include "codec/stages/f16.hpp"

#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {
namespace {

class F16Coder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return 0; }
    double expected_bits(const Quantizer& /*quantizer*/) const noexcept override { return 16; }
};
constexpr F16Coder kOwnCoder;

}  // namespace

const QuantizerCoder& F16::kCoder = kOwnCoder;

const QuantizerStage F16::kStage = {
    .row = StageRow{"f16", "quantizer", "", "element", "-",
                    "rounds to IEEE half precision, nearest even, 16 bits; beyond 65504 that is sent and the rest kept",
                    "-"},
    .kind = kFacts.kind,
};

}  // namespace gradsieve::codec::stages
