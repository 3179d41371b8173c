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
    request_.elements = elements;
    request_.batch_samples = batch_samples;
}

StateView EncodeLoop::view(std::size_t generation) {
    reference::State& state = state_[generation];
    return {.residual = state.residual.data(), .variance = state.variance.data(), .momentum = state.momentum.data()};
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
    auto result = encode_tensor_with(request_, {fastest_cpu_form(), may_pool_, true}, workspace_);
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
