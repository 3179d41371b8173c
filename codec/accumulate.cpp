#include "codec/accumulate.hpp"

#include <cfloat>

namespace gradsieve::codec {

Pipeline waiting_pipeline(const Pipeline& pipeline) noexcept {
    Pipeline waiting;
    waiting.front = pipeline.front;
    waiting.front.is_rotated = false;  // sends nothing
    waiting.selector.kind = has_variance(pipeline) ? SelectorKind::kVarianceHybrid : SelectorKind::kThreshold;
    waiting.selector.zeta = pipeline.selector.zeta;
    waiting.selector.tau = FLT_MAX;
    waiting.quantizer.kind = QuantizerKind::kSign;
    waiting.quantizer.tau = FLT_MAX;
    return waiting;
}

}  // namespace gradsieve::codec
