// What theory says of natural compression: unbiased, its exact squared error, z = 9/8 and where it is reached, and that
// 1/z makes a contraction of 1/9 of it. Seeds are fixed: steps number the trials.
#include "codec/stages/natural.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/random_trials.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

using test::make_values;
using test::Shape;

constexpr double kZ = 9.0 / 8.0;

/// (x - lo)(hi - x) of the powers of two beside x.
double variance_of(double x) {
    if (x == 0) return 0;
    const double low = std::ldexp(1.0, std::ilogb(x));
    return (std::fabs(x) - low) * (2 * low - std::fabs(x));
}
/// E ||x - C(x)||^2.
double expected_error(std::span<const float> values, Feedback feedback) {
    const double factor = feedback == Feedback::kScaled ? 1 / kZ : 1;
    double sum = 0;
    for (const float value : values) {
        const double bias = value * (1 - factor);
        sum += variance_of(value * factor) + bias * bias;
    }
    return sum;
}

TEST(NaturalTheory, Means_are_the_values_and_errors_are_as_large_as_they_should_be) {
    constexpr int kTrials = 4000;
    const auto values = make_values(Shape::kGaussian, 500, 51);
    TrialMoments moments(values);
    run_trials(natural_pipeline({}, Feedback::kNone), values, kTrials, [&](const std::vector<float>& decoded) {
        for (const float value : decoded) ASSERT_EQ(element::bits_of(value) & 0x007FFFFFU, 0U) << "a power of two";
        moments.add(decoded);
    });
    double chi = 0;
    std::size_t random = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double variance = variance_of(values[i]);
        // Scores are normal only where both neighbours are drawn often.
        if (variance < 0.01 * values[i] * values[i]) continue;
        const double score = moments.deviation(i) / std::sqrt(variance / kTrials);
        EXPECT_LT(std::fabs(score), 6.0) << "element " << i;
        chi += score * score;
        ++random;
    }
    ASSERT_GT(random, 300U);
    EXPECT_LT(std::fabs(chi - static_cast<double>(random)), 6 * std::sqrt(2.0 * static_cast<double>(random)));
    EXPECT_NEAR(moments.mean_error(), expected_error(values, Feedback::kNone), 5 * moments.error_spread());
    EXPECT_LE(moments.mean_error(), square_norm(values) / 8);
}
TEST(NaturalTheory, The_second_moment_is_nine_eighths_at_a_mantissa_of_a_third_and_nowhere_more) {
    double worst = 0;
    double worst_mantissa = 0;
    for (int step = 0; step < 100000; ++step) {
        const double mantissa = step * 1e-5;
        const double moment = 1 + variance_of(1 + mantissa) / std::pow(1 + mantissa, 2);
        if (moment > worst) worst_mantissa = mantissa;
        worst = std::max(worst, moment);
    }
    EXPECT_NEAR(worst, kZ, 1e-9);
    EXPECT_NEAR(worst_mantissa, 1.0 / 3, 1e-4);

    constexpr int kTrials = 2000;
    const std::vector<float> thirds(4096, 4.0F / 3.0F);
    double moment = 0;
    run_trials(natural_pipeline({}, Feedback::kNone), thirds, kTrials,
               [&](const std::vector<float>& decoded) { moment += square_norm(decoded) / kTrials; });
    EXPECT_NEAR(moment / square_norm(thirds), kZ, 1e-3);
}
TEST(NaturalTheory, Second_moment_on_gaussian_vectors_agrees_with_the_table) {
    double ratio = 0;
    constexpr int kVectors = 20;
    std::mt19937_64 random(52);
    for (int vector = 0; vector < kVectors; ++vector) {
        const auto values = make_gradient(DataKind::kGaussian, 10000, random);
        run_trials(natural_pipeline({}, Feedback::kNone), values, 1, [&](const std::vector<float>& decoded) {
            ratio += square_norm(decoded) / square_norm(values) / kVectors;
        });
    }
    EXPECT_NEAR(ratio, 1.0817, 0.0108);
}
TEST(NaturalTheory, Scaled_by_eight_ninths_it_contracts_every_vector) {
    std::vector<std::vector<float>> vectors = {std::vector<float>(1000, 1.5F)};  // 4/3 once it is scaled
    for (const Shape shape : {Shape::kGaussian, Shape::kHeavyTailed, Shape::kConstant, Shape::kOneHot})
        vectors.push_back(make_values(shape, 1000, 53));
    for (const auto& values : vectors) {
        EXPECT_LE(expected_error(values, Feedback::kScaled), square_norm(values) / 9 * (1 + 1e-9));
        EXPECT_LE(expected_error(values, Feedback::kUnscaled), square_norm(values) / 8 * (1 + 1e-9));
    }
    EXPECT_NEAR(expected_error(vectors[0], Feedback::kScaled), square_norm(vectors[0]) / 9, 1e-9);
    constexpr int kTrials = 1000;
    double error = 0;
    run_trials(natural_pipeline({}, Feedback::kScaled), vectors[0], kTrials, [&](const std::vector<float>& decoded) {
        for (const float value : decoded) error += std::pow(double{value} - 1.5, 2) / kTrials;
    });
    EXPECT_NEAR(error, square_norm(vectors[0]) / 9, 0.01 * error) << "the bound is attained";
}
TEST(NaturalTheory, Error_feedback_contracts_at_every_step_in_the_mean) {
    constexpr ElementCount kElements = 2000;
    constexpr int kNodes = 20;
    std::mt19937_64 random(54);
    std::vector<EncodeLoop> nodes;
    for (int node = 0; node < kNodes; ++node) {
        nodes.emplace_back(natural_pipeline({}), kElements, 1, 0);
        nodes.back().set_random_seed(static_cast<std::uint64_t>(node));
    }
    for (int step = 0; step < 5; ++step) {
        const auto gradient = make_gradient(DataKind::kHeavyTailed, kElements, random);
        double before = 0;
        double after = 0;
        for (EncodeLoop& node : nodes) {
            std::vector<float> sum(node.residual().begin(), node.residual().end());
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
            before += square_norm(sum);
            node.step(gradient);
            after += square_norm(node.residual());
        }
        EXPECT_LE(after, before / 9 * 1.02) << "step " << step;
    }
}
TEST(NaturalTheory, Averaging_over_nodes_reduces_the_error_by_their_number) {
    constexpr std::size_t kNodes = 64;
    const auto values = make_values(Shape::kGaussian, 4096, 55);
    std::vector<double> mean(values.size(), 0.0);
    CodeScratch scratch;
    for (std::uint64_t node = 0; node < kNodes; ++node) {
        std::vector<float> decoded(values.size());
        const ChunkSelection selection{values.size(), true, {}, values, 0, rounding_stream(node, 2, 9), 0};
        static_cast<void>(code_chunk(natural_pipeline({}, Feedback::kNone), selection, scratch, decoded));
        for (std::size_t i = 0; i < values.size(); ++i) mean[i] += double{decoded[i]} / kNodes;
    }
    double error = 0;
    for (std::size_t i = 0; i < values.size(); ++i) error += std::pow(mean[i] - values[i], 2);
    const double expected = expected_error(values, Feedback::kNone) / kNodes;
    EXPECT_NEAR(error, expected, 0.1 * expected);
}

}  // namespace
}  // namespace gradsieve::codec
