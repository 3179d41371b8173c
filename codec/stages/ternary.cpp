#include "codec/stages/ternary.hpp"

#include "codec/stages/dither.hpp"
#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

constexpr double kUsualClip = 2.5;
/// No magnitude of a tile is above the root of its elements times their root mean square.
constexpr NumberRange kClip = {1, 64, false, "none or [1, 64]"};

Status read(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    ret_quantizer.levels = 1;
    const auto clip = arguments.take("clip");
    ret_quantizer.clip = !clip ? kUsualClip : *clip == "none" ? 0 : arguments.parse_number("clip", *clip, kClip);
    ret_quantizer.feedback = read_feedback(arguments, selector);
    return arguments.finish();
}

std::string arguments_text(const Pipeline& pipeline, Knobs knobs) {
    return "clip=" + knob_text(pipeline.quantizer.clip, knobs) + ", " + feedback_text(pipeline.quantizer.feedback);
}

}  // namespace

const QuantizerStage Ternary::kStage = {
    .row =
        StageRow{
            "ternary", "quantizer", "clip=2.5|none, feedback=scaled|unscaled|none", "tile", "-",
            "dither(levels=1, norm=max) of magnitudes that are cut off at `clip` times the tile's root mean square, 2 "
            "bits: 0 or plus or minus that; unbiased of what is cut off, and the rest stays in r",
            "Wen, Xu, Yan, Wu, Wang, Chen, Li 2017, TernGrad, arXiv:1705.07878"},
    .kind = Dither::kFacts.kind,
    .read = read,
    .arguments = arguments_text,
    .is_name_of = [](const Quantizer& quantizer) { return quantizer.clip > 0; },
};

}  // namespace gradsieve::codec::stages
