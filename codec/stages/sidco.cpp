#include "codec/stages/sidco.hpp"

#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

constexpr NumberRange kStages = {1, 8, false, "a whole number in [1, 8]"};

Status read(ArgumentReader& arguments, Selector& ret_selector) {
    ret_selector.ratio = arguments.number("ratio", std::nullopt, kFraction);
    const double stages = arguments.number("stages", 3, kStages);
    return read_whole(arguments, stages, "codec stage sidco: stages", kStages, ret_selector.stages);
}

std::string arguments_text(const Selector& selector, Knobs knobs) {
    return "ratio=" + knob_text(selector.ratio, knobs) + ", stages=" + knob_text(selector.stages, knobs);
}

}  // namespace

const SelectorStage Sidco::kStage = {
    .row =
        StageRow{
            "sidco", "selector", "ratio, stages=3", "tensor", "r: 4 B per element and generation",
            "cheap top-k: a threshold at which an exponential distribution of |r| keeps the ratio, the first stage a "
            "quarter and each other one fitted to what is above the last; at least one is sent, and at most 4/3 of k",
            "Abdelmoniem, Elzanaty, Alouini, Canini 2021, An Efficient Statistical-based Gradient Compression "
            "Technique for Distributed Training Systems, arXiv:2101.10761, exponential fit"},
    .kind = SelectorKind::kSidco,
    .selection = Selection::kEstimated,
    .read = read,
    .arguments = arguments_text,
    .has_ratio = true,
};

}  // namespace gradsieve::codec::stages
