#include "codec/accumulate.hpp"

#include "codec/warmup.hpp"

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
    waiting.quantizer.kind = QuantizerKind::kSign;
    waiting.quantizer.tau = FLT_MAX;
    return waiting;
}

Pipeline step_pipeline(const Pipeline& pipeline, Step step) noexcept {
    return is_waiting(pipeline, step) ? waiting_pipeline(pipeline) : warmed_pipeline(pipeline, step);
}

}  // namespace gradsieve::codec
