#include "loopback_job.hpp"

#include <gtest/gtest.h>

namespace gradsieve::test {
namespace {

bench::ClusterPlan plan_of(const codec::Pipeline& pipeline, PeerIndex nodes, ElementCount elements, std::size_t samples,
                           std::uint64_t batch_samples) {
    return {.nodes = nodes,
            .ranks = 1,
            .samples = static_cast<std::uint32_t>(samples),
            .batch_samples = batch_samples,
            .codec = codec::canonical_text(pipeline, codec::Knobs::kBlank),
            .tensors = {{"weights", {elements}, pipeline}},
            .job = "convergence"};
}

}  // namespace

LoopbackJob::LoopbackJob(const codec::Pipeline& pipeline, PeerIndex nodes, ElementCount elements, std::size_t samples,
                         std::uint64_t batch_samples)
    : cluster_(plan_of(pipeline, nodes, elements, samples, batch_samples)) {
    expect(cluster_.form());
}

std::span<const float> LoopbackJob::step(std::span<const std::vector<std::vector<float>>> gradients) {
    std::vector<bench::Gradients> handed_in;
    for (const auto& samples : gradients) {
        handed_in.emplace_back();
        for (const auto& sample : samples) handed_in.back().samples.push_back(sample.data());
    }
    if (!has_failed_) expect(cluster_.step(handed_in, 1.0F));
    return cluster_.average(0);
}

void LoopbackJob::expect(const Status& status) {
    has_failed_ = !status.is_ok();
    EXPECT_TRUE(status.is_ok()) << status.to_string();
}

}  // namespace gradsieve::test
