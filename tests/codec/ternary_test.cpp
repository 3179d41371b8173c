// The ternary operator with its clip: what a tile's unit is, unbiasedness of what is cut off, its exact error, z and
// delta, and edges. Seeds are fixed: steps number the trials.
#include "codec/dither_coder.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/random_trials.hpp"

#include <cfloat>
#include <cmath>

namespace gradsieve::codec {
namespace {

using test::make_values;
using test::Shape;

Quantizer ternary(double clip, Feedback feedback) {
    Quantizer quantizer;
    quantizer.kind = QuantizerKind::kDither;
    quantizer.levels = 1;
    quantizer.clip = clip;
    quantizer.feedback = feedback;
    return quantizer;
}

/// The operator on one tile, in double.
struct Ternary {
    double unit = 0;  ///< q
    double z = 1;
    double scale = 0;
    std::vector<double> cut;  ///< y

    Ternary(double clip, Feedback feedback, const std::vector<float>& values, bool is_list = false) {
        const DitherRule rule = dither_rule(ternary(clip, feedback), is_list);
        const DitherUnit found = dither_unit(rule, measure_tile(rule, values, payload_kernels()));
        scale = found.scale;
        unit = std::ldexp(1.0, 24) / found.to_levels;
        z = unit / scale;
        for (const float value : values) cut.push_back(std::copysign(std::min(std::fabs(double{value}), unit), value));
    }
    /// <x, y>
    [[nodiscard]] double product(const std::vector<float>& values) const {
        double sum = 0;
        for (std::size_t i = 0; i < cut.size(); ++i) sum += values[i] * cut[i];
        return sum;
    }
    /// E ||x - C(x)||^2 as it is scaled.
    [[nodiscard]] double expected_error(const std::vector<float>& values) const {
        double sum = 0;
        for (std::size_t i = 0; i < cut.size(); ++i) {
            const double probability = std::fabs(cut[i]) / unit;
            const double size = std::fabs(double{values[i]});
            sum += probability * (size - scale) * (size - scale) + (1 - probability) * size * size;
        }
        return sum;
    }
};

double root_mean_square(const std::vector<float>& values) {
    return std::sqrt(square_norm(values) / static_cast<double>(values.size()));
}

TEST(Ternary, Unit_is_the_largest_magnitude_or_the_clip_times_the_root_mean_square) {
    for (const std::size_t count : {1U, 7U, 300U, 4096U})
        for (const double clip : {1.0, 2.5, 64.0})
            for (const Shape shape : {Shape::kGaussian, Shape::kHeavyTailed, Shape::kConstant, Shape::kOneHot}) {
                const auto values = make_values(shape, count, count);
                double largest = 0;
                for (const float value : values) largest = std::max(largest, std::fabs(double{value}));
                const double expected = std::min(largest, clip * root_mean_square(values));
                const Ternary one(clip, Feedback::kNone, values);
                EXPECT_NEAR(one.unit, expected, 3e-7 * expected) << count << " " << clip;
                const Ternary list(clip, Feedback::kNone, values, true);
                EXPECT_GE(list.unit, expected * (1 - 1e-6));
                EXPECT_LE(list.unit, expected * 1.0079) << "bf16 enlarges it";
            }
}
TEST(Ternary, Means_are_what_is_cut_off_and_errors_are_the_unit_times_the_sum_less_the_squares) {
    constexpr int kTrials = 4000;
    auto values = make_values(Shape::kGaussian, 300, 51);
    values[17] = 40.0F * static_cast<float>(root_mean_square(values));
    const Pipeline pipeline = *parse_pipeline("all | ternary(feedback=none)");
    const Ternary one(2.5, Feedback::kNone, values);
    std::vector<float> cut(one.cut.begin(), one.cut.end());
    TrialMoments moments(cut);
    run_trials(pipeline, values, kTrials, [&](const std::vector<float>& decoded) {
        for (std::size_t i = 0; i < decoded.size(); ++i) {
            ASSERT_TRUE(decoded[i] == 0 || std::fabs(decoded[i]) == static_cast<float>(one.scale)) << decoded[i];
            ASSERT_TRUE(decoded[i] != 0 || std::fabs(values[i]) < one.unit) << "what is cut off is always sent";
        }
        moments.add(decoded);
    });
    double chi = 0;
    double sum = 0;
    double squares = 0;
    std::size_t random = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double size = std::fabs(one.cut[i]);
        sum += size;
        squares += size * size;
        const double variance = size * (one.unit - size);
        if (variance < 1e-6 * one.unit * one.unit) continue;
        const double score = moments.deviation(i) / std::sqrt(variance / kTrials);
        EXPECT_LT(std::fabs(score), 6.0) << "element " << i;
        chi += score * score;
        ++random;
    }
    EXPECT_GT(random, 250U);
    EXPECT_LT(std::fabs(chi - static_cast<double>(random)), 6 * std::sqrt(2.0 * static_cast<double>(random)));
    EXPECT_NEAR(moments.mean_error(), one.unit * sum - squares, 5 * moments.error_spread());
}
TEST(Ternary, Scaled_it_contracts_every_vector_by_the_stated_delta) {
    for (const std::size_t count : {1U, 2U, 33U, 1000U, 4096U})
        for (const double clip : {1.0, 2.5, 64.0})
            for (const bool is_list : {false, true})
                for (const Shape shape :
                     {Shape::kGaussian, Shape::kHeavyTailed, Shape::kConstant, Shape::kOneHot, Shape::kAlternating}) {
                    const auto values = make_values(shape, count, count + 1);
                    const double square = square_norm(values);
                    const Ternary scaled(clip, Feedback::kScaled, values, is_list);
                    ASSERT_GE(scaled.z, 1 - 1e-6);
                    EXPECT_LE(scaled.expected_error(values), square - scaled.product(values) / scaled.z + 1e-5 * square)
                        << count << " elements, clip " << clip << ", list " << is_list;
                    const double delta = scaled.z * std::max(1.0, std::sqrt(static_cast<double>(count)) / clip);
                    EXPECT_LE(scaled.expected_error(values), (1 - 1 / delta) * square + 1e-5 * square);
                }
}
TEST(Ternary, Z_is_reached_where_all_but_one_are_alike) {
    for (const std::size_t count : {4U, 100U, 4096U}) {
        const double root = std::sqrt(static_cast<double>(count));
        const double z = (1 + root) / 2;
        std::vector<float> values(count, static_cast<float>(1 / (1 + root)));
        values[0] = 1;
        const Ternary plain(64, Feedback::kNone, values);
        EXPECT_NEAR(1 + plain.expected_error(values) / square_norm(values), z, 1e-5 * z) << count;
        EXPECT_NEAR(Ternary(64, Feedback::kScaled, values).z, z, 1e-5 * z) << count;
    }
}
TEST(Ternary, Error_feedback_contracts_at_every_step_in_the_mean) {
    constexpr ElementCount kElements = 2000;
    constexpr std::uint64_t kNodes = 40;
    std::mt19937_64 random(53);
    std::vector<EncodeLoop> nodes;
    for (std::uint64_t node = 0; node < kNodes; ++node) {
        nodes.emplace_back(*parse_pipeline("all | ternary"), kElements, 1, 0);
        nodes.back().set_random_seed(node);
    }
    for (int step = 0; step < 5; ++step) {
        const auto gradient = make_gradient(DataKind::kHeavyTailed, kElements, random);
        double allowed = 0;
        double after = 0;
        for (EncodeLoop& node : nodes) {
            std::vector<float> sum(node.residual().begin(), node.residual().end());
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
            const Ternary scaled(2.5, Feedback::kScaled, sum);
            allowed += square_norm(sum) - scaled.product(sum) / scaled.z;
            node.step(gradient);
            after += square_norm(node.residual());
        }
        EXPECT_LE(after, allowed * 1.02) << "step " << step;
    }
}
TEST(Ternary, Zeros_tiny_and_huge_tiles_are_as_dither_s) {
    const std::vector<float> zeros = {0.0F, -0.0F, 0.0F};
    const auto coded = test::code(*parse_pipeline("all | ternary"), 3, true, {}, zeros);
    EXPECT_EQ(test::octets(coded.payload), (std::vector<std::uint8_t>{2, 8, 1, 0, 0, 0, 0, 0}));
    EncodeLoop loop(*parse_pipeline("all | ternary"), 4101, 1, 0);
    const auto tiny = make_values(Shape::kTiny, 4101, 3);
    for (const float value : decode_payloads(loop.step(tiny).chunks, 4101)) ASSERT_EQ(test::float_bits(value), 0U);
    EXPECT_TRUE(same_bits({loop.residual().begin(), loop.residual().end()}, tiny));
    EncodeLoop large(*parse_pipeline("all | ternary(clip=1)"), 4101, 1, 0);
    std::vector<float> huge(4101, -1.0F);
    huge[7] = FLT_MAX;
    const auto decoded = decode_payloads(large.step(huge).chunks, 4101);
    EXPECT_GT(decoded[7], FLT_MAX / 4096) << "the unit is the root mean square, FLT_MAX / 64, over z";
    for (const float value : decoded) ASSERT_TRUE(std::isfinite(value));
}
TEST(Ternary, Without_a_clip_it_is_dither_of_one_level) {
    EXPECT_EQ(*parse_pipeline("all | ternary(clip=none)"), *parse_pipeline("all | dither(levels=1, norm=max)"));
    EXPECT_NE(*parse_pipeline("all | ternary"), *parse_pipeline("all | dither(levels=1, norm=max)"));
}

}  // namespace
}  // namespace gradsieve::codec
