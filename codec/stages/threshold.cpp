#include "codec/stages/threshold.hpp"

#include "codec/stages/sign.hpp"
#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, Selector& ret_selector) {
    ret_selector.tau = arguments.number("tau", std::nullopt, kQuantum);
    return arguments.finish();
}

std::string arguments_text(const Selector& selector, Knobs knobs) { return "tau=" + knob_text(selector.tau, knobs); }

}  // namespace

const SelectorStage Threshold::kStage = {
    .row =
        StageRow{"threshold", "selector", "tau", "element", "r: 4 B per element and generation",
                 "sends where |r| > tau; without a quantizer +-tau, that is sign(scale=tau), and the rest stays in r",
                 "Strom 2015, Scalable Distributed DNN Training Using Commodity GPU Cloud Computing, Interspeech"},
    .kind = SelectorKind::kThreshold,
    .selection = Selection::kTested,
    .read = read,
    .arguments = arguments_text,
    .default_quantizer = tau_sign,
    .expected_share = share_of_tests,
    .has_tau = true,
};

}  // namespace gradsieve::codec::stages
