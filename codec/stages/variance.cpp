#include "codec/stages/variance.hpp"

#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

constexpr std::array<std::string_view, 2> kModeNames = {"conserving", "faithful"};

Status read(ArgumentReader& arguments, Selector& ret_selector) {
    ret_selector.alpha = arguments.number("alpha", 1.5, kNotNegative);
    ret_selector.zeta = arguments.number("zeta", 0.999, kFraction);
    ret_selector.is_faithful = arguments.word("mode", 0, kModeNames) == 1;
    return arguments.finish();
}

std::string arguments_text(const Selector& selector, Knobs knobs) {
    return "alpha=" + knob_text(selector.alpha, knobs) + ", zeta=" + knob_text(selector.zeta, knobs) +
           ", mode=" + std::string(kModeNames[selector.is_faithful ? 1 : 0]);
}

}  // namespace

const SelectorStage Variance::kStage = {
    .row =
        StageRow{
            "variance", "selector", "alpha=1.5, zeta=0.999, mode=conserving|faithful", "element",
            "r, v: 8 B per element and generation",
            "sends an element once its accumulated gradient is unambiguous: r^2 > alpha v; v decays by zeta meanwhile",
            kTsuzuku},
    .kind = SelectorKind::kVariance,
    .selection = Selection::kTested,
    .read = read,
    .arguments = arguments_text,
    .expected_share = share_of_tests,
    .tests_variance = true,
};

}  // namespace gradsieve::codec::stages
