#include "node_tensor.hpp"

#include "codec/difference.hpp"
#include "codec/stages/similarity.hpp"
#include "codec/state_arrays.hpp"

namespace gradsieve::bench {

ElementCount elements_of(const TensorPlan& plan) noexcept {
    ElementCount elements = 1;
    for (const auto extent : plan.shape) elements *= extent;
    return elements;
}

NodeTensor::NodeTensor(const TensorPlan& plan, const NodeTerms& terms)
    : name_(plan.name),
      pipeline_(plan.pipeline),
      terms_(terms),
      average_(elements_of(plan), 0.0F),
      result_(tensor_id(plan.name), average_.data(), average_.size()) {
    for (std::size_t generation = 0; generation < generations_.size(); ++generation)
        for (const auto& array : codec::state_arrays()) {
            if (!array.is_kept(pipeline_)) continue;
            auto& memory = arrays_[generation].emplace_back();
            memory.assign(codec::size_of(array, pipeline_, average_.size()), 0.0F);
            generations_[generation].*array.values = memory.data();
        }
    if (codec::has_phases(pipeline_)) phases_.emplace(pipeline_, average_.size());
    if (codec::has_reuse(pipeline_)) held_.emplace(pipeline_, average_.size(), terms_.nodes);
    request_.pipeline = &pipeline_;
    request_.tensor = tensor_id(name_);
    request_.elements = average_.size();
    request_.weights = terms_.weights;
    request_.batch_samples = terms_.batch_samples;
    request_.node_count = terms_.nodes;
    request_.random_seed = terms_.random_seed;
    request_.selection_seed = terms_.selection_seed;
    request_.selection_hint = &selection_hint_;
}

void NodeTensor::hand_in(Step step, const Gradients& gradients, float rescale) {
    request_.step = step;
    request_.samples = gradients.samples;
    request_.second_moments = gradients.second_moments;
    request_.rescale = rescale;
    request_.in = generations_[live_];
    request_.out = generations_[1 - live_];
}

Result<codec::EncodeResult> NodeTensor::checked(Result<codec::EncodeResult> encoded) {
    if (encoded.is_ok() && encoded->non_finite)
        return Status(StatusCode::kNonFinite,
                      "gradient of '" + name_ + "' at element " + std::to_string(encoded->non_finite->element) +
                          " is not finite; allowed are finite numbers: take a smaller learning rate");
    return encoded;
}

Result<codec::EncodeResult> NodeTensor::encode_tensor(unsigned phase, codec::EncodeWorkspace& workspace) {
    if (phases_) return codec::encode_phase(phase, request_, *phases_, workspace);
    if (!held_) return codec::encode_tensor(request_, workspace);
    const codec::Signature gradient(request_.tensor, request_.samples, request_.weights, request_.elements);
    GRADSIEVE_ASSIGN(auto outcome, codec::encode_or_reuse(request_, held_->of(terms_.node), gradient, workspace));
    return std::move(outcome.encoded);
}

Result<codec::EncodeResult> NodeTensor::encode(unsigned phase, codec::EncodeWorkspace& workspace) {
    auto encoded = checked(encode_tensor(phase, workspace));
    if (!encoded.is_ok()) return encoded;
    if (phase == 0) variance_source_ = encoded->variance_source;
    kept_elements_ += encoded->kept_elements;
    return encoded;
}

Result<codec::EncodeResult> NodeTensor::encode_member(codec::ScopePhase phase, const codec::ScopeTerms& terms,
                                                      codec::EncodeWorkspace& workspace) {
    auto encoded = checked(codec::encode_member(phase, terms, request_, member_, workspace));
    if (!encoded.is_ok()) return encoded;
    if (phase == codec::ScopePhase::kObserve) variance_source_ = encoded->variance_source;
    if (phase == codec::ScopePhase::kSettle) kept_elements_ += encoded->kept_elements;
    return encoded;
}

Result<codec::DecodeResult> NodeTensor::decode_last(std::span<const codec::Contribution> contributions) {
    if (codec::has_delta(pipeline_))
        return codec::decode_differences(request_.step, contributions, request_.in.average, request_.out.average,
                                         result_);
    if (phases_) return codec::decode_last_phase(request_.step, contributions, *phases_, result_);
    if (!held_) return result_.decode_average(request_.step, contributions);
    GRADSIEVE_ASSIGN(const auto resolved, held_->take(request_.step, contributions));
    return result_.decode_average(request_.step, resolved);
}

Result<std::uint64_t> NodeTensor::decode(unsigned phase, std::span<const codec::Contribution> contributions) {
    if (phases_ && phase == 0) {
        GRADSIEVE_TRY(codec::decode_first_phase({request_.step, request_.tensor, request_.selection_seed},
                                                contributions, *phases_));
        return std::uint64_t{0};
    }
    GRADSIEVE_ASSIGN(const auto decoded, decode_last(contributions));
    return decoded.digest;
}

void NodeTensor::commit() {
    live_ = 1 - live_;
    if (held_) held_->commit(request_.step);
}

}  // namespace gradsieve::bench
