// What theory says of exponential dithering: unbiased, its exact squared error, the bound z and where it is reached,
// the biased form's constants by a dense scan, and that both contract. Seeds are fixed: steps number the trials.
#include "codec/dither_coder.hpp"
#include "codec/exponential_coder.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/random_trials.hpp"

#include <cmath>
#include <random>

namespace gradsieve::codec {
namespace {

using test::make_values;
using test::Shape;

Quantizer quantizer_of(double base, int levels, Norm norm, bool is_biased, Feedback feedback) {
    Quantizer quantizer;
    quantizer.kind = QuantizerKind::kExponentialDither;
    quantizer.base = base;
    quantizer.levels = levels;
    quantizer.norm = norm;
    quantizer.is_biased = is_biased;
    quantizer.feedback = feedback;
    return quantizer;
}

/// The operator on one tile, in double.
struct Operator {
    double base, lowest, norm, z;
    bool is_biased;

    Operator(const Quantizer& quantizer, const std::vector<float>& values, bool is_list = false)
        : base(quantizer.base), lowest(std::pow(base, 1 - quantizer.levels)), is_biased(quantizer.is_biased) {
        const ExponentialRule rule = exponential_rule(quantizer, is_list);
        DitherTile tile;
        tile.count = static_cast<std::uint32_t>(values.size());
        for (const float value : values) tile.largest = std::max(tile.largest, std::fabs(value));
        tile.square_sum = square_norm(values);
        const DitherUnit unit = exponential_unit(rule, tile);
        norm = std::ldexp(1.0, 24) / unit.to_levels;
        z = norm / unit.scale;
    }
    /// The levels around a magnitude in norms.
    [[nodiscard]] std::pair<double, double> around(double size) const {
        if (size >= 1) return {1, 1};
        if (size < lowest) return {0, lowest};
        double upper = 1;
        while (upper / base > size * (1 + 1e-12)) upper /= base;
        return {upper / base, upper};
    }
    /// E (x - C(x))^2 of one element.
    [[nodiscard]] double expected_error(float value) const {
        const double size = std::min(std::fabs(double{value}) / norm, 1.0);
        const auto [lower, upper] = around(size);
        const double up = upper == lower ? 1
                          : is_biased    ? (size >= (lower + upper) / 2 ? 1 : 0)
                                         : (size - lower) / (upper - lower);
        const double magnitude = std::fabs(double{value});
        return up * std::pow(magnitude - upper * norm / z, 2) + (1 - up) * std::pow(magnitude - lower * norm / z, 2);
    }
    [[nodiscard]] double expected_error(const std::vector<float>& values) const {
        double sum = 0;
        for (const float value : values) sum += expected_error(value);
        return sum;
    }
};

TEST(ExponentialTheory, Means_are_the_values_and_errors_are_as_large_as_they_should_be) {
    constexpr int kTrials = 4000;
    const auto values = make_values(Shape::kGaussian, 300, 61);
    for (const auto& [base, levels] : {std::pair(2.0, 4), std::pair(1.5, 7), std::pair(4.0, 3)})
        for (const Norm norm : {Norm::kMax, Norm::kL2}) {
            Pipeline pipeline;
            pipeline.quantizer = quantizer_of(base, levels, norm, false, Feedback::kNone);
            const Operator one(pipeline.quantizer, values);
            TrialMoments moments(values);
            run_trials(pipeline, values, kTrials, [&](const std::vector<float>& decoded) { moments.add(decoded); });
            double chi = 0;
            std::size_t random = 0;
            for (std::size_t i = 0; i < values.size(); ++i) {
                const auto [lower, upper] = one.around(std::fabs(double{values[i]}) / one.norm);
                const double variance = one.expected_error(values[i]);
                // Scores are normal only where both neighbours are drawn often.
                if (!(variance > 0.01 * std::pow((upper - lower) * one.norm, 2))) continue;
                const double score = moments.deviation(i) / std::sqrt(variance / kTrials);
                EXPECT_LT(std::fabs(score), 6.0) << base << " " << levels << " element " << i;
                chi += score * score;
                ++random;
            }
            ASSERT_GT(random, 200U);
            EXPECT_LT(std::fabs(chi - double(random)), 6 * std::sqrt(2.0 * double(random))) << base;
            EXPECT_NEAR(moments.mean_error(), one.expected_error(values), 5 * moments.error_spread()) << base;
        }
}
TEST(ExponentialTheory, Scaled_by_the_bound_it_contracts_every_vector) {
    for (const double base : {1.1, 1.5, 2.0, 4.0})
        for (const int levels : {1, 2, 4, 8, 16})
            for (const std::size_t count : {1U, 2U, 33U, 1000U, 4096U})
                for (const Norm norm : {Norm::kMax, Norm::kL2})
                    for (const bool is_list : {false, true})
                        for (const Shape shape : {Shape::kGaussian, Shape::kHeavyTailed, Shape::kConstant,
                                                  Shape::kOneHot, Shape::kAlternating}) {
                            const auto values = make_values(shape, count, count);
                            const Operator scaled(
                                quantizer_of(static_cast<float>(base), levels, norm, false, Feedback::kScaled), values,
                                is_list);
                            const double square = square_norm(values);
                            EXPECT_LE(scaled.expected_error(values), (1 - 1 / scaled.z) * square + 2e-5 * square)
                                << base << " " << levels << " " << count << " list " << is_list;
                            // The published bound is wider.
                            if (is_list) continue;
                            const double q = std::sqrt(double(count)) * scaled.lowest;
                            EXPECT_LE(scaled.z, (base + 1 / base + 2) / 4 + q * std::min(1.0, q) + 1e-5);
                        }
}
TEST(ExponentialTheory, The_second_moment_is_reached_at_the_harmonic_mean_of_two_levels) {
    for (const double base : {1.5, 2.0, 4.0}) {
        const double z = (base + 1) * (base + 1) / (4 * base);
        std::vector<float> values(4096, static_cast<float>(2 / (base + 1)));
        values[0] = 1;
        const Operator plain(quantizer_of(base, 4, Norm::kMax, false, Feedback::kNone), values);
        EXPECT_NEAR(1 + plain.expected_error(values) / square_norm(values), z, 2e-3 * z) << base;
        // Below the lowest level it is dither's: all but one alike, at 1 / (2 z) levels.
        const double levels = std::pow(base, 3);
        const double low = (1 + std::sqrt(1 + 4095 / (levels * levels))) / 2;
        std::vector<float> extremal(4096, static_cast<float>(1 / (2 * low * levels)));
        extremal[0] = 1;
        EXPECT_NEAR(
            1 + Operator(quantizer_of(base, 4, Norm::kMax, false, Feedback::kNone), extremal).expected_error(extremal) /
                    square_norm(extremal),
            low, 1e-4 * low);
    }
}
TEST(ExponentialTheory, Biased_constants_are_those_of_a_dense_scan) {
    for (const double base : {1.5, 2.0, 4.0}) {
        const Quantizer quantizer = quantizer_of(base, 8, Norm::kMax, true, Feedback::kScaled);
        const ExponentialRule rule = exponential_rule(quantizer, false);
        const DitherUnit unit = exponential_unit(rule, {2, 1.0F, 1.0});
        EXPECT_EQ(unit.scale, 1.0F) << "nothing is scaled";
        double least = 10, most = 0, error = 0;
        for (int i = 0; i <= 100000; ++i) {
            const auto x = static_cast<float>(1 / (base * base) + i * (1 - 1 / (base * base)) / 100000);
            const std::uint32_t code =
                exponential_code(rule, unit, depth_per_bit(rule.base), x, kMiddleWord,
                                 [&rule](std::uint32_t depth) { return exponential_level(rule.base, depth); });
            const double c = element::float_of(exponential_decoded_bits(code, rule.dither.bits, rule.base, 1.0F));
            least = std::min(least, c / x);
            most = std::max(most, c / x);
            error = std::max(error, std::pow(1 - c / x, 2));
        }
        EXPECT_NEAR(least, 2 / (base + 1), 1e-4);                                          // g, and the root of a
        EXPECT_NEAR(most, 2 * base / (base + 1), 1e-4);                                    // b
        EXPECT_NEAR(1 / (1 - error), (base + 1) * (base + 1) / (4 * base), 2e-4) << base;  // delta
    }
}
TEST(ExponentialTheory, Ten_thousand_normal_numbers_err_as_computed) {
    std::mt19937_64 random(62);
    std::normal_distribution<float> normal;
    std::vector<float> values(10000);
    for (float& value : values) value = normal(random);
    struct Row {
        Norm norm;
        int levels;
        double delta, tolerance;
    };
    for (const Row& row :
         {Row{Norm::kL2, 8, 1.133, 0.01}, Row{Norm::kL2, 16, 1.0826, 0.01}, Row{Norm::kMax, 4, 1.0962, 0.05}}) {
        const Operator plain(quantizer_of(2, row.levels, row.norm, false, Feedback::kNone), values);
        EXPECT_NEAR(1 + plain.expected_error(values) / square_norm(values), row.delta, row.tolerance * row.delta)
            << row.levels;
    }
}
TEST(ExponentialTheory, Error_feedback_contracts_at_every_step) {
    constexpr ElementCount kElements = 2000;
    for (const bool is_biased : {false, true}) {
        const std::uint64_t node_count = is_biased ? 1 : 40;
        std::mt19937_64 random(63);
        Pipeline pipeline;
        pipeline.quantizer = quantizer_of(2, 7, Norm::kMax, is_biased, Feedback::kScaled);
        std::vector<EncodeLoop> nodes;
        for (std::uint64_t node = 0; node < node_count; ++node) {
            nodes.emplace_back(pipeline, kElements, 1, 0);
            nodes.back().set_random_seed(node);
        }
        for (int step = 0; step < 5; ++step) {
            const auto gradient = make_gradient(DataKind::kGaussian, kElements, random);
            double allowed = 0;
            double after = 0;
            for (EncodeLoop& node : nodes) {
                std::vector<float> sum(node.residual().begin(), node.residual().end());
                for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
                const Operator one(pipeline.quantizer, sum);
                // Biased: midway errors above the lowest level, at most all of what lies below.
                double below = 0;
                for (const float value : sum)
                    if (std::fabs(double{value}) < one.lowest * one.norm) below += double{value} * value;
                allowed += is_biased ? (square_norm(sum) - below) / 9 + below : (1 - 1 / one.z) * square_norm(sum);
                node.step(gradient);
                after += square_norm(node.residual());
            }
            EXPECT_LE(after, allowed * (is_biased ? 1 + 1e-6 : 1.02)) << "step " << step << " biased " << is_biased;
        }
    }
}

}  // namespace
}  // namespace gradsieve::codec
