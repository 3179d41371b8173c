// Top-k against published and derived figures: error and contraction on Gaussian vectors, and the counter-example in
// which biased compression without error feedback diverges.
#include "encoder_harness.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

double square_sum(std::span<const float> values) {
    double sum = 0;
    for (const float value : values) sum += double{value} * value;
    return sum;
}

/// ||x - C(x)||^2 / ||x||^2 for 10^4 standard normals, the mean over some vectors.
double normalized_error(double ratio) {
    constexpr int kVectors = 20;
    std::mt19937_64 random(25);
    double sum = 0;
    for (int vector = 0; vector < kVectors; ++vector) {
        EncodeLoop loop(top_k_pipeline(ratio, 0, QuantizerKind::kF32), 10000, 1, 0);
        const auto gradient = make_gradient(DataKind::kGaussian, 10000, random);
        EXPECT_EQ(loop.step(gradient).kept_elements, static_cast<ElementCount>(std::floor(ratio * 10000)));
        sum += square_sum(loop.residual()) / square_sum(gradient);
    }
    return sum / kVectors;
}

TEST(TopKFigures, Error_on_gaussian_vectors_agrees_with_the_table) {
    EXPECT_NEAR(normalized_error(0.01), 0.9156, 0.003);
    EXPECT_NEAR(normalized_error(0.05), 0.7202, 0.004);
    EXPECT_NEAR(normalized_error(0.10), 0.5594, 0.004);
    EXPECT_NEAR(normalized_error(0.20), 0.3495, 0.004);
    EXPECT_NEAR(normalized_error(0.30), 0.2162, 0.004);
    EXPECT_NEAR(normalized_error(0.50), 0.0710, 0.003);
    EXPECT_NEAR(normalized_error(0.70), 0.0145, 0.002);
}
TEST(TopKFigures, Every_step_with_feedback_contracts) {
    constexpr ElementCount kElements = 3000;
    std::mt19937_64 random(25);
    EncodeLoop loop(top_k_pipeline(0.02, 0, QuantizerKind::kF32), kElements, 1, 0);
    for (int step = 0; step < 60; ++step) {
        const auto gradient =
            make_gradient(step % 2 == 0 ? DataKind::kGaussian : DataKind::kConstant, kElements, random);
        std::vector<float> before(loop.residual().begin(), loop.residual().end());
        for (ElementCount element = 0; element < kElements; ++element) before[element] += gradient[element];
        static_cast<void>(loop.step(gradient));
        EXPECT_LE(square_sum(loop.residual()), (1 - 0.02) * square_sum(before) * (1 + 1e-9)) << "step " << step;
    }
}
TEST(TopKFigures, A_constant_vector_keeps_the_first_k) {
    EncodeLoop loop(top_k_pipeline(0.1, 0, QuantizerKind::kF32), 5000, 1, 0);
    const auto sent = sent_elements(decode_payloads(loop.step(std::vector<float>(5000, -2.5F)).chunks, 5000));
    ASSERT_EQ(sent.size(), 500U);
    EXPECT_EQ(sent.front(), 0U);
    EXPECT_EQ(sent.back(), 499U) << "ties go to the lower index";
    EXPECT_NEAR(square_sum(loop.residual()) / (5000 * 6.25), 1 - 0.1, 1e-12) << "the bound is attained";
}
TEST(TopKFigures, A_gate_leaves_fewer_than_k) {
    // Element 1 has the larger r but an r^2 below gate * v.
    const auto input = make_input(top_k_pipeline(1.0, 1.0, QuantizerKind::kF32), 3, 1, DataKind::kZero, 1);
    EncodeWorkspace workspace;
    const auto output = run_form(input, {{1.0F, 4.0F, 0.5F}, {0.5F, 20.0F, 0.1F}}, fastest_cpu_form(), workspace);
    EXPECT_EQ(sent_elements(decode_payloads(output.result.chunks, 3)), (std::vector<ElementCount>{0, 2}));
    EXPECT_EQ(output.state.variance, (std::vector<float>{0.0F, 0.999F * 20.0F, 0.0F}));
}

/// Three workers, f_i(x) = <a_i, x>^2 + |x|^2 / 4, Top-1 of 3 each; returns |x| after some steps from (1, 1, 1).
double top_one_descent(int steps, bool has_feedback, double rate = 0.01) {
    constexpr std::array<std::array<double, 3>, 3> kDirections = {{{-3, 2, 2}, {2, -3, 2}, {2, 2, -3}}};
    std::vector<EncodeLoop> workers;
    for (int worker = 0; worker < 3; ++worker) {
        workers.emplace_back(top_k_pipeline(0.34, 0, QuantizerKind::kF32), 3, 1, 0);
    }
    std::array<double, 3> x = {1, 1, 1};
    for (int step = 0; step < steps; ++step) {
        std::array<double, 3> mean{};
        for (std::size_t worker = 0; worker < 3; ++worker) {
            const auto& a = kDirections[worker];
            const double inner = a[0] * x[0] + a[1] * x[1] + a[2] * x[2];
            std::vector<float> gradient;
            for (std::size_t axis = 0; axis < 3; ++axis) {
                gradient.push_back(static_cast<float>(2 * inner * a[axis] + x[axis] / 2));
            }
            const auto decoded = decode_payloads(workers[worker].step(gradient).chunks, 3);
            for (std::size_t axis = 0; axis < 3; ++axis) mean[axis] += double{decoded[axis]} / 3;
            if (!has_feedback) std::ranges::fill(workers[worker].residual(), 0.0F);
        }
        for (std::size_t axis = 0; axis < 3; ++axis) x[axis] -= rate * mean[axis];
    }
    return std::sqrt(x[0] * x[0] + x[1] * x[1] + x[2] * x[2]);
}

TEST(TopKFigures, Without_feedback_the_counter_example_grows) {
    EXPECT_NEAR(top_one_descent(200, false), 65.5470, 0.01);
    EXPECT_NEAR(top_one_descent(200, false) / top_one_descent(199, false), 1.018333, 1e-5);
    // By 1 + 11 rate / 6 a step, however small the rate.
    for (const double rate : {1e-4, 1e-3, 0.1})
        EXPECT_NEAR(top_one_descent(50, false, rate), std::sqrt(3.0) * std::pow(1 + 11 * rate / 6, 50),
                    1e-4 * std::pow(1 + 11 * rate / 6, 50))
            << rate;
}
TEST(TopKFigures, With_feedback_the_counter_example_converges) {
    EXPECT_NEAR(top_one_descent(1000, true) / 1.2e-5, 1, 0.1);
    EXPECT_LT(top_one_descent(2500, true), 1e-11) << "2.3e-13 in double";
}

}  // namespace
}  // namespace gradsieve::codec
