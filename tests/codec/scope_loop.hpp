// Tensors of a scope encoded step after step, all phases on one thread, with what went on for tests to ask for.
#pragma once

#include "codec/model_scope.hpp"
#include "codec/select_topk.hpp"
#include "encoder_harness.hpp"

#include <vector>

namespace gradsieve::codec {

class ScopeLoop {
public:
    ScopeLoop(const std::string& codec, const std::vector<ElementCount>& elements, std::size_t samples = 1)
        : pipeline_(*parse_pipeline(codec)), sample_count_(samples), weights_(samples, 1.0F / float(samples)) {
        ElementCount all = 0;
        for (const auto count : elements) {
            all += count;
            tensors_.emplace_back();
            for (auto& state : tensors_.back().states) {
                state.residual.assign(count, 0.0F);
                if (has_variance(pipeline_)) state.variance.assign(count, 0.0F);
                if (has_momentum(pipeline_)) state.momentum.assign(count, 0.0F);
            }
        }
        terms_.k = top_k_count(pipeline_.selector.ratio, all);
    }

    /// One gradient array for each tensor and sample: `gradients[tensor][sample]`.
    std::vector<EncodeResult> step(const std::vector<std::vector<std::vector<float>>>& gradients) {
        phases.clear();
        std::vector<EncodeResult> results(tensors_.size());
        std::vector<std::size_t> members;
        std::vector<std::vector<const float*>> samples(tensors_.size());
        std::vector<EncodeRequest> requests;
        for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
            for (const auto& sample : gradients[tensor]) samples[tensor].push_back(sample.data());
            requests.push_back(request_for(tensor, samples[tensor]));
            members.push_back(tensor);
        }
        for (NextPhase next{ScopePhase::kObserve, terms_}; true;
             next = phase_after(next.phase, next.terms, of(members))) {
            phases.push_back(next.phase);
            if (next.phase == ScopePhase::kCut) {
                terms_.hint = cut_scope(next.terms, of_mutable(members));
                next.phase = ScopePhase::kSettle;
                phases.push_back(next.phase);
            }
            std::erase_if(members, [&](std::size_t tensor) {
                auto encoded = encode_member_with(next.phase, next.terms, requests[tensor], {form, true, true},
                                                  tensors_[tensor].member, workspace_);
                EXPECT_TRUE(encoded.is_ok()) << encoded.status().to_string();
                results[tensor] = std::move(*encoded);
                return results[tensor].non_finite.has_value();
            });
            if (next.phase == ScopePhase::kSettle) break;
        }
        for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor)
            if (!results[tensor].non_finite) tensors_[tensor].live = 1 - tensors_[tensor].live;
        ++step_;
        return results;
    }
    [[nodiscard]] const reference::State& state(std::size_t tensor) const {
        return tensors_[tensor].states[tensors_[tensor].live];
    }
    [[nodiscard]] std::size_t k() const { return terms_.k; }

    CpuForm form = supported_forms().back();
    std::vector<ScopePhase> phases;  ///< of the last step

private:
    struct Tensor {
        std::array<reference::State, 2> states;
        std::size_t live = 0;
        ScopeMember member;
    };

    static StateView view_of(reference::State& state) {
        const auto data = [](std::vector<float>& values) { return values.empty() ? nullptr : values.data(); };
        return {data(state.residual), data(state.variance), data(state.momentum)};
    }
    EncodeRequest request_for(std::size_t number, const std::vector<const float*>& samples) {
        Tensor& tensor = tensors_[number];
        EncodeRequest request;
        request.pipeline = &pipeline_;
        request.tensor = tensor_id("tensor " + std::to_string(number));
        request.step = step_;
        request.elements = tensor.states[0].residual.size();
        request.samples = samples;
        request.weights = weights_;
        request.in = view_of(tensor.states[tensor.live]);
        request.out = view_of(tensor.states[1 - tensor.live]);
        return request;
    }
    std::vector<const ScopeMember*> of(const std::vector<std::size_t>& members) const {
        std::vector<const ScopeMember*> pointers;
        for (const auto tensor : members) pointers.push_back(&tensors_[tensor].member);
        return pointers;
    }
    std::vector<ScopeMember*> of_mutable(const std::vector<std::size_t>& members) {
        std::vector<ScopeMember*> pointers;
        for (const auto tensor : members) pointers.push_back(&tensors_[tensor].member);
        return pointers;
    }

    Pipeline pipeline_;
    std::size_t sample_count_;
    std::vector<float> weights_;
    std::vector<Tensor> tensors_;
    ScopeTerms terms_;
    Step step_ = 1;
    EncodeWorkspace workspace_;
};

}  // namespace gradsieve::codec
