#include "codec/stages/integer.hpp"

#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

/// There is no z that its values could be divided by.
constexpr std::array<std::string_view, 2> kUnscaledNames = {"unscaled", "none"};

Status read(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    ret_quantizer.scale = arguments.number("scale", std::nullopt, kQuantum);
    ret_quantizer.is_biased = arguments.word("mode", 0, kRoundingNames) == 1;
    ret_quantizer.feedback = Feedback::kUnscaled;
    if (ret_quantizer.is_biased) {
        GRADSIEVE_TRY(read_feedback_of_mode("integer", arguments, selector, ret_quantizer));
    } else if (arguments.word("feedback", drops_errors(selector) ? 1 : 0, kUnscaledNames) == 1) {
        ret_quantizer.feedback = Feedback::kNone;
    }
    return arguments.finish();
}

std::string arguments_text(const Pipeline& pipeline, Knobs knobs) {
    return "scale=" + knob_text(pipeline.quantizer.scale, knobs) + ", " + mode_text(pipeline.quantizer, "");
}

class IntegerCoder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return 0; }
    /// How long they are, gradients decide; those of a few steps cost this.
    double expected_bits(const Quantizer& /*quantizer*/) const noexcept override { return 4; }
};
constexpr IntegerCoder kOwnCoder;

}  // namespace

const QuantizerCoder& Integer::kCoder = kOwnCoder;

const QuantizerStage Integer::kStage = {
    .row =
        StageRow{
            "integer", "quantizer", "scale, mode=unbiased|biased, feedback=unscaled|none", "element", "-",
            "rounded to a whole number over `scale`, at random without bias or to the nearer one, so less than 1/scale "
            "away, or at most half of that; as many bits as the chunk's largest takes, 2 to 24; beyond 2^23 - 1 cut "
            "off; "
            "no finite z or delta bounds it, so it is in none of the classes and is not scaled; none: nothing is kept",
            "Scaled integer rounding of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410"},
    .kind = kFacts.kind,
    .read = read,
    .arguments = arguments_text,
};

}  // namespace gradsieve::codec::stages
