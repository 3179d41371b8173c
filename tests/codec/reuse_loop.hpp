// One tensor of a codec that may skip, on several nodes, step after step: what each node keeps, and the average that
// each decodes.
#pragma once

#include "codec/reuse.hpp"
#include "encoder_harness.hpp"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace gradsieve::codec {

class ReuseLoop {
public:
    ReuseLoop(const std::string& codec, ElementCount elements, std::size_t nodes)
        : pipeline_(*parse_pipeline(codec)), elements_(elements) {
        nodes_.reserve(nodes);
        for (std::size_t node = 0; node < nodes; ++node) nodes_.emplace_back(pipeline_, elements, nodes);
    }

    struct Outcome {
        std::vector<std::vector<float>> averages;       ///< by node
        std::vector<DecodeResult> decoded;              ///< by node
        std::vector<bool> is_reuse, has_records;        ///< by node
        std::vector<std::optional<double>> shares;      ///< by node
        std::vector<std::vector<ChunkPayload>> chunks;  ///< by node
        std::size_t payload_bytes = 0;
    };
    enum class End { kCommitted, kFailed };
    /// One gradient for each node, which has 1 / nodes of the average. A step that fails does so once all have decoded.
    Outcome step(const std::vector<std::vector<float>>& gradients, End end = End::kCommitted) {
        ++step_;
        Outcome outcome;
        for (std::size_t node = 0; node < nodes_.size(); ++node) encode(node, gradients[node], outcome);
        std::vector<std::vector<ChunkView>> views(nodes_.size());
        std::vector<Contribution> contributions;
        for (std::size_t node = 0; node < nodes_.size(); ++node) {
            for (const auto& chunk : outcome.chunks[node]) views[node].push_back({chunk.chunk_index, chunk.bytes});
            contributions.push_back({1.0F / static_cast<float>(nodes_.size()), views[node]});
        }
        for (Node& node : nodes_) {
            const auto resolved = node.held.take(step_, contributions);
            EXPECT_TRUE(resolved.is_ok()) << resolved.status().to_string();
            const auto decoded = node.result.decode_average(step_, *resolved);
            EXPECT_TRUE(decoded.is_ok()) << decoded.status().to_string();
            outcome.decoded.push_back(*decoded);
            outcome.averages.push_back(node.average);
        }
        if (end == End::kFailed) return outcome;
        for (Node& node : nodes_) {
            node.held.commit(step_);
            node.live = 1 - node.live;
        }
        return outcome;
    }

    /// As after a start that found its kept state, and nothing else.
    void restart() {
        for (Node& node : nodes_) node.held = HeldPayloads(pipeline_, elements_, nodes_.size());
    }

    [[nodiscard]] std::vector<float>& residual(std::size_t node) { return nodes_[node].states[nodes_[node].live]; }
    [[nodiscard]] const Pipeline& pipeline() const { return pipeline_; }
    [[nodiscard]] Step last_step() const { return step_; }
    [[nodiscard]] HeldPayloads& held(std::size_t node) { return nodes_[node].held; }
    [[nodiscard]] int in_a_row(std::size_t node) const {
        return read_sent(pipeline_, elements_, nodes_[node].sent[nodes_[node].live].data())->in_a_row;
    }

    float rescale = 1;

private:
    struct Node {
        Node(const Pipeline& pipeline, ElementCount elements, std::size_t nodes)
            : held(pipeline, elements, nodes),
              average(elements, 0.0F),
              result(tensor_id("w"), average.data(), elements) {
            for (auto& state : states) state.assign(elements, 0.0F);
            for (auto& array : sent) array.assign(sent_floats(pipeline, elements), 0.0F);
        }
        HeldPayloads held;
        std::array<std::vector<float>, 2> states, sent;
        std::size_t live = 0;
        std::vector<float> average;
        ResultTensor result;
    };
    void encode(std::size_t number, const std::vector<float>& gradient, Outcome& inout_outcome) {
        Node& node = nodes_[number];
        const float* const samples[] = {gradient.data()};
        const float weights[] = {1.0F};
        EncodeRequest request;
        request.pipeline = &pipeline_;
        request.tensor = tensor_id("w");
        request.step = step_;
        request.elements = elements_;
        request.samples = samples;
        request.weights = weights;
        request.rescale = rescale;
        request.random_seed = 100 + number;
        request.selection_seed = 77;
        request.in = {.residual = node.states[node.live].data(), .sent = node.sent[node.live].data()};
        request.out = {.residual = node.states[1 - node.live].data(), .sent = node.sent[1 - node.live].data()};
        const Signature signature(request.tensor, samples, weights, elements_);
        auto encoded = encode_or_reuse(request, node.held.of(number), signature, workspace_);
        EXPECT_TRUE(encoded.is_ok()) << encoded.status().to_string();
        EXPECT_FALSE(encoded->encoded.non_finite);
        inout_outcome.is_reuse.push_back(encoded->is_reuse);
        inout_outcome.has_records.push_back(encoded->has_records);
        inout_outcome.shares.push_back(encoded->share);
        for (const auto& chunk : encoded->encoded.chunks) inout_outcome.payload_bytes += chunk.bytes.size();
        inout_outcome.chunks.push_back(std::move(encoded->encoded.chunks));
    }

    Pipeline pipeline_;
    ElementCount elements_;
    std::vector<Node> nodes_;
    Step step_ = 0;
    EncodeWorkspace workspace_;
};

}  // namespace gradsieve::codec
