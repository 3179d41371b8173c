#include "codec/stages/biased_random.hpp"

#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, Selector& ret_selector) {
    ret_selector.probability = arguments.number("first", std::nullopt, kProbability);
    ret_selector.last_probability = arguments.number("last", std::nullopt, kProbability);
    return arguments.finish();
}

std::string arguments_text(const Selector& selector, Knobs knobs) {
    return "first=" + knob_text(selector.probability, knobs) + ", last=" + knob_text(selector.last_probability, knobs);
}

Probabilities probabilities(const Selector& selector) { return {selector.probability, selector.last_probability}; }

}  // namespace

const SelectorStage BiasedRandom::kStage = {
    .row =
        StageRow{
            "biased_random", "selector", "first, last", "element", "r: 4 B per element and generation",
            "sends each element with a probability that goes from `first` at the tensor's first tile to `last` at its "
            "last one, as it is, and of positions only a key",
            "Biased random sparsification of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410"},
    .kind = SelectorKind::kBiasedRandom,
    .selection = Selection::kKeyed,
    .read = read,
    .arguments = arguments_text,
    .check = check_keyed,
    .expected_share = [](const Selector& selector) { return (selector.probability + selector.last_probability) / 2; },
    .probabilities = probabilities,
};

}  // namespace gradsieve::codec::stages
