#include "codec/stages/natural.hpp"

#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    ret_quantizer.feedback = read_feedback(arguments, selector);
    return arguments.finish();
}

std::string arguments_text(const Pipeline& pipeline, Knobs /*knobs*/) {
    return feedback_text(pipeline.quantizer.feedback);
}

class NaturalCoder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return kNaturalCodeBits; }
};
constexpr NaturalCoder kOwnCoder;

}  // namespace

const QuantizerCoder& Natural::kCoder = kOwnCoder;

const QuantizerStage Natural::kStage = {
    .row =
        StageRow{
            "natural", "quantizer", "feedback=scaled|unscaled|none", "element", "-",
            "natural compression: rounded at random to a power of two without bias, 8 bits; 2^-108 to 2^18, smaller "
            "ones are zero; times 8/9 where the error is fed back (scaled); none: nothing is kept",
            "Horvath, Ho, Horvath, Sahu, Canini, Richtarik 2019, Natural Compression for Distributed Deep Learning, "
            "arXiv:1905.10988; 8-bit code of GRACE, Xu et al. 2021"},
    .kind = kFacts.kind,
    .read = read,
    .arguments = arguments_text,
};

}  // namespace gradsieve::codec::stages
