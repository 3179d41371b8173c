// Momentum in front of the selector: u = fl(m c) u + gbar, and what the dense pass then takes for the step's gradient,
// e = u, or with nesterov e = fl(1 + m) u - fl(m c) u_before, which is m u + gbar; with compensate each of these
// factors times gamma. gbar is the weighted sum of the samples in their order, with clip with the weights of
// local_clip.hpp; all in fp32, every product rounded.
// Where an element is sent (decodes to something), u is cleared afterwards (momentum factor masking), unless the
// selector sends everything: then nothing is ever delayed, and u is SGD's own. Nor is it with delta behind, which
// follows u by what it sends: nothing waits there either. Source: Lin, Han, Mao, Wang, Dally 2018,
// Deep Gradient Compression, arXiv:1712.01887, 3.2 and 3.3. Plain values; any thread.
#pragma once

#include "codec/encoder.hpp"
#include "codec/momentum_step.hpp"

#include <array>

namespace gradsieve::codec {

struct FrontStage;

/// fl(m c), what u is multiplied by on the way in.
[[nodiscard]] float momentum_factor(const Front& front, float rescale) noexcept;
/// Whether u is cleared where an element is sent.
[[nodiscard]] bool is_momentum_masked(const Pipeline& pipeline) noexcept;

/// The samples whose weighted sum is e: u after the step, and with nesterov u before it.
struct MomentumSamples {
    std::array<const float*, 2> samples{};
    std::array<float, 2> weights{};
    std::size_t count = 0;
};
[[nodiscard]] MomentumSamples momentum_samples(const Front& front, float rescale, const float* before,
                                               const float* after) noexcept;

[[nodiscard]] MomentumStep momentum_step(const EncodeRequest& request) noexcept;
/// Clears u where `decoded` is not +0. `inout_momentum` belongs to index 0.
void clear_sent_momentum(std::span<const std::uint32_t> indices, std::span<const float> decoded,
                         float* inout_momentum) noexcept;

/// Where the trouble in [first, end) is: lowest element, then lowest sample; sample 0 if the samples are finite and u
/// or r is not. Reads the samples again, only to say so. Nothing: the samples were changed since.
/// `step` has the weights that the samples were taken with.
[[nodiscard]] std::optional<NonFinite> locate_momentum_trouble(const EncodeRequest& request, const MomentumStep& step,
                                                               bool has_residual, ElementCount first,
                                                               ElementCount end) noexcept;

namespace stages {

struct Momentum {
    static const FrontStage kStage;
};

}  // namespace stages

}  // namespace gradsieve::codec
