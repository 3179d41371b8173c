#include "codec/stages/low_rank.hpp"
#include "encoder_harness.hpp"
#include "reference_clip.hpp"

namespace gradsieve::codec {

EncodeLoop::EncodeLoop(const Pipeline& pipeline, ElementCount elements, std::size_t samples,
                       std::uint64_t batch_samples, bool may_pool)
    : pipeline_(pipeline), weights_(samples, 1.0F / static_cast<float>(samples)), may_pool_(may_pool) {
    for (reference::State& state : state_) {
        if (has_residual(pipeline_)) state.residual.assign(elements, 0.0F);
        if (has_variance(pipeline_)) state.variance.assign(elements, 0.0F);
        if (has_momentum(pipeline_)) state.momentum.assign(elements, 0.0F);
    }
    if (has_phases(pipeline_)) phases_.emplace(pipeline_, elements);
    if (has_factor(pipeline_))
        for (auto& factor : factors_) factor.assign(matrix_shape(pipeline_, elements).right_elements(), 0.0F);
    if (has_reuse(pipeline_)) {
        held_.emplace(pipeline_, elements, 1);
        for (auto& sent : sent_) sent.assign(sent_floats(pipeline_, elements), 0.0F);
    }
    request_.elements = elements;
    request_.batch_samples = batch_samples;
}

StateView EncodeLoop::view(std::size_t generation) {
    reference::State& state = state_[generation];
    return {.residual = state.residual.data(),
            .variance = state.variance.data(),
            .momentum = state.momentum.data(),
            .factor = factors_[generation].data(),
            .sent = sent_[generation].data()};
}

EncodeResult EncodeLoop::step(std::span<const float* const> samples, std::span<const float* const> second_moments) {
    ++request_.step;
    request_.pipeline = &pipeline_;  // own members are pointed at anew, so that a loop may be moved
    request_.weights = weights_;
    request_.selection_hint = &hint_;
    request_.samples = samples;
    request_.second_moments = second_moments;
    request_.in = view(live_);
    live_ = 1 - live_;
    request_.out = view(live_);
    if (held_) return taken(step_or_reuse());
    const EncodeOptions options = {fastest_cpu_form(), may_pool_, true};
    return taken(phases_ ? encode_phase_with(0, request_, options, *phases_, workspace_)
                         : encode_tensor_with(request_, options, workspace_));
}

Result<EncodeResult> EncodeLoop::step_or_reuse() {
    const Signature signature(request_.tensor, request_.samples, request_.weights, request_.elements);
    auto outcome = encode_or_reuse(request_, held_->of(node_), signature, workspace_);
    if (!outcome.is_ok()) return outcome.error();
    reused_steps_ += outcome->is_reuse ? 1 : 0;
    return std::move(outcome->encoded);
}

void EncodeLoop::set_nodes(std::size_t nodes, std::size_t node) {
    if (held_) held_.emplace(pipeline_, request_.elements, nodes);
    node_ = node;
}

void EncodeLoop::commit() {
    if (held_) held_->commit(request_.step);
}

EncodeResult EncodeLoop::second_phase() {
    return taken(encode_phase_with(1, request_, {fastest_cpu_form(), may_pool_, true}, *phases_, workspace_));
}

EncodeResult EncodeLoop::taken(Result<EncodeResult> result) const {
    EXPECT_TRUE(result.is_ok()) << result.status().to_string();
    EXPECT_FALSE(result.is_ok() && result->non_finite) << "a simulation's gradients are finite";
    if (!result.is_ok()) return {};
    return std::move(*result);
}

EncodeResult EncodeLoop::step(const std::vector<float>& gradient) {
    const std::array<const float*, 1> samples = {gradient.data()};
    return step(samples);
}

std::vector<float> EncodeLoop::handed_in(const std::vector<float>& gradient) const {
    reference::Input input;
    input.pipeline = pipeline_;
    input.elements = gradient.size();
    input.samples = {gradient};
    input.weights = {1.0F};
    input.rescale = request_.rescale;
    input.node_count = request_.node_count;
    if (has_local_clip(pipeline_)) input = reference::clipped(input);
    std::vector<float> values;
    for (ElementCount element = 0; element < input.elements; ++element)
        values.push_back(reference::handed_in(input, state_[live_], element));
    return values;
}

}  // namespace gradsieve::codec
