#include "codec/stages/momentum.hpp"

#include "codec/stages/stage_text.hpp"

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
           (!sends_all(pipeline.selector) || pipeline.whole.kind == WholeKind::kSketch);
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

namespace stages {
namespace {

constexpr std::array<std::string_view, 2> kNoYes = {"no", "yes"};
/// Above, u remembers longer than fp32 sums can tell.
constexpr NumberRange kMomentum = {1e-6, 0.9999, false, "[1e-6, 0.9999]"};
/// Room for loss scales and learning rates in the gradients.
constexpr NumberRange kClip = {1e-9, 1e9, false, "none or [1e-9, 1e9]"};
constexpr std::string_view kNoClip = "none";

Status read(ArgumentReader& arguments, Pipeline& inout_pipeline) {
    Front& front = inout_pipeline.front;
    front.kind = FrontKind::kMomentum;
    front.factor = arguments.number("m", 0.9, kMomentum);
    front.is_nesterov = arguments.word("nesterov", 0, kNoYes) == 1;
    const auto clip = arguments.take("clip");
    front.clip = !clip || *clip == kNoClip ? 0 : arguments.parse_number("clip", *clip, kClip);
    return arguments.finish();
}

std::string text(const Pipeline& pipeline, Knobs /*knobs*/) {
    const Front& front = pipeline.front;
    if (!has_momentum(pipeline)) return {};
    return "momentum(m=" + number_text(front.factor) + ", nesterov=" + std::string(kNoYes[front.is_nesterov ? 1 : 0]) +
           ", clip=" + (front.clip > 0 ? number_text(front.clip) : std::string(kNoClip)) + ")";
}

Status check(const Pipeline& pipeline) {
    if (!has_momentum(pipeline) || !has_variance(pipeline)) return {};
    return bad_text("codec stage before a variance test", "momentum", "none",
                    "v measures how much gradients vary, and what momentum adds up varies more: select with topk "
                    "without a gate, block_topk, threshold or all, or leave momentum to the optimizer");
}

}  // namespace

const FrontStage Momentum::kStage = {
    .row =
        StageRow{
            "momentum", "front", "m=0.9, nesterov=no|yes, clip=none|NUMBER", "element",
            "u: 4 B per element and generation",
            "adds u = m u + gradient to r instead of the gradient (nesterov=yes: m u + gradient, u being the one of "
            "this "
            "step), so that what waits is delayed as momentum SGD would have applied it; where an element is sent, u "
            "is "
            "cleared, but for all; the optimizer applies no momentum of its own; clip: each node scales its mean "
            "gradient "
            "of a tensor down to an l2 norm of NUMBER times the square root of nodes, before u, so that independent "
            "ones "
            "average to a norm of NUMBER",
            "Lin, Han, Mao, Wang, Dally 2018, Deep Gradient Compression, arXiv:1712.01887, momentum correction, local "
            "gradient clipping and momentum factor masking",
            "gather"},
    .read = read,
    .text = text,
    .check = check,
};

}  // namespace stages

}  // namespace gradsieve::codec
