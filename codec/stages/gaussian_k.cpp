#include "codec/stages/gaussian_k.hpp"

#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, Selector& ret_selector) {
    ret_selector.ratio = arguments.number("ratio", std::nullopt, kFraction);
    return arguments.finish();
}

std::string arguments_text(const Selector& selector, Knobs knobs) {
    return "ratio=" + knob_text(selector.ratio, knobs);
}

}  // namespace

const SelectorStage GaussianK::kStage = {
    .row =
        StageRow{
            "gaussian_k", "selector", "ratio", "tensor", "r: 4 B per element and generation",
            "cheap top-k: a threshold at which a normal distribution of r's mean and variance keeps the ratio, at most "
            "three times halved or raised by half; at least one is sent, and at most 4/3 of k, the largest",
            "Shi, Chu, Cheung, See 2019, Understanding Top-k Sparsification in Distributed Deep Learning, "
            "arXiv:1911.08772"},
    .kind = SelectorKind::kGaussianK,
    .selection = Selection::kEstimated,
    .read = read,
    .arguments = arguments_text,
    .has_ratio = true,
    .takes_normal = true,
};

}  // namespace gradsieve::codec::stages
