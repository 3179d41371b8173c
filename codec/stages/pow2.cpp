#include "codec/stages/pow2.hpp"

#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

constexpr std::array<std::string_view, 2> kScopeNames = {"tile", "tensor"};

Status read(ArgumentReader& arguments, const Selector& /*selector*/, Quantizer& ret_quantizer) {
    const double bits = arguments.number("bits", 4, kCodeBits);
    ret_quantizer.scope = static_cast<Scope>(arguments.word("scope", 0, kScopeNames));
    return read_whole(arguments, bits, "codec stage pow2: bits", kCodeBits, ret_quantizer.bits);
}

std::string arguments_text(const Pipeline& pipeline, Knobs /*knobs*/) {
    return "bits=" + std::to_string(pipeline.quantizer.bits) +
           ", scope=" + std::string(kScopeNames[static_cast<std::size_t>(pipeline.quantizer.scope)]);
}

class Pow2Coder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& quantizer) const noexcept override {
        return static_cast<std::uint32_t>(quantizer.bits);
    }
};
constexpr Pow2Coder kOwnCoder;

}  // namespace

const QuantizerCoder& Pow2::kCoder = kOwnCoder;

const QuantizerStage Pow2::kStage = {
    .row =
        StageRow{
            "pow2", "quantizer", "bits=4, scope=tile|tensor", "tile or tensor", "-",
            "sign and power of two, at most 2^(bits-1)-1 octaves below the tile's largest; smaller ones are not sent",
            "Tsuzuku et al. 2018, the 4-bit quantization (scale per tensor there: scope=tensor)"},
    .kind = kFacts.kind,
    .read = read,
    .arguments = arguments_text,
};

}  // namespace gradsieve::codec::stages
