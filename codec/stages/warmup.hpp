// Warm-up: a selector that sends more than its ratio in the first steps of a job. The ratio begins at `from` and falls
// to a quarter again and again until it is the selector's, each for as many steps: 25 %, 6.25 %, 1.5625 %, 0.39 %, 0.1
// % (Lin, Han, Mao, Wang, Dally 2018, Deep Gradient Compression, arXiv:1712.01887, warm-up training). Quarters are
// exact in fp64, and step numbers are the same on every node, so that all have one ratio. Plain values; any thread.
#pragma once

#include "base/id.hpp"
#include "codec/pipeline.hpp"

namespace gradsieve::codec {

struct FrontStage;

/// Ratios above the selector's that a warm-up goes through: how many quarterings `from` is away from it, rounded up.
[[nodiscard]] int warmup_stages(const Pipeline& pipeline) noexcept;

/// Share of elements that the selector keeps in a step: its own ratio behind the last step of the warm-up and of
/// pipelines without one.
[[nodiscard]] double ratio_at(const Pipeline& pipeline, Step step) noexcept;

/// What a step is encoded by: the pipeline with the step's ratio, and without a warm-up.
[[nodiscard]] Pipeline warmed_pipeline(const Pipeline& pipeline, Step step) noexcept;

/// What every step behind the warm-up is encoded by.
[[nodiscard]] Pipeline settled_pipeline(const Pipeline& pipeline) noexcept;

/// The largest ratio of any step: lists have to hold as many.
[[nodiscard]] constexpr double largest_ratio(const Pipeline& pipeline) noexcept {
    return has_warmup(pipeline) ? pipeline.front.warmup_from : pipeline.selector.ratio;
}

namespace stages {

struct Warmup {
    static const FrontStage kStage;
};

}  // namespace stages

}  // namespace gradsieve::codec
