#include "codec/stages/sign.hpp"

#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage_list.hpp"
#include "codec/stages/stage_text.hpp"
#include "codec/stages/two_mean.hpp"
#include "codec/stages/vote.hpp"

namespace gradsieve::codec {
namespace stages {
namespace {

Status read(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    const auto scale = arguments.take("scale");
    if (!scale || *scale == "mean") return arguments.finish();
    if (*scale == "two_mean") {
        ret_quantizer.kind = TwoMean::kFacts.kind;
    } else if (*scale == "none") {
        ret_quantizer.kind = Vote::kFacts.kind;
        ret_quantizer.feedback = Feedback::kNone;
    } else if (*scale == "drive") {
        ret_quantizer.feedback = Feedback::kNone;
    } else if (*scale == "tau") {
        ret_quantizer.tau = selector.tau;
        if (!has_tau(selector))
            return bad_text("codec stage sign: scale", "tau", "mean or a number after a selector without a tau",
                            "write the number, e.g. sign(scale=0.01), or select with variance_hybrid(0.01) or "
                            "threshold(0.01)");
    } else {
        ret_quantizer.tau = arguments.parse_number("scale", *scale, kQuantum);
    }
    return arguments.finish();
}

std::string arguments_text(const Pipeline& pipeline, Knobs knobs) {
    const Quantizer& quantizer = pipeline.quantizer;
    if (quantizer.kind == TwoMean::kFacts.kind) return "scale=two_mean";
    if (quantizer.kind == Vote::kFacts.kind) return "scale=none";
    if (quantizer.tau == 0) return has_drive_scale(quantizer) ? "scale=drive" : "scale=mean";
    const bool is_selector_s = has_tau(pipeline.selector) && quantizer.tau == pipeline.selector.tau;
    return "scale=" + (is_selector_s ? std::string("tau") : knob_text(quantizer.tau, knobs));
}

Status check(const Pipeline& pipeline) {
    const Quantizer& quantizer = pipeline.quantizer;
    if (quantizer.kind == Vote::kFacts.kind && !sends_all(pipeline.selector))
        return bad_text("codec stage sign: scale", "none", "mean, two_mean or a number after a selector but all",
                        "a sign without a size leaves nothing that a residual could keep: select with all, or give "
                        "the scale");
    return {};
}

bool is_name_of(const Quantizer& quantizer) {
    return quantizer.kind == Sign::kFacts.kind || quantizer.kind == TwoMean::kFacts.kind ||
           quantizer.kind == Vote::kFacts.kind;
}

class SignCoder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return 1; }
};
constexpr SignCoder kOwnCoder;

}  // namespace

const QuantizerCoder& Sign::kCoder = kOwnCoder;

const QuantizerStage Sign::kStage = {
    .row =
        StageRow{
            "sign", "quantizer", "scale=mean|two_mean|tau|NUMBER|drive|none", "tile", "-",
            "sign times the tile's mean magnitude, 1 bit; two_mean: the mean of the tile's negative elements, or of "
            "its "
            "others; tau: times the selector's tau; NUMBER: times that number; drive, after rotate: times the sum of "
            "squares over that of magnitudes, and nothing is kept; none: every node votes with its ranks' weight, +1 "
            "or "
            "-1 is the result, ties are +1, and nothing is kept",
            "Seide, Fu, Droppo, Li, Yu 2014, 1-Bit Stochastic Gradient Descent (two_mean); mean magnitude of "
            "Karimireddy "
            "et al. 2019, arXiv:1901.09847; drive: Vargaftik et al. 2021, DRIVE; vote of Bernstein, Zhao, "
            "Azizzadenesheli, Anandkumar 2018, arXiv:1810.05291",
            "gather; majority with none"},
    .kind = kFacts.kind,
    .read = read,
    .arguments = arguments_text,
    .check = check,
    .is_name_of = is_name_of,
};

}  // namespace stages

Quantizer tau_sign(const Selector& selector) {
    Quantizer sign;
    sign.kind = stages::Sign::kFacts.kind;
    sign.tau = selector.tau;
    return sign;
}

}  // namespace gradsieve::codec
