#include "codec/warmup.hpp"

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

}  // namespace gradsieve::codec
