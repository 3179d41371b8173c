// Estimated thresholds: factors of the ratio, what share is kept of distributions that fit and that do not, and the
// edges. Equality with the reference, conservation and the rest are in the suites of every pipeline.
#include "codec/threshold_estimate.hpp"

#include "codec/select_topk.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/random_trials.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

using test::make_values;
using test::Shape;

std::vector<float> decoded_once(const std::string& text, const std::vector<float>& values) {
    EncodeLoop loop(*parse_pipeline(text), values.size(), 1, 0);
    return decode_payloads(loop.step(values).chunks, values.size());
}
double share_kept(const std::string& text, const std::vector<float>& values) {
    return static_cast<double>(sent_elements(decoded_once(text, values)).size()) / static_cast<double>(values.size());
}
EstimateRule rule_of(const std::string& text, ElementCount elements) {
    return estimate_rule(parse_pipeline(text)->selector, elements);
}

constexpr ElementCount kMany = (ElementCount{1} << 21U) + 12345;
constexpr std::uint64_t kSeed = 97;
std::vector<float> laplace() {
    std::mt19937_64 random(kSeed);
    std::exponential_distribution<double> size(1.0);
    std::vector<float> values(kMany);
    for (float& value : values) value = static_cast<float>(size(random) * ((random() & 1U) == 0 ? 1 : -1));
    return values;
}
std::vector<float> normal(double mean = 0) {
    std::mt19937_64 random(kSeed);
    std::normal_distribution<double> number(mean, 1.0);
    std::vector<float> values(kMany);
    for (float& value : values) value = static_cast<float>(number(random));
    return values;
}

TEST(ThresholdEstimate, Factors_are_those_of_the_distributions) {
    // Two-sided tails of the normal distribution.
    EXPECT_NEAR(rule_of("gaussian_k(0.31731050786291415)", 10).first_factor, 1, 1e-14);
    EXPECT_NEAR(rule_of("gaussian_k(0.04550026389635842)", 10).first_factor, 2, 1e-14);
    EXPECT_NEAR(rule_of("gaussian_k(0.01)", 10).first_factor, 2.5758293035489004, 1e-14);
    EXPECT_NEAR(rule_of("gaussian_k(0.001)", 10).first_factor, 3.2905267314918945, 1e-14);
    EXPECT_NEAR(rule_of("gaussian_k(1e-9)", 10).first_factor, 6.109410204869, 1e-11);
    EXPECT_EQ(rule_of("gaussian_k(1)", 10).first_factor, 0);
    EXPECT_NEAR(rule_of("sidco(0.01, stages=1)", 10).first_factor, std::log(100.0), 1e-14);
    EXPECT_NEAR(rule_of("sidco(0.01, stages=3)", 10).first_factor, std::log(4.0), 1e-15);
    EXPECT_NEAR(rule_of("sidco(0.01, stages=3)", 10).next_factor, std::log(5.0), 1e-14);
    EXPECT_EQ(rule_of("sidco(0.3, stages=3)", 10).looks, 1) << "the first stage would keep less";
}
/// One exponential fit hits Laplace data, and misses normal data by far; more stages come near.
TEST(ThresholdEstimate, Sidco_keeps_of_laplace_and_normal_numbers_what_theory_says) {
    const auto heavy = laplace();
    for (const double ratio : {0.1, 0.01, 0.001})
        for (const char* stages : {"1", "2", "4"})
            EXPECT_NEAR(share_kept("sidco(" + std::to_string(ratio) + ", " + stages + ")", heavy) / ratio, 1,
                        0.01 + 3 / std::sqrt(ratio * kMany))
                << ratio << " " << stages;
    const auto light = normal();
    EXPECT_NEAR(share_kept("sidco(0.1, 1)", light), 0.066, 0.001);
    EXPECT_NEAR(share_kept("sidco(0.01, 1)", light), 0.00023, 0.00003);
    EXPECT_EQ(sent_elements(decoded_once("sidco(0.001, 1)", light)).size(), 1U) << "none is above: the largest is sent";
    EXPECT_NEAR(share_kept("sidco(0.1, 2)", light), 0.117, 0.001);
    EXPECT_NEAR(share_kept("sidco(0.01, 4)", light), 0.0130, 0.0003);
    EXPECT_NEAR(share_kept("sidco(0.001, 5)", light), 0.00126, 0.00008);
}
/// The share of docs/codecs.md that is far off.
TEST(ThresholdEstimate, Sidco_misses_the_ratio_of_heavier_tails) {
    std::mt19937_64 random(kSeed);
    std::student_t_distribution<double> number(3);
    std::vector<float> values(kMany);
    for (float& value : values) value = static_cast<float>(number(random));
    EXPECT_NEAR(share_kept("sidco(0.1, 3)", values), 0.071, 0.002);
    EXPECT_NEAR(share_kept("sidco(0.01, 3)", values), 0.0067, 0.0004);
    EXPECT_NEAR(share_kept("sidco(0.001, 3)", values), 0.0012, 0.0002);
}
TEST(ThresholdEstimate, Gaussian_k_hits_normal_numbers_and_is_corrected_on_others) {
    const auto light = normal();
    for (const double ratio : {0.1, 0.01, 0.001})
        EXPECT_NEAR(share_kept("gaussian_k(" + std::to_string(ratio) + ")", light) / ratio, 1,
                    0.01 + 3 / std::sqrt(ratio * kMany))
            << ratio;
    // e^(-sqrt(2) z) of Laplace data is above the threshold: at 0.01 2.6 %, too many, 0.4 %, too few, 6.5 %, 1.7 %.
    const double z = 2.5758293035489004;
    const auto heavy = laplace();
    EXPECT_NEAR(share_kept("gaussian_k(0.1)", heavy), std::exp(-std::sqrt(2.0) * 1.6448536269514722), 0.001);
    EXPECT_NEAR(std::exp(-std::sqrt(2.0) * z * 1.125), 0.0166, 0.0001) << "above 4/3 of the ratio: it is cut";
    EXPECT_EQ(sent_elements(decoded_once("gaussian_k(0.01)", heavy)).size(), top_k_count(0.01, kMany) * 4 / 3);
}
TEST(ThresholdEstimate, What_is_sent_is_the_largest_of_any_vector_at_least_one_and_at_most_four_thirds_of_k) {
    for (const char* text : {"gaussian_k(0.1)", "gaussian_k(0.001)", "sidco(0.1, 1)", "sidco(0.01)", "sidco(0.001, 8)"})
        for (const Shape shape : test::all_shapes())
            for (const std::size_t elements : {1U, 2U, 31U, 4097U, 150000U}) {
                const auto values = make_values(shape, elements, elements);
                const auto decoded = decoded_once(text, values);
                const auto sent = sent_elements(decoded);
                const auto k = top_k_count(parse_pipeline(text)->selector.ratio, elements);
                ASSERT_LE(sent.size(), std::max<std::size_t>(1, k * 4 / 3)) << text;
                ASSERT_EQ(sent.empty(), shape == Shape::kZeros) << text << " " << test::shape_name(shape);
                float least_kept = INFINITY;
                float most_dropped = 0;
                for (std::size_t i = 0; i < elements; ++i) {
                    ASSERT_TRUE(decoded[i] == values[i] || decoded[i] == 0);
                    if (decoded[i] != 0) least_kept = std::min(least_kept, std::fabs(values[i]));
                    if (decoded[i] == 0) most_dropped = std::max(most_dropped, std::fabs(values[i]));
                }
                ASSERT_GE(least_kept, most_dropped) << text << " " << test::shape_name(shape) << " " << elements;
            }
}
TEST(ThresholdEstimate, Constant_tensor_is_cut_by_index) {
    const std::vector<float> values(10000, 0.5F);
    for (const char* text : {"gaussian_k(0.01)", "sidco(0.01, 1)"}) {
        const auto sent = sent_elements(decoded_once(text, values));
        ASSERT_EQ(sent.size(), 133U) << text;
        for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(sent[i], i);
    }
}
TEST(ThresholdEstimate, Mean_of_signed_values_counts) {
    // 3 + z = 4.036 keeps 15 %, too few; half of it 84 %, 3.03 49 %, too many both; 4.541 is the last.
    EXPECT_NEAR(share_kept("gaussian_k(0.3)", normal(3)), std::erfc(1.540987 / std::sqrt(2.0)) / 2, 0.001);
}
TEST(ThresholdEstimate, Numbers_near_the_largest_are_estimated_without_overflow) {
    std::vector<float> values(5000, 1.0F);
    for (std::size_t i = 0; i < values.size(); i += 10) values[i] = FLT_MAX;
    for (const char* text : {"gaussian_k(0.05)", "sidco(0.05)"}) {
        const auto sent = sent_elements(decoded_once(text, values));
        ASSERT_FALSE(sent.empty());
        ASSERT_LE(sent.size(), 333U);
        for (const ElementCount element : sent) EXPECT_EQ(element % 10, 0U);
    }
}
TEST(ThresholdEstimate, Error_feedback_contracts_at_every_step) {
    constexpr ElementCount kElements = 10000;
    for (const char* text : {"gaussian_k(0.05)", "sidco(0.05)"}) {
        std::mt19937_64 random(81);
        EncodeLoop loop(*parse_pipeline(text), kElements, 1, 0);
        for (int step = 0; step < 10; ++step) {
            const auto gradient = make_gradient(DataKind::kHeavyTailed, kElements, random);
            std::vector<float> sum(loop.residual().begin(), loop.residual().end());
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
            const auto kept = loop.step(gradient).kept_elements;
            const std::vector<float> left(loop.residual().begin(), loop.residual().end());
            EXPECT_LE(square_norm(left), (1 - static_cast<double>(kept) / kElements) * square_norm(sum) * (1 + 1e-6))
                << text << " " << step;
        }
    }
}

}  // namespace
}  // namespace gradsieve::codec
