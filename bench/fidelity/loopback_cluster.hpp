// Nodes of one job in one process: each has the real encoders and decoders with their state, the real job machine and
// an endpoint of the in-process transport. What nodes know of each other came through frames, and bytes are counted
// where the transport counts them. Never a thread of its own; whoever makes it owns it and calls it from one thread.
#pragma once

#include "bench/fidelity/node_tensor.hpp"
#include "exchange/job_machine.hpp"
#include "transport/loopback_transport.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::bench {

struct ClusterPlan {
    std::uint32_t nodes = 4;
    std::uint32_t ranks = 1;               ///< a node's
    std::uint32_t samples = 1;             ///< gradients that a rank hands in a step: its micro-batches
    std::uint64_t batch_samples = 0;       ///< training samples of a node and step; 0: not known
    std::string codec = {};                ///< text that the nodes agree on
    std::vector<TensorPlan> tensors = {};  ///< in the order of their names
    std::string job = "loopback";          ///< its name seeds random selections and rounding
};
/// Sums over all nodes and steps.
struct ClusterCounters {
    std::uint64_t wire_bytes = 0;     ///< sent: payloads, headers, frames of the job's formation
    std::uint64_t payload_bytes = 0;  ///< what the encoders made, once for each node
    std::uint64_t kept_elements = 0;
};

class LoopbackCluster {
public:
    explicit LoopbackCluster(ClusterPlan plan);
    ~LoopbackCluster();

    /// Forms the job; before the first step, once. Errors: why it does not come about.
    [[nodiscard]] Status form();
    /// One step. `gradients` of each node and tensor, node by node; `rescale` as EncodeRequest has it. Errors: what any
    /// node said, e.g. kNonFinite; nodes that decoded different averages. There are no steps after an error.
    [[nodiscard]] Status step(std::span<const Gradients> gradients, float rescale);

    /// Of the last step, the same on every node. Valid until the next one.
    [[nodiscard]] std::span<const float> average(std::size_t tensor) const;
    [[nodiscard]] const ClusterPlan& plan() const noexcept { return plan_; }
    [[nodiscard]] ClusterCounters counters() const;
    /// Where the tensor's variances of the last step came from, on the first node.
    [[nodiscard]] codec::VarianceSource variance_source(std::size_t tensor) const;

private:
    struct Node;
    struct Scope;
    void turn(Node& node);
    void act(Node& node, const exchange::Action& action);
    void encode(Node& node, const exchange::EncodeTensor& action);
    void encode_scope(Node& node, Scope& scope);
    void decode(Node& node, const exchange::DecodeTensor& action);
    void answer(Node& node, exchange::TensorNumber tensor, Result<codec::EncodeResult> encoded);
    /// Turns of all nodes until `is_done` holds of each.
    template <typename Condition>
    [[nodiscard]] Status run_until(Condition is_done, const std::string& what);
    [[nodiscard]] Status compare() const;

    ClusterPlan plan_;
    ManualClock clock_;
    transport::LoopbackNetwork network_;
    codec::EncodeWorkspace workspace_;
    std::vector<std::unique_ptr<Node>> nodes_;
    Step step_ = 0;
    std::uint64_t payload_bytes_ = 0;
};

}  // namespace gradsieve::bench
