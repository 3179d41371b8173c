#include "codec/encoder_settle.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

/// v after sending `decoded` of `value`, from (a - t)^2 = a^2 - 2 a t + t^2 with a taken before the subtraction.
float reduced_variance(float variance, float value, float decoded) {
    const float magnitude = std::fabs(value);
    const float quantum = std::fabs(decoded);
    const float cross = (2.0F * magnitude) * quantum;
    const float reduced = (variance - cross) + quantum * quantum;
    return reduced > 0.0F ? reduced : 0.0F;
}

}  // namespace

std::size_t settle_sent(const DensePlan& plan, bool is_faithful, const SentChunk& chunk) noexcept {
    const bool is_hybrid = plan.rule == DenseRule::kVarianceHybrid;
    std::size_t sent = 0;
    for (std::size_t cell = 0; cell < chunk.indices.size(); ++cell) {
        const std::uint32_t index = chunk.indices[cell];
        const float value = chunk.values[cell];
        const float decoded = chunk.decoded[cell];
        if (decoded == 0.0F) {
            if (plan.settles_residual) chunk.residual_out[index] = value;
            if (plan.settles_variance) chunk.variance_out[index] = plan.zeta * chunk.variances[cell];
            continue;
        }
        ++sent;
        if (!plan.settles_residual) chunk.residual_out[index] = is_faithful ? 0.0F : value - decoded;
        if (is_hybrid) {
            chunk.variance_out[index] = reduced_variance(chunk.variances[cell], value, decoded);
        } else if (chunk.variance_out != nullptr && !plan.settles_variance) {
            chunk.variance_out[index] = 0.0F;
        }
    }
    return sent;
}

void settle_dense(std::span<const float> decoded, float* residual_out) noexcept {
    for (std::size_t element = 0; element < decoded.size(); ++element) residual_out[element] -= decoded[element];
}

}  // namespace gradsieve::codec
