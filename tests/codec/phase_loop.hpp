// One tensor on several nodes, step after step through both phases of its codec: what each node keeps, and the average
// that each decodes.
#pragma once

#include "codec/phases.hpp"
#include "codec/state_arrays.hpp"
#include "encoder_harness.hpp"

#include <optional>
#include <vector>

namespace gradsieve::codec {

class PhaseLoop {
public:
    static constexpr std::uint64_t kSelectionSeed = 77;

    PhaseLoop(const std::string& codec, ElementCount elements, std::size_t nodes)
        : pipeline_(*parse_pipeline(codec)), elements_(elements) {
        nodes_.reserve(nodes);
        for (std::size_t node = 0; node < nodes; ++node) nodes_.emplace_back(pipeline_, elements);
    }

    struct Outcome {
        std::vector<std::vector<float>> averages;  ///< by node
        std::vector<DecodeResult> decoded;         ///< by node
        std::array<std::size_t, 2> payload_bytes{};
        std::size_t kept_elements = 0;
    };
    /// One gradient for each node.
    Outcome step(const std::vector<std::vector<float>>& gradients) {
        Outcome outcome;
        std::vector<std::vector<ChunkPayload>> payloads(nodes_.size());
        for (unsigned phase = 0; phase < 2; ++phase) {
            for (std::size_t node = 0; node < nodes_.size(); ++node) {
                auto encoded = encode(node, phase, gradients[node]);
                EXPECT_TRUE(encoded.is_ok()) << encoded.status().to_string();
                outcome.kept_elements += encoded->kept_elements;
                payloads[node] = std::move(encoded->chunks);
                for (const auto& chunk : payloads[node]) outcome.payload_bytes[phase] += chunk.bytes.size();
            }
            for (std::size_t node = 0; node < nodes_.size(); ++node) decode(node, phase, payloads, outcome);
        }
        for (auto& node : nodes_) node.live = 1 - node.live;
        ++step_;
        return outcome;
    }
    Outcome step(const std::vector<float>& gradient) {
        return step(std::vector<std::vector<float>>(nodes_.size(), gradient));
    }

    Result<EncodeResult> encode(std::size_t number, unsigned phase, const std::vector<float>& gradient) {
        Node& node = nodes_[number];
        const float* samples[] = {gradient.data()};
        EncodeRequest request;
        request.pipeline = &pipeline_;
        request.tensor = tensor_id("w");
        request.step = step_;
        request.elements = elements_;
        request.samples = samples;
        request.weights = weights_;
        request.rescale = rescale;
        request.selection_seed = kSelectionSeed;
        request.in = node.states[node.live].view();
        request.out = node.states[1 - node.live].view();
        return encode_phase_with(phase, request, {form, true, true}, node.memory, workspace_);
    }

    [[nodiscard]] std::vector<float>& residual(std::size_t node) {
        return nodes_[node].states[nodes_[node].live].residual;
    }
    [[nodiscard]] std::vector<float>& factor(std::size_t node) { return nodes_[node].states[nodes_[node].live].factor; }
    [[nodiscard]] PhaseMemory& memory(std::size_t node) { return nodes_[node].memory; }
    [[nodiscard]] std::vector<float>& momentum(std::size_t node) {
        return nodes_[node].states[nodes_[node].live].momentum;
    }
    [[nodiscard]] const Pipeline& pipeline() const { return pipeline_; }
    [[nodiscard]] Step next_step() const { return step_; }

    CpuForm form = supported_forms().back();
    float rescale = 1;

private:
    struct State {
        std::vector<float> residual, momentum, factor;
        StateView view() {
            return {.residual = residual.data(),
                    .momentum = momentum.empty() ? nullptr : momentum.data(),
                    .factor = factor.empty() ? nullptr : factor.data()};
        }
    };
    struct Node {
        Node(const Pipeline& pipeline, ElementCount elements)
            : memory(pipeline, elements), average(elements), result(tensor_id("w"), average.data(), elements) {
            for (auto& state : states) {
                state.residual.resize(elements);
                if (has_momentum(pipeline)) state.momentum.resize(elements);
                if (has_factor(pipeline)) state.factor.resize(size_of(*find_state_array("factor"), pipeline, elements));
            }
        }
        std::array<State, 2> states;
        std::size_t live = 0;
        PhaseMemory memory;
        std::vector<float> average;
        ResultTensor result;
    };

    void decode(std::size_t number, unsigned phase, const std::vector<std::vector<ChunkPayload>>& payloads,
                Outcome& inout_outcome) {
        std::vector<std::vector<ChunkView>> views(payloads.size());
        std::vector<Contribution> contributions;
        for (std::size_t node = 0; node < payloads.size(); ++node) {
            for (const auto& chunk : payloads[node]) views[node].push_back({chunk.chunk_index, chunk.bytes.view()});
            contributions.push_back({1.0F / static_cast<float>(payloads.size()), views[node]});
        }
        Node& node = nodes_[number];
        if (phase == 0) {
            const auto status = decode_first_phase({step_, tensor_id("w"), kSelectionSeed}, contributions, node.memory);
            EXPECT_TRUE(status.is_ok()) << status.to_string();
            return;
        }
        const auto decoded = decode_last_phase(step_, contributions, node.memory, node.result);
        ASSERT_TRUE(decoded.is_ok()) << decoded.status().to_string();
        inout_outcome.averages.push_back(node.average);
        inout_outcome.decoded.push_back(*decoded);
    }

    Pipeline pipeline_;
    ElementCount elements_;
    std::vector<float> weights_{1.0F};
    std::vector<Node> nodes_;
    Step step_ = 1;
    EncodeWorkspace workspace_;
};

}  // namespace gradsieve::codec
