#include "codec/stages/accumulate.hpp"

#include "codec/stages/sign.hpp"
#include "codec/stages/stage_text.hpp"
#include "codec/stages/warmup.hpp"

#include <cfloat>

namespace gradsieve::codec {

Pipeline waiting_pipeline(const Pipeline& pipeline) noexcept {
    Pipeline waiting;
    waiting.front = pipeline.front;
    waiting.front.is_rotated = false;  // sends nothing
    waiting.front.warmup_steps = 0;
    waiting.selector.kind = has_variance(pipeline) ? SelectorKind::kVarianceHybrid : SelectorKind::kThreshold;
    waiting.selector.zeta = pipeline.selector.zeta;
    waiting.selector.tau = FLT_MAX;
    waiting.quantizer = tau_sign(waiting.selector);
    return waiting;
}

Pipeline step_pipeline(const Pipeline& pipeline, Step step) noexcept {
    return is_waiting(pipeline, step) ? waiting_pipeline(pipeline) : warmed_pipeline(pipeline, step);
}

namespace stages {
namespace {

constexpr NumberRange kPeriod = {1, 100, false, "a whole number in [1, 100]"};

Status read(ArgumentReader& arguments, Pipeline& inout_pipeline) {
    const double number = arguments.number("n", std::nullopt, kPeriod);
    return read_whole(arguments, number, "codec stage accumulate: n", kPeriod, inout_pipeline.front.period);
}

std::string text(const Pipeline& pipeline, Knobs /*knobs*/) {
    const int period = pipeline.front.period;
    return period > 1 ? "accumulate(n=" + std::to_string(period) + ")" : "";
}

Status check(const Pipeline& pipeline) {
    if (pipeline.front.period <= 1 || has_residual(pipeline)) return {};
    return bad_text("codec stage before a codec that keeps no residual", "accumulate", "none",
                    "gradients would have nowhere to wait: take a quantizer that keeps its error, such as bf16, or "
                    "a selector that leaves elements out");
}

}  // namespace

const FrontStage Accumulate::kStage = {
    .row =
        StageRow{
            "accumulate", "front", "n", "tensor", "-",
            "sends at every n-th step alone, those whose number n divides; in the others gradients are added to the "
            "residual, and what comes back is zero",
            "Gradient accumulation over n steps, in the residual"},
    .read = read,
    .text = text,
    .check = check,
};

}  // namespace stages

}  // namespace gradsieve::codec
