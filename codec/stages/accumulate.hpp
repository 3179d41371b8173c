// Local accumulation: of every n steps only the last one sends, step numbers divisible by n, which is the same on every
// node. In the others the gradient goes into r (and v and u go on as ever), and nothing is sent: encoding is that of a
// selector whose threshold nothing reaches. Plain values; any thread.
#pragma once

#include "codec/encoder.hpp"

namespace gradsieve::codec {

struct FrontStage;

/// Whether the step only adds to r.
[[nodiscard]] constexpr bool is_waiting(const Pipeline& pipeline, Step step) noexcept {
    return pipeline.front.period > 1 && step % static_cast<Step>(pipeline.front.period) != 0;
}

/// What such a step is encoded by: keeps the same arrays, and lists magnitudes above the largest finite number.
[[nodiscard]] Pipeline waiting_pipeline(const Pipeline& pipeline) noexcept;

/// What a step is encoded by: that, or the pipeline with the step's ratio (warmup.hpp).
[[nodiscard]] Pipeline step_pipeline(const Pipeline& pipeline, Step step) noexcept;

namespace stages {

struct Accumulate {
    static const FrontStage kStage;
};

}  // namespace stages

}  // namespace gradsieve::codec
