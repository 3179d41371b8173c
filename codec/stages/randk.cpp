#include "codec/stages/randk.hpp"

#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, Selector& ret_selector) {
    ret_selector.ratio = arguments.number("ratio", std::nullopt, kFraction);
    return read_selector_feedback(arguments, ret_selector);
}

std::string arguments_text(const Selector& selector, Knobs knobs) {
    return "ratio=" + knob_text(selector.ratio, knobs) + ", " + feedback_text(selector.feedback);
}

}  // namespace

const SelectorStage RandK::kStage = {
    .row =
        StageRow{
            "randk", "selector", "ratio, feedback=scaled|none", "tensor",
            "none with feedback=none; r otherwise: 4 B per element and generation",
            "sends the ratio's share of elements, drawn at random, the same on every node, and of their positions only "
            "a key; none: values are sent over their probability, unbiased, and nothing is kept",
            "Rand-k of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410; subsets of Bentley, Floyd "
            "1987, A Sample of Brilliance"},
    .kind = SelectorKind::kRandK,
    .selection = Selection::kKeyed,
    .read = read,
    .arguments = arguments_text,
    .check = check_keyed,
    .has_ratio = true,
};

}  // namespace gradsieve::codec::stages
