#include "codec/encoder_settle.hpp"

#include <cmath>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gradsieve::codec {
namespace {

/// The cells were written around the caches, so each costs a trip to memory: that many are under way at a time.
constexpr std::size_t kPrefetchCells = 24;

constexpr std::size_t kLineFloats = 16;

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
    const bool writes_variance = chunk.variance_out != nullptr && !plan.settles_variance;
    std::size_t sent = 0;
    for (std::size_t cell = 0; cell < chunk.indices.size(); ++cell) {
        if (cell + kPrefetchCells < chunk.indices.size()) {
            const std::uint32_t ahead = chunk.indices[cell + kPrefetchCells];
            if (!plan.settles_residual) __builtin_prefetch(chunk.residual_out + ahead, 1);
            if (writes_variance) __builtin_prefetch(chunk.variance_out + ahead, 1);
        }
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
        } else if (writes_variance) {
            chunk.variance_out[index] = 0.0F;
        }
    }
    return sent;
}

void settle_dense(const DenseTile& tile) noexcept {
    std::size_t element = 0;
#if defined(__SSE2__)
    // Reading the next tile while this one is written keeps the memory busy both ways.
    for (; tile.streams && element + kLineFloats <= tile.values.size(); element += kLineFloats) {
        for (const float* input : tile.next_inputs)
            __builtin_prefetch(input + element, 0, 2);  // as far as the second level
        for (std::size_t part = element; part < element + kLineFloats; part += 4) {
            const __m128 value = _mm_loadu_ps(tile.values.data() + part);
            _mm_stream_ps(tile.residual_out + part, _mm_sub_ps(value, _mm_loadu_ps(tile.decoded.data() + part)));
        }
    }
#endif
    for (; element < tile.values.size(); ++element) {
        tile.residual_out[element] = tile.values[element] - tile.decoded[element];
    }
}

}  // namespace gradsieve::codec
