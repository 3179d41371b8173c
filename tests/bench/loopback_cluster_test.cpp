#include "bench/fidelity/loopback_cluster.hpp"

#include "transport/frame.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <random>

namespace gradsieve::bench {
namespace {

constexpr std::uint32_t kNodes = 4;
constexpr std::uint64_t kSeed = 20261130;

codec::Pipeline parsed(const std::string& text) {
    auto pipeline = codec::parse_pipeline(text);
    EXPECT_TRUE(pipeline.is_ok()) << pipeline.status().to_string();
    return pipeline.is_ok() ? *pipeline : codec::Pipeline{};
}

/// Normal numbers for each node, tensor and sample, and their pointers.
class RandomGradients {
public:
    explicit RandomGradients(const ClusterPlan& plan) : samples_(plan.ranks * plan.samples) {
        for (std::uint32_t node = 0; node < plan.nodes; ++node)
            for (const auto& tensor : plan.tensors) {
                auto& gradients = gradients_.emplace_back();
                for (std::size_t sample = 0; sample < samples_; ++sample)
                    gradients.samples.push_back(values_.emplace_back(elements_of(tensor)).data());
            }
        draw();
    }
    void draw() {
        std::normal_distribution<float> normal;
        for (auto& values : values_)
            for (auto& value : values) value = normal(random_);
    }
    [[nodiscard]] std::span<const Gradients> all() const { return gradients_; }
    void set(std::size_t array, std::size_t element, float value) { values_[array][element] = value; }
    /// Of all nodes and samples, in fp64.
    [[nodiscard]] double mean(std::size_t tensors, std::size_t tensor, std::size_t element) const {
        double sum = 0;
        for (std::size_t node = 0; node < kNodes; ++node)
            for (const auto* sample : gradients_[node * tensors + tensor].samples) sum += sample[element];
        return sum / static_cast<double>(kNodes * samples_);
    }

private:
    std::size_t samples_;
    std::mt19937_64 random_{kSeed};
    std::deque<std::vector<float>> values_;
    std::vector<Gradients> gradients_;
};

ClusterPlan plan_of(const std::string& codec, std::uint32_t ranks, std::uint32_t samples,
                    const std::vector<std::uint64_t>& sizes) {
    ClusterPlan plan{.nodes = kNodes, .ranks = ranks, .samples = samples, .codec = codec};
    for (std::size_t number = 0; number < sizes.size(); ++number)
        plan.tensors.push_back(
            {std::string("tensor ") + static_cast<char>('a' + number), {sizes[number]}, parsed(codec)});
    return plan;
}

TEST(LoopbackCluster, All_f32_gives_the_mean_of_all_samples_of_all_nodes) {
    const auto plan = plan_of("all | f32", 2, 3, {1, 4096, 5000});
    LoopbackCluster cluster(plan);
    ASSERT_TRUE(cluster.form().is_ok());
    RandomGradients gradients(plan);
    for (int step = 0; step < 3; ++step) {
        gradients.draw();
        const auto status = cluster.step(gradients.all(), 1.0F);
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        for (std::size_t tensor = 0; tensor < plan.tensors.size(); ++tensor) {
            const auto average = cluster.average(tensor);
            ASSERT_EQ(average.size(), elements_of(plan.tensors[tensor]));
            for (std::size_t element = 0; element < average.size(); ++element)
                ASSERT_NEAR(average[element], gradients.mean(plan.tensors.size(), tensor, element), 1e-6);
        }
    }
}

TEST(LoopbackCluster, Wire_bytes_are_payloads_to_each_other_node_with_the_headers_of_frames_and_records) {
    const auto plan = plan_of("all | f32", 1, 1, {1000});
    LoopbackCluster cluster(plan);
    ASSERT_TRUE(cluster.form().is_ok());
    const auto formed = cluster.counters();
    EXPECT_EQ(formed.payload_bytes, 0U);
    EXPECT_GT(formed.wire_bytes, 0U) << "the frames of the job's formation count";
    RandomGradients gradients(plan);
    ASSERT_TRUE(cluster.step(gradients.all(), 1.0F).is_ok());
    const auto first = cluster.counters();
    ASSERT_TRUE(cluster.step(gradients.all(), 1.0F).is_ok());
    const auto second = cluster.counters();
    const std::uint64_t payload = second.payload_bytes - first.payload_bytes;
    EXPECT_EQ(payload, first.payload_bytes);
    EXPECT_GE(payload, kNodes * 4000U);
    EXPECT_LE(payload, kNodes * 4016U);
    // Two frames to each other node, as docs/wire-format-jobs.md has them: records (the job's hash, flags, a record's
    // header) and an acknowledgement (hash, stream, digest).
    constexpr std::uint64_t kOverhead = 2 * transport::kFrameHeaderBytes + (8 + 1 + 4) + (8 + 1 + 8);
    EXPECT_EQ(second.wire_bytes - first.wire_bytes, (kNodes - 1) * (payload + kNodes * kOverhead));
}

TEST(LoopbackCluster, Sparse_codec_sends_what_it_says_and_keeps_the_rest) {
    const auto plan = plan_of("topk(0.01) | f32", 1, 1, {10000});
    LoopbackCluster cluster(plan);
    ASSERT_TRUE(cluster.form().is_ok());
    RandomGradients gradients(plan);
    double arrived = 0;
    double handed_in = 0;
    constexpr int kSteps = 5;
    for (int step = 0; step < kSteps; ++step) {
        ASSERT_TRUE(cluster.step(gradients.all(), 1.0F).is_ok());
        for (const float value : cluster.average(0)) arrived += std::abs(value);
        for (std::size_t element = 0; element < 10000; ++element) handed_in += std::abs(gradients.mean(1, 0, element));
    }
    EXPECT_EQ(cluster.counters().kept_elements, kNodes * kSteps * 100U);
    EXPECT_GT(arrived, 0);
    EXPECT_LT(arrived, handed_in);
}

/// All codecs that keep something of their own between phases, steps or tensors.
TEST(LoopbackCluster, Every_kind_of_codec_gives_equal_averages_on_all_nodes) {
    for (const char* codec :
         {"topk(0.02, scope=model) | pow2(bits=4) | auto | entropy", "topk(0.05, gate=1, scope=model) | pow2 | auto",
          "accumulate(2) | topk(0.02, scope=model) | f32", "momentum(0.9, clip=1) | topk(0.02) | f32",
          "lowrank(2, columns=square)", "sketch(0.01)", "delta | topk(0.05) | f32", "variance(1) | pow2 | auto",
          "similarity(skip=0.2) | all | dither(levels=7)", "rotate | all | sign", "randk(0.1) | f32"}) {
        SCOPED_TRACE(codec);
        const auto plan = plan_of(codec, 2, 2, {9000, 4096});
        LoopbackCluster cluster(plan);
        ASSERT_TRUE(cluster.form().is_ok());
        RandomGradients gradients(plan);
        double size = 0;
        for (int step = 0; step < 6; ++step) {
            gradients.draw();
            const auto status = cluster.step(gradients.all(), step == 3 ? 0.5F : 1.0F);
            if (std::string_view(codec).starts_with("delta") && step == 3) break;  // one unit for all steps
            ASSERT_TRUE(status.is_ok()) << status.to_string();
            for (const float value : cluster.average(0)) size += std::abs(value);
        }
        EXPECT_GT(size, 0);
    }
}

TEST(LoopbackCluster, A_gradient_that_is_not_finite_ends_the_job_by_name) {
    const auto plan = plan_of("topk(0.1) | f32", 1, 1, {5000});
    LoopbackCluster cluster(plan);
    ASSERT_TRUE(cluster.form().is_ok());
    RandomGradients gradients(plan);
    gradients.set(2, 77, NAN);
    const auto status = cluster.step(gradients.all(), 1.0F);
    EXPECT_EQ(status.code(), StatusCode::kNonFinite);
    EXPECT_NE(status.to_string().find("'tensor a' at element 77"), std::string::npos) << status.to_string();
}

}  // namespace
}  // namespace gradsieve::bench
