// A job of one tensor and one rank a node, for convergence tests: the nodes of a loopback cluster, and what they say
// becomes the test's. One thread; a test owns it.
#pragma once

#include "bench/fidelity/loopback_cluster.hpp"

#include <span>
#include <vector>

namespace gradsieve::test {

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
    [[nodiscard]] ByteCount payload_bytes() const { return cluster_.counters().payload_bytes; }

private:
    void expect(const Status& status);

    bench::LoopbackCluster cluster_;
    bool has_failed_ = false;
};

}  // namespace gradsieve::test
