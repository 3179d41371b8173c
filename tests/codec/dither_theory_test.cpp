// What theory says of standard dithering: unbiased, its variance, the bound z at its extremal vectors, and that 1/z
// makes a contraction of it. Seeds are fixed: steps number the trials.
#include "codec/dither_coder.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/random_trials.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

using test::make_values;
using test::Shape;

/// One tile and what its unit is, by either norm.
struct Operator {
    DitherRule rule;
    DitherUnit unit;
    double z = 1;  ///< by which it is scaled down

    Operator(int levels, Norm norm, Feedback feedback, const std::vector<float>& values, bool is_list = false) {
        Quantizer quantizer;
        quantizer.kind = QuantizerKind::kDither;
        quantizer.levels = levels;
        quantizer.norm = norm;
        quantizer.feedback = feedback;
        rule = dither_rule(quantizer, is_list);
        unit = dither_unit(rule, measure_tile(rule, values, payload_kernels()));
        z = std::ldexp(1.0, 24) / (double{unit.to_levels} * unit.scale);
    }
    /// A magnitude in levels.
    [[nodiscard]] double in_levels(float value) const {
        return std::min(std::ldexp(double{std::fabs(value)} * unit.to_levels, -24), double(rule.levels));
    }
    [[nodiscard]] double variance(float value) const {
        const double t = in_levels(value);
        const double fraction = t - std::floor(t);
        return double{unit.scale} * unit.scale * fraction * (1 - fraction);
    }
    /// E ||x - C(x)||^2 of the operator as it is scaled.
    [[nodiscard]] double expected_error(const std::vector<float>& values) const {
        double sum = 0;
        for (const float value : values) {
            const double bias = std::fabs(value) - in_levels(value) * unit.scale;
            sum += variance(value) + bias * bias;
        }
        return sum;
    }
};

TEST(DitherTheory, Means_are_the_values_and_errors_are_as_large_as_they_should_be) {
    constexpr int kTrials = 4000;
    const auto values = make_values(Shape::kGaussian, 300, 41);
    for (const int levels : {1, 7, 127})
        for (const Norm norm : {Norm::kMax, Norm::kL2}) {
            const Operator one(levels, norm, Feedback::kNone, values);
            TrialMoments moments(values);
            double nonzeros = 0;
            run_trials(dither_pipeline({}, levels, norm, Feedback::kNone), values, kTrials,
                       [&](const std::vector<float>& decoded) {
                           moments.add(decoded);
                           for (const float value : decoded) nonzeros += value != 0 ? 1 : 0;
                       });
            double chi = 0;
            std::size_t random = 0;
            for (std::size_t i = 0; i < values.size(); ++i) {
                const double deviation = moments.deviation(i);
                const double variance = one.variance(values[i]);
                if (variance < 1e-6 * one.unit.scale * one.unit.scale) {
                    EXPECT_NEAR(deviation, 0.0, 1e-3 * one.unit.scale) << levels << " element " << i;
                    continue;
                }
                const double score = deviation / std::sqrt(variance / kTrials);
                EXPECT_LT(std::fabs(score), 6.0) << levels << " element " << i;
                chi += score * score;
                ++random;
            }
            EXPECT_LT(std::fabs(chi - static_cast<double>(random)), 6 * std::sqrt(2.0 * static_cast<double>(random)));
            EXPECT_NEAR(moments.mean_error(), one.expected_error(values), 5 * moments.error_spread() + 1e-9) << levels;
            if (norm == Norm::kL2) {
                const double root = std::sqrt(static_cast<double>(values.size()));
                EXPECT_LE(nonzeros / kTrials, levels * (levels + root)) << levels;
                // QSGD's own bound is wider than ours.
                EXPECT_LE(one.expected_error(values),
                          std::min(static_cast<double>(values.size()) / (levels * levels), root / levels) *
                              square_norm(values));
            }
        }
}
TEST(DitherTheory, Ternary_errs_by_the_max_norm_times_the_sum_less_the_squares) {
    const auto values = make_values(Shape::kGaussian, 1000, 42);
    const Operator ternary(1, Norm::kMax, Feedback::kNone, values);
    double largest = 0;
    double sum = 0;
    for (const float value : values) {
        largest = std::max(largest, std::fabs(double{value}));
        sum += std::fabs(double{value});
    }
    const double expected = largest * sum - square_norm(values);
    EXPECT_NEAR(ternary.expected_error(values), expected, 1e-5 * expected);
    run_trials(dither_pipeline({}, 1, Norm::kMax, Feedback::kNone), values, 20, [&](const std::vector<float>& decoded) {
        for (const float value : decoded)
            ASSERT_TRUE(value == 0 || std::fabs(std::fabs(value) - largest) < 1e-6 * largest) << value;
    });
}

/// Vectors at which the bounds are reached or nearly so, and others.
std::vector<std::vector<float>> vectors_of(std::size_t count, int levels) {
    std::vector<std::vector<float>> vectors;
    for (const Shape shape :
         {Shape::kGaussian, Shape::kHeavyTailed, Shape::kConstant, Shape::kOneHot, Shape::kAlternating})
        vectors.push_back(make_values(shape, count, count));
    const double others = static_cast<double>(count - 1);
    const double z = (1 + std::sqrt(1 + others / (levels * levels))) / 2;
    std::vector<float> extremal(count, static_cast<float>(1 / (2 * z * levels)));
    extremal[0] = 1;
    vectors.push_back(extremal);
    std::vector<float> halves(count, static_cast<float>(0.5 / levels));
    halves[0] = 1;
    vectors.push_back(halves);
    return vectors;
}

TEST(DitherTheory, Scaled_by_the_bound_it_contracts_every_vector) {
    for (const int levels : {1, 2, 7, 31, 127})
        for (const std::size_t count : {1U, 2U, 33U, 1000U, 4096U})
            for (const Norm norm : {Norm::kMax, Norm::kL2})
                for (const bool is_list : {false, true})
                    for (const auto& values : vectors_of(count, levels)) {
                        const double square = square_norm(values);
                        const Operator scaled(levels, norm, Feedback::kScaled, values, is_list);
                        ASSERT_GE(scaled.z, 1 - 1e-6);
                        EXPECT_LE(scaled.expected_error(values),
                                  (1 - 1 / scaled.z) * square * (1 + 1e-5) + 1e-6 * square)
                            << levels << " levels, " << count << " elements, list " << is_list;
                    }
}
TEST(DitherTheory, Bounds_are_reached_at_their_extremal_vectors) {
    for (const int levels : {1, 2, 7})
        for (const std::size_t count : {100U, 1000U, 4096U}) {
            const auto vectors = vectors_of(count, levels);
            const auto second_moment = [&](Norm norm, const std::vector<float>& values) {
                const Operator plain(levels, norm, Feedback::kNone, values);
                return 1 + plain.expected_error(values) / square_norm(values);
            };
            const double others = static_cast<double>(count - 1);
            const double by_max = (1 + std::sqrt(1 + others / (levels * levels))) / 2;
            const std::vector<float>& extremal = vectors[5];
            EXPECT_NEAR(second_moment(Norm::kMax, extremal), by_max, 1e-4 * by_max) << levels << " " << count;
            EXPECT_NEAR(Operator(levels, Norm::kMax, Feedback::kScaled, extremal).z, by_max, 1e-4 * by_max);
            const double by_l2 = std::sqrt(static_cast<double>(count)) / levels;
            if (by_l2 < 2) continue;
            const std::vector<float>& constant = vectors[2];
            EXPECT_NEAR(second_moment(Norm::kL2, constant), by_l2, 1e-4 * by_l2) << levels << " " << count;
            EXPECT_NEAR(Operator(levels, Norm::kL2, Feedback::kScaled, constant).z, by_l2, 1e-4 * by_l2);
        }
}
TEST(DitherTheory, Error_feedback_contracts_at_every_step_in_the_mean) {
    constexpr ElementCount kElements = 2000;
    constexpr int kNodes = 40;
    for (const int levels : {1, 7})
        for (const Norm norm : {Norm::kMax, Norm::kL2}) {
            std::mt19937_64 random(43);
            std::vector<EncodeLoop> nodes;
            for (int node = 0; node < kNodes; ++node) {
                nodes.emplace_back(dither_pipeline({}, levels, norm), kElements, 1, 0);
                nodes.back().set_random_seed(static_cast<std::uint64_t>(node));
            }
            for (int step = 0; step < 5; ++step) {
                const auto gradient = make_gradient(DataKind::kGaussian, kElements, random);
                double before = 0;
                double allowed = 0;
                double after = 0;
                for (EncodeLoop& node : nodes) {
                    std::vector<float> sum(node.residual().begin(), node.residual().end());
                    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
                    const Operator scaled(levels, norm, Feedback::kScaled, sum);
                    before += square_norm(sum);
                    allowed += (1 - 1 / scaled.z) * square_norm(sum);
                    node.step(gradient);
                    after += square_norm(node.residual());
                }
                EXPECT_LE(after, allowed * 1.02) << levels << " levels, step " << step << ", before " << before;
            }
        }
}
TEST(DitherTheory, Averaging_over_nodes_reduces_the_error_by_their_number) {
    constexpr std::size_t kNodes = 64;
    const auto values = make_values(Shape::kGaussian, 4096, 44);
    const Operator one(3, Norm::kMax, Feedback::kNone, values);
    std::vector<double> mean(values.size(), 0.0);
    for (std::uint64_t node = 0; node < kNodes; ++node) {
        std::vector<float> decoded(values.size());
        CodeScratch scratch;
        const ChunkSelection selection{values.size(), true, {}, values, 0, rounding_stream(node, 2, 9), 0};
        static_cast<void>(code_chunk(dither_pipeline({}, 3, Norm::kMax, Feedback::kNone), selection, scratch, decoded));
        for (std::size_t i = 0; i < values.size(); ++i) mean[i] += double{decoded[i]} / kNodes;
    }
    double error = 0;
    for (std::size_t i = 0; i < values.size(); ++i) error += std::pow(mean[i] - values[i], 2);
    const double expected = one.expected_error(values) / kNodes;
    EXPECT_NEAR(error, expected, 0.1 * expected);
}

}  // namespace
}  // namespace gradsieve::codec
