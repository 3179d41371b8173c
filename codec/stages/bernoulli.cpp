#include "codec/stages/bernoulli.hpp"

#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, Selector& ret_selector) {
    ret_selector.probability = arguments.number("p", std::nullopt, kProbability);
    return read_selector_feedback(arguments, ret_selector);
}

std::string arguments_text(const Selector& selector, Knobs knobs) {
    return "p=" + knob_text(selector.probability, knobs) + ", " + feedback_text(selector.feedback);
}

Probabilities probabilities(const Selector& selector) { return {selector.probability, selector.probability}; }

}  // namespace

const SelectorStage Bernoulli::kStage = {
    .row =
        StageRow{
            "bernoulli", "selector", "p, feedback=scaled|none", "element",
            "none with feedback=none; r otherwise: 4 B per element and generation",
            "sends each element with probability p, the same on every node, and of positions only a key; none: values "
            "are sent over p, unbiased, and nothing is kept",
            "Wangni, Wang, Liu, Zhang 2018, Gradient Sparsification for Communication-Efficient Distributed "
            "Optimization, arXiv:1710.09854, with one probability for all"},
    .kind = SelectorKind::kBernoulli,
    .selection = Selection::kKeyed,
    .read = read,
    .arguments = arguments_text,
    .check = check_keyed,
    .expected_share = [](const Selector& selector) { return selector.probability; },
    .probabilities = probabilities,
};

}  // namespace gradsieve::codec::stages
