#include "codec/stages/rounding.hpp"

#include "codec/stages/exponential_dither.hpp"
#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    ret_quantizer.is_fixed = true;
    ret_quantizer.base = static_cast<float>(arguments.number("base", 2, kBase));
    // One out of its range is refused once all arguments have been read.
    if (ret_quantizer.base >= kLeastBase && ret_quantizer.base <= kMostBase)
        ret_quantizer.levels = static_cast<int>(most_levels(static_cast<float>(ret_quantizer.base)));
    ret_quantizer.is_biased = arguments.word("mode", 0, kRoundingNames) == 1;
    GRADSIEVE_TRY(read_feedback_of_mode("rounding", arguments, selector, ret_quantizer));
    return arguments.finish();
}

std::string arguments_text(const Pipeline& pipeline, Knobs /*knobs*/) {
    return "base=" + float_text(pipeline.quantizer.base) + ", " + mode_text(pipeline.quantizer, "");
}

}  // namespace

const QuantizerStage Rounding::kStage = {
    .row =
        StageRow{"rounding", "quantizer", "base=2, mode=unbiased|biased, feedback=scaled|unscaled|none", "element", "-",
                 "rounded to a power of the base, at random without bias or to the nearer one, 1 + ceil(log2(levels + "
                 "1)) bits: "
                 "up to 127 levels from the power at or above the tile's largest magnitude down, 0 below; times 1/z "
                 "where the "
                 "error is fed back (scaled); none: nothing is kept",
                 "General rounding of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410"},
    .kind = ExponentialDither::kFacts.kind,
    .read = read,
    .arguments = arguments_text,
    .is_name_of = [](const Quantizer& quantizer) { return quantizer.is_fixed; },
};

}  // namespace gradsieve::codec::stages
