#include "codec/stages/variance_hybrid.hpp"

#include "codec/stages/sign.hpp"
#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, Selector& ret_selector) {
    ret_selector.tau = arguments.number("tau", std::nullopt, kQuantum);
    ret_selector.alpha = arguments.number("alpha", 2, kNotNegative);
    ret_selector.zeta = arguments.number("zeta", 0.999, kFraction);
    return arguments.finish();
}

std::string arguments_text(const Selector& selector, Knobs knobs) {
    return "tau=" + knob_text(selector.tau, knobs) + ", alpha=" + knob_text(selector.alpha, knobs) +
           ", zeta=" + knob_text(selector.zeta, knobs);
}

Status check(const Pipeline& pipeline) {
    if (pipeline.quantizer == tau_sign(pipeline.selector)) return {};
    return bad_text("quantizer after variance_hybrid", canonical_text(pipeline, Knobs::kKeep), "sign(scale=tau)",
                    "the hybrid sends +-tau: write sign(scale=tau), or leave the quantizer out");
}

}  // namespace

const SelectorStage VarianceHybrid::kStage = {
    .row = StageRow{"variance_hybrid", "selector", "tau, alpha=2, zeta=0.999", "element",
                    "r, v: 8 B per element and generation",
                    "as variance, and only where |r| > tau; sends +-tau, so its quantizer is sign(scale=tau)",
                    "Tsuzuku et al. 2018, the hybrid; threshold of Strom 2015, Scalable Distributed DNN Training Using "
                    "Commodity "
                    "GPU Cloud Computing"},
    .kind = SelectorKind::kVarianceHybrid,
    .selection = Selection::kTested,
    .read = read,
    .arguments = arguments_text,
    .check = check,
    .default_quantizer = tau_sign,
    .expected_share = share_of_tests,
    .has_tau = true,
    .tests_variance = true,
};

}  // namespace gradsieve::codec::stages
