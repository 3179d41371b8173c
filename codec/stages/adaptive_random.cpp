#include "codec/stages/adaptive_random.hpp"

#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, Selector& ret_selector) {
    ret_selector.ratio = arguments.number("ratio", std::nullopt, kFraction);
    return read_block(arguments, "adaptive_random", ret_selector);
}

std::string arguments_text(const Selector& selector, Knobs knobs) {
    return "ratio=" + knob_text(selector.ratio, knobs) + ", block=" + knob_text(selector.block, knobs);
}

Status check(const Pipeline& pipeline) {
    if (pipeline.quantizer.scope != Scope::kTensor) return {};
    return bad_text("scope of pow2 after adaptive_random", "tensor", "tile",
                    "the tensor's largest element need not be among those drawn: leave the scope out");
}

}  // namespace

const SelectorStage AdaptiveRandom::kStage = {
    .row =
        StageRow{"adaptive_random", "selector", "ratio, block=4096", "block", "r: 4 B per element and generation",
                 "draws the ratio's share of each block of so many elements, a power of two, and at least one, with "
                 "probabilities in proportion to magnitudes and with replacement; sends what was drawn as it is",
                 "Adaptive random sparsification of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410"},
    .kind = SelectorKind::kAdaptiveRandom,
    .selection = Selection::kBlockDrawn,
    .read = read,
    .arguments = arguments_text,
    .check = check,
    .has_ratio = true,
};

}  // namespace gradsieve::codec::stages
