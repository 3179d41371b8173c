#include "codec/stages/warmup.hpp"

#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec {
namespace {

constexpr double kFall = 0.25;

}  // namespace

int warmup_stages(const Pipeline& pipeline) noexcept {
    if (!has_warmup(pipeline)) return 0;
    int stages = 0;
    for (double ratio = pipeline.front.warmup_from; ratio > pipeline.selector.ratio; ratio *= kFall) ++stages;
    return stages;
}

double ratio_at(const Pipeline& pipeline, Step step) noexcept {
    const auto steps = static_cast<Step>(pipeline.front.warmup_steps);
    if (!has_warmup(pipeline) || step > steps) return pipeline.selector.ratio;
    const Step before = step == 0 ? 0 : step - 1;
    const Step stage = before * static_cast<Step>(warmup_stages(pipeline)) / steps;
    double ratio = pipeline.front.warmup_from;
    for (Step fallen = 0; fallen < stage; ++fallen) ratio *= kFall;
    return ratio;
}

Pipeline warmed_pipeline(const Pipeline& pipeline, Step step) noexcept {
    Pipeline warmed = settled_pipeline(pipeline);
    if (has_warmup(pipeline)) warmed.selector.ratio = ratio_at(pipeline, step);
    return warmed;
}

Pipeline settled_pipeline(const Pipeline& pipeline) noexcept {
    Pipeline settled = pipeline;
    settled.front.warmup_steps = 0;
    settled.front.warmup_from = Front{}.warmup_from;
    return settled;
}

namespace stages {
namespace {

constexpr NumberRange kSteps = {1, 1e9, false, "a whole number in [1, 1e9]"};

Status read(ArgumentReader& arguments, Pipeline& inout_pipeline) {
    Front& front = inout_pipeline.front;
    const double steps = arguments.number("steps", std::nullopt, kSteps);
    front.warmup_from = arguments.number("from", front.warmup_from, kFraction);
    return read_whole(arguments, steps, "codec stage warmup: steps", kSteps, front.warmup_steps);
}

std::string text(const Pipeline& pipeline, Knobs /*knobs*/) {
    if (!has_warmup(pipeline)) return {};
    return "warmup(steps=" + std::to_string(pipeline.front.warmup_steps) +
           ", from=" + number_text(pipeline.front.warmup_from) + ")";
}

/// A ratio that falls to the selector's.
Status check(const Pipeline& pipeline) {
    if (!has_warmup(pipeline)) return {};
    if (!has_ratio(pipeline.selector) || has_phases(pipeline))
        return bad_text("codec behind warmup", canonical_text(pipeline, Knobs::kKeep),
                        "topk, block_topk, gaussian_k, sidco, randk or adaptive_random",
                        "there is no ratio that could fall to its own: leave warmup out");
    if (pipeline.front.warmup_from > pipeline.selector.ratio) return {};
    return bad_text("codec stage warmup: from", number_text(pipeline.front.warmup_from),
                    "more than the selector's ratio of " + number_text(pipeline.selector.ratio) + ", at most 1",
                    "write e.g. warmup(1000, from=0.25) | topk(0.001), or leave warmup out");
}

}  // namespace

const FrontStage Warmup::kStage = {
    .row =
        StageRow{
            "warmup", "front", "steps, from=0.25", "tensor", "-",
            "the selector's ratio begins at `from` and falls to a quarter again and again until it is its own, each "
            "for as many of the first `steps` steps, by the numbers of which a job that goes on does not begin anew; "
            "stands before a selector with a ratio below `from`",
            "Lin, Han, Mao, Wang, Dally 2018, Deep Gradient Compression, arXiv:1712.01887, warm-up training"},
    .read = read,
    .text = text,
    .check = check,
};

}  // namespace stages

}  // namespace gradsieve::codec
