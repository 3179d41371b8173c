#include "codec/pipeline_trial.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace gradsieve::codec {
namespace {

constexpr ElementCount kElements = 200'000;

PipelineTrial make_trial(const char* text, ElementCount elements = kElements, std::uint64_t seed = 7) {
    auto trial = PipelineTrial::of_noise(*parse_pipeline(text), elements, seed);
    EXPECT_TRUE(trial.is_ok()) << trial.status().to_string();
    return std::move(*trial);
}

double first_error(const char* text) {
    auto trial = make_trial(text);
    EXPECT_TRUE(trial.step().is_ok());
    EXPECT_TRUE(trial.decode().is_ok());
    return trial.normalized_error();
}

TEST(PipelineTrial, Counts_and_bytes_are_those_of_the_payloads) {
    auto trial = make_trial("topk(0.01) | f32 | raw32");
    for (int step = 0; step < 3; ++step) {
        const auto sent = trial.step();
        ASSERT_TRUE(sent.is_ok());
        EXPECT_EQ(sent->elements, kElements / 100);
        EXPECT_GE(sent->payload_bytes, 8 * sent->elements);
        EXPECT_LE(sent->payload_bytes, 8 * sent->elements + 64);
    }
}
// Kept energy of the largest tenth of Gaussian numbers: 2 (t phi(t) + 1 - Phi(t)), t their 95th percentile.
TEST(PipelineTrial, Error_of_the_first_step_is_the_operators_on_gaussian_numbers) {
    EXPECT_EQ(first_error("all | f32"), 0.0);
    EXPECT_LT(first_error("momentum(clip=1) | topk(1) | f32"), 1e-12) << "of what was clipped";
    EXPECT_NEAR(first_error("topk(0.1) | f32"), 1 - 0.439286, 0.005);
    EXPECT_NEAR(first_error("all | sign"), 1 - 2 / std::numbers::pi, 0.005);
    EXPECT_NEAR(first_error("rotate | all | sign"), 1 - 2 / std::numbers::pi, 0.005);
    EXPECT_NEAR(first_error("rotate | all | sign(scale=drive)"), std::numbers::pi / 2 - 1, 0.01) << "nothing is kept";
}
TEST(PipelineTrial, Error_counts_what_the_residual_brought_along) {
    auto trial = make_trial("topk(0.01) | f32");
    double first = 0;
    for (int step = 0; step < 200; ++step) {
        ASSERT_TRUE(trial.step().is_ok());
        ASSERT_TRUE(trial.decode().is_ok());
        if (step == 0) first = trial.normalized_error();
    }
    EXPECT_GT(trial.normalized_error(), first + 0.02);  // the residual's many middling numbers are left
    EXPECT_LT(trial.normalized_error(), 1 - 0.01);      // a contraction by k/n at least
}
TEST(PipelineTrial, Error_of_differences_is_of_what_gradients_differ_by) {
    EXPECT_EQ(first_error("delta | topk(0.1) | f32"), first_error("topk(0.1) | f32")) << "of zeros at first";
    auto trial = make_trial("delta | topk(0.1) | f32");
    for (int step = 0; step < 30; ++step) {
        ASSERT_TRUE(trial.step().is_ok());
        ASSERT_TRUE(trial.decode().is_ok());
        EXPECT_LT(trial.normalized_error(), 0.9) << "a contraction by k/n at least";
        EXPECT_GT(trial.normalized_error(), 0.4);
    }
}
TEST(PipelineTrial, Same_seed_same_noise_and_another_seed_other_noise) {
    const auto bytes = [](std::uint64_t seed) {
        auto trial = make_trial("variance(alpha=1.5) | pow2(bits=4) | auto", 50'000, seed);
        std::uint64_t sum = 0;
        for (int step = 0; step < 10; ++step) sum = 31 * sum + trial.step()->payload_bytes;
        return sum;
    };
    EXPECT_EQ(bytes(1), bytes(1));
    EXPECT_NE(bytes(1), bytes(2));
}
TEST(PipelineTrial, Sizes_outside_are_refused) {
    for (const ElementCount elements : {ElementCount{0}, PipelineTrial::kMostElements + 1}) {
        const auto trial = PipelineTrial::of_noise(*parse_pipeline("all"), elements, 1);
        ASSERT_FALSE(trial.is_ok());
        EXPECT_NE(trial.status().to_string().find(std::to_string(elements)), std::string::npos);
        EXPECT_NE(trial.status().to_string().find("allowed are 1 to"), std::string::npos);
    }
}

TEST(PipelineTrial, Recorded_gradients_are_taken_in_turn) {
    const std::vector<float> gradients = {0, 0, 1, 0, 3, 2, 0, 0};  // two steps of four
    auto trial = PipelineTrial::of_gradients(*parse_pipeline("threshold(0.5) | f32 | raw32"), 4, gradients, 7);
    ASSERT_TRUE(trial.is_ok()) << trial.status().to_string();
    std::vector<std::uint64_t> sent;
    for (int step = 0; step < 4; ++step) sent.push_back(trial->step()->elements);
    EXPECT_EQ(sent, (std::vector<std::uint64_t>{1, 2, 1, 2}));
    auto top = PipelineTrial::of_gradients(*parse_pipeline("topk(0.25) | f32 | raw32"), 4, gradients, 7);
    for (const double left : {0.0, 4.0 / 13}) {
        ASSERT_EQ(top->step()->elements, 1U);
        ASSERT_TRUE(top->decode().is_ok());
        EXPECT_NEAR(top->normalized_error(), left, 1e-6);
    }
}
TEST(PipelineTrial, Parts_of_gradients_are_refused) {
    for (const std::size_t numbers : {0U, 3U, 5U, 9U}) {
        const auto status =
            PipelineTrial::of_gradients(*parse_pipeline("all"), 4, std::vector<float>(numbers), 7).status();
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << numbers;
        EXPECT_NE(status.text().find(std::to_string(numbers) + " numbers"), std::string::npos) << status.text();
    }
}

}  // namespace
}  // namespace gradsieve::codec
