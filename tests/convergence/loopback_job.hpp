// Nodes of one job in one process: each has the real encoder with its state, the real job machine, an endpoint of the
// in-process transport and the real decoder. What nodes know of each other came through frames. One thread; a test owns
// it.
#pragma once

#include "exchange/job_machine.hpp"
#include "transport/loopback_transport.hpp"

#include "codec/decoder.hpp"
#include "tests/codec/encoder_harness.hpp"

#include <array>
#include <memory>
#include <span>
#include <vector>

namespace gradsieve::test {

/// One rank a node, one tensor.
class LoopbackJob {
public:
    /// Forms the job; the test fails if that does not come about.
    LoopbackJob(const codec::Pipeline& pipeline, PeerIndex nodes, ElementCount elements, std::size_t samples,
                std::uint64_t batch_samples);

    /// One step: `gradients` has each node's samples, of which the node's gradient is the mean. Returns the average
    /// that every node decoded; the test fails if they differ by a bit, or if it does not come about.
    [[nodiscard]] std::span<const float> step(std::span<const std::vector<std::vector<float>>> gradients);
    /// The test has failed, and there are no results.
    [[nodiscard]] bool has_failed() const { return has_failed_; }
    /// Of payloads, all nodes together.
    [[nodiscard]] ByteCount payload_bytes() const { return payload_bytes_; }

private:
    struct Node {
        Node(const codec::Pipeline& pipeline, ElementCount elements, std::size_t sample_count, std::uint64_t batch);
        std::unique_ptr<exchange::JobMachine> machine;
        std::unique_ptr<transport::Transport> endpoint;
        codec::EncodeLoop encoder;
        std::vector<float> average;
        codec::ResultTensor result;
        bool has_delta = false;
        std::array<std::vector<float>, 2> sent;  ///< the average of what all have sent, by step number
        const std::vector<std::vector<float>>* samples = nullptr;
        std::vector<const float*> pointers;  ///< to them: the encoder reads these in both phases of a step
        bool has_started = false;
        Step delivered = 0;
        std::vector<Status> errors;
    };
    /// Until `is_done` holds of every node; false if it does not within many turns.
    bool run_until(bool (*is_done)(const Node&, Step), Step step);
    void turn(std::size_t index);
    void act(std::size_t index, const exchange::Action& action);
    void encode(Node& node, const exchange::EncodeTensor& action);
    void decode(Node& node, const exchange::DecodeTensor& action);

    ManualClock clock_;
    transport::LoopbackNetwork network_;
    std::vector<std::unique_ptr<Node>> nodes_;
    Step step_ = 0;
    ByteCount payload_bytes_ = 0;
    bool has_failed_ = false;
};

}  // namespace gradsieve::test
