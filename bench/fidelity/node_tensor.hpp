// One tensor as one node of a loopback job keeps it: the real encoder with two generations of its state, the real
// decoder with its result. Never sees a frame. One thread at a time; owns state and result, borrows gradients.
#pragma once

#include "codec/model_scope.hpp"
#include "codec/phases.hpp"
#include "codec/reuse.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::bench {

struct TensorPlan {
    std::string name;
    std::vector<std::uint64_t> shape;
    codec::Pipeline pipeline;  ///< settled for the shape
};
[[nodiscard]] ElementCount elements_of(const TensorPlan& plan) noexcept;

/// What all tensors of a node have in common.
struct NodeTerms {
    std::uint32_t nodes = 1;
    std::size_t node = 0;             ///< in the order of summation
    std::vector<float> weights = {};  ///< of the node's samples: of all its ranks' micro-batches
    std::uint64_t batch_samples = 0;  ///< training samples behind the node's gradient; 0: not known
    std::uint64_t random_seed = 0;
    std::uint64_t selection_seed = 0;
};
/// What a node's ranks hand in of a tensor for one step.
struct Gradients {
    std::vector<const float*> samples = {};         ///< as many as NodeTerms has weights
    std::vector<const float*> second_moments = {};  ///< one a rank, or none at all
};

class NodeTensor {
public:
    NodeTensor(const TensorPlan& plan, const NodeTerms& terms);
    NodeTensor(const NodeTensor&) = delete;
    NodeTensor& operator=(const NodeTensor&) = delete;

    /// Before a step's first encoding: its gradients, which stay where they are until the step is decoded, and the
    /// factor by which their unit changed since the last step.
    void hand_in(Step step, const Gradients& gradients, float rescale);
    /// Errors: those of encoding; kNonFinite where a gradient is not finite.
    [[nodiscard]] Result<codec::EncodeResult> encode(unsigned phase, codec::EncodeWorkspace& workspace);
    /// One phase of a selection over several tensors. Errors as above.
    [[nodiscard]] Result<codec::EncodeResult> encode_member(codec::ScopePhase phase, const codec::ScopeTerms& terms,
                                                            codec::EncodeWorkspace& workspace);
    /// All nodes' payloads of a phase. The answer is the digest of the result; 0 after the first phase of two.
    [[nodiscard]] Result<std::uint64_t> decode(unsigned phase, std::span<const codec::Contribution> contributions);
    /// The step counts on all nodes.
    void commit();

    [[nodiscard]] const codec::Pipeline& pipeline() const noexcept { return pipeline_; }
    [[nodiscard]] ElementCount elements() const noexcept { return request_.elements; }
    [[nodiscard]] std::span<const float> average() const noexcept { return average_; }
    [[nodiscard]] codec::ScopeMember& member() noexcept { return member_; }
    /// Of the step that was encoded last.
    [[nodiscard]] codec::VarianceSource variance_source() const noexcept { return variance_source_; }
    /// Elements sent so far.
    [[nodiscard]] std::uint64_t kept_elements() const noexcept { return kept_elements_; }

private:
    [[nodiscard]] Result<codec::EncodeResult> checked(Result<codec::EncodeResult> encoded);
    [[nodiscard]] Result<codec::EncodeResult> encode_tensor(unsigned phase, codec::EncodeWorkspace& workspace);
    [[nodiscard]] Result<codec::DecodeResult> decode_last(std::span<const codec::Contribution> contributions);

    std::string name_;
    codec::Pipeline pipeline_;
    NodeTerms terms_;
    std::array<std::vector<std::vector<float>>, 2> arrays_;  ///< of each generation
    std::array<codec::StateView, 2> generations_;
    std::size_t live_ = 0;
    std::uint32_t selection_hint_ = 0;
    std::vector<float> average_;
    codec::ResultTensor result_;
    std::optional<codec::PhaseMemory> phases_;
    std::optional<codec::HeldPayloads> held_;
    codec::ScopeMember member_;
    codec::EncodeRequest request_;
    codec::VarianceSource variance_source_ = codec::VarianceSource::kNone;
    std::uint64_t kept_elements_ = 0;
};

}  // namespace gradsieve::bench
