#include "codec/momentum.hpp"

#include <bit>

namespace gradsieve::codec {
namespace {

bool is_finite(float value) { return (std::bit_cast<std::uint32_t>(value) & 0x7F800000U) != 0x7F800000U; }

float load_once(const float* address) { return *static_cast<const volatile float*>(address); }

/// The trouble with one element: the sample, or sample 0 if the samples are finite and what follows from them is not.
std::optional<std::uint32_t> find_trouble(const EncodeRequest& request, const MomentumStep& step, bool has_residual,
                                          ElementCount element) {
    float mean = 0;
    for (std::size_t sample = 0; sample < step.sample_count; ++sample) {
        const float value = load_once(step.samples[sample] + element);
        if (!is_finite(value)) return static_cast<std::uint32_t>(sample);
        const float part = step.weights[sample] * value;
        mean = sample == 0 ? part : mean + part;
    }
    const float before = step.before[element];
    const float after = step.factor * before + mean;
    const MomentumSamples effective = momentum_samples(request.pipeline->front, request.rescale, &before, &after);
    float gradient = effective.weights[0] * after;
    if (effective.count > 1) gradient = gradient + effective.weights[1] * before;
    const float carry = residual_factor(request.pipeline->front, request.rescale);
    const float residual = has_residual ? carry * request.in.residual[element] + gradient : gradient;
    if (!is_finite(residual)) return 0U;
    return std::nullopt;
}

}  // namespace

float momentum_factor(const Front& front, float rescale) noexcept { return static_cast<float>(front.factor) * rescale; }

bool is_momentum_masked(const Pipeline& pipeline) noexcept {
    return has_momentum(pipeline) && !has_delta(pipeline) &&
           (pipeline.selector.kind != SelectorKind::kAll || pipeline.whole.kind == WholeKind::kSketch);
}

MomentumSamples momentum_samples(const Front& front, float rescale, const float* before, const float* after) noexcept {
    if (!front.is_nesterov) return {{after, nullptr}, {gradient_weight(front, 1.0F), 0.0F}, 1};
    return {{after, before},
            {gradient_weight(front, 1.0F + static_cast<float>(front.factor)),
             gradient_weight(front, -momentum_factor(front, rescale))},
            2};
}

MomentumStep momentum_step(const EncodeRequest& request) noexcept {
    return {request.samples.data(), request.weights.data(),
            request.samples.size(), momentum_factor(request.pipeline->front, request.rescale),
            request.in.momentum,    request.out.momentum};
}

void clear_sent_momentum(std::span<const std::uint32_t> indices, std::span<const float> decoded,
                         float* inout_momentum) noexcept {
    constexpr std::size_t kPrefetchCells = 16;
    for (std::size_t cell = 0; cell < indices.size(); ++cell) {
        if (cell + kPrefetchCells < indices.size())
            __builtin_prefetch(inout_momentum + indices[cell + kPrefetchCells], 1);
        if (decoded[cell] != 0.0F) inout_momentum[indices[cell]] = 0.0F;
    }
}

std::optional<NonFinite> locate_momentum_trouble(const EncodeRequest& request, const MomentumStep& step,
                                                 bool has_residual, ElementCount first, ElementCount end) noexcept {
    for (ElementCount element = first; element < end; ++element)
        if (const auto sample = find_trouble(request, step, has_residual, element)) return NonFinite{*sample, element};
    return std::nullopt;
}

}  // namespace gradsieve::codec
