// General rounding to the powers of a base: that its levels are those in every tile, unbiasedness, the exact error, z,
// and the biased form's constants. The arithmetic of an element is exponential_test.cpp's.
#include "codec/exponential_coder.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/random_trials.hpp"

#include <cfloat>
#include <cmath>

namespace gradsieve::codec {
namespace {

using test::make_values;
using test::Shape;

std::vector<float> decoded_once(const std::string& rounding, const std::vector<float>& values) {
    EncodeLoop loop(*parse_pipeline("all | " + rounding), values.size(), 1, 0);
    return decode_payloads(loop.step(values).chunks, values.size());
}
/// The powers of the base around a magnitude.
std::pair<double, double> around(double base, double size) {
    double power = std::pow(base, std::floor(std::log(size) / std::log(base)));
    while (power > size) power /= base;
    while (power * base <= size) power *= base;
    return {power, power * base};
}

TEST(Rounding, Values_are_powers_of_the_base_beside_them_whatever_else_the_tile_holds) {
    for (const float base : {1.1F, 1.5F, 2.0F, 3.0F, 16.0F})
        for (const float largest : {1.0F, 7.0F, 1e6F, 1e-6F}) {
            auto values = make_values(Shape::kGaussian, 5000, 7);
            for (float& value : values) value *= largest;
            values[11] = 30 * largest;
            values[4999] = -largest;
            const auto decoded = decoded_once("rounding(" + std::to_string(base) + ", feedback=none)", values);
            for (std::size_t i = 0; i < values.size(); ++i) {
                if (std::fabs(values[i]) < 1e-3F * largest) continue;  // a code has room for it, unless base is 1.1
                const auto [lower, upper] = around(base, std::fabs(double{values[i]}));
                const double size = std::fabs(double{decoded[i]});
                const double off = std::min(std::fabs(size / lower - 1), std::fabs(size / upper - 1));
                ASSERT_LT(off, 1e-6) << base << " " << values[i] << " became " << decoded[i];
                ASSERT_GT(decoded[i] * values[i], 0.0F);
            }
        }
}
TEST(Rounding, Powers_of_two_are_left_alone) {
    std::vector<float> values;
    for (int exponent = -60; exponent < 60; ++exponent)
        values.push_back(std::ldexp(exponent % 2 == 0 ? 1.0F : -1.0F, exponent));
    EXPECT_EQ(decoded_once("rounding(feedback=none)", values), values);
    EXPECT_EQ(decoded_once("rounding(mode=biased)", values), values);
}
TEST(Rounding, Means_are_the_values_and_errors_are_as_large_as_they_should_be) {
    constexpr int kTrials = 4000;
    const auto values = make_values(Shape::kGaussian, 300, 71);
    for (const double base : {1.5, 2.0, 4.0}) {
        const Pipeline pipeline = *parse_pipeline("all | rounding(" + std::to_string(base) + ", feedback=none)");
        TrialMoments moments(values);
        run_trials(pipeline, values, kTrials, [&](const std::vector<float>& decoded) { moments.add(decoded); });
        double expected = 0;
        double chi = 0;
        std::size_t random = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double size = std::fabs(double{values[i]});
            const auto [lower, upper] = around(base, size);
            const double variance = (size - lower) * (upper - size);
            expected += variance;
            if (!(variance > 0.01 * (upper - lower) * (upper - lower))) continue;
            const double score = moments.deviation(i) / std::sqrt(variance / kTrials);
            EXPECT_LT(std::fabs(score), 6.0) << base << " element " << i;
            chi += score * score;
            ++random;
        }
        ASSERT_GT(random, 200U);
        EXPECT_LT(std::fabs(chi - double(random)), 6 * std::sqrt(2.0 * double(random))) << base;
        EXPECT_NEAR(moments.mean_error(), expected, 5 * moments.error_spread()) << base;
        EXPECT_LE(expected, ((base + 1) * (base + 1) / (4 * base) - 1) * square_norm(values));
    }
}
TEST(Rounding, Z_and_the_biased_constants_are_those_of_a_dense_scan) {
    for (const double base : {1.5, 2.0, 4.0}) {
        const double z = (base + 1) * (base + 1) / (4 * base);
        const std::vector<float> harmonic(100, static_cast<float>(2 * base / (base + 1)));  // of 1 and the base
        const ExponentialRule rule =
            exponential_rule(parse_pipeline("all | rounding(" + std::to_string(base) + ")")->quantizer, false);
        const DitherUnit unit = exponential_unit(rule, {100, harmonic[0], square_norm(harmonic)});
        EXPECT_NEAR(std::ldexp(1.0, 24) / (double{unit.to_levels} * unit.scale), z, 1e-5) << "what it is scaled by";
        const double size = harmonic[0];
        EXPECT_NEAR(1 + (size - 1) * (base - size) / (size * size), z, 1e-5) << "reached at the harmonic mean";
        std::vector<float> scan;
        for (int i = 0; i <= 4000; ++i) scan.push_back(static_cast<float>(1 + i * (base * base - 1) / 4000));
        const auto decoded = decoded_once("rounding(" + std::to_string(base) + ", biased)", scan);
        double least = 10, most = 0, error = 0;
        for (std::size_t i = 0; i < scan.size(); ++i) {
            const double ratio = double{decoded[i]} / scan[i];
            least = std::min(least, ratio);
            most = std::max(most, ratio);
            error = std::max(error, (1 - ratio) * (1 - ratio));
        }
        EXPECT_NEAR(least, 2 / (base + 1), 5e-3);        // g, and the root of a
        EXPECT_NEAR(most, 2 * base / (base + 1), 5e-3);  // b
        EXPECT_NEAR(1 / (1 - error), z, 5e-3) << base;   // delta
    }
}
TEST(Rounding, Error_feedback_contracts_at_every_step_of_the_biased_form) {
    constexpr ElementCount kElements = 2000;
    std::mt19937_64 random(73);
    EncodeLoop loop(*parse_pipeline("all | rounding(mode=biased)"), kElements, 1, 0);
    for (int step = 0; step < 5; ++step) {
        const auto gradient = make_gradient(DataKind::kHeavyTailed, kElements, random);
        std::vector<float> sum(loop.residual().begin(), loop.residual().end());
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
        static_cast<void>(loop.step(gradient));
        EXPECT_LE(square_norm(loop.residual()), square_norm(sum) / 9 * (1 + 1e-6)) << "1 - 1/delta = 1/9";
    }
}
TEST(Rounding, The_first_power_is_the_least_that_is_not_below_the_largest_magnitude) {
    for (const float base : {1.1F, 1.5F, 2.0F, 16.0F})
        for (float magnitude = 0x1p-100F; magnitude < 1e38F; magnitude *= 1.37F) {
            const double norm = fixed_norm(base, depth_per_bit(base), magnitude);
            if (norm * base > FLT_MAX) continue;
            ASSERT_GE(norm, magnitude) << base;
            ASSERT_LT(norm, double{magnitude} * base * (1 + 1e-12)) << base << " " << magnitude;
        }
    for (const char* base : {"1.1", "2", "16"}) {
        const auto decoded = decoded_once(std::string("rounding(") + base + ")", std::vector<float>(100, -FLT_MAX));
        for (const float value : decoded) ASSERT_TRUE(std::isfinite(value) && value < 0) << base;
    }
    EXPECT_EQ(decoded_once("rounding", {0.0F, -0.0F}), (std::vector<float>{0, 0}));
    for (const float value : decoded_once("rounding", make_values(Shape::kTiny, 100, 1))) EXPECT_EQ(value, 0.0F);
}

}  // namespace
}  // namespace gradsieve::codec
