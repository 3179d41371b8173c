// Strom's threshold: which elements it sends, what it leaves of them, and that it needs no gradient of any scale to
// lose nothing. Equality with the reference, conservation and the rest are in the suites of every pipeline.
#include "encoder_harness.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

std::vector<float> decoded_step(EncodeLoop& loop, const std::vector<float>& gradient) {
    return decode_payloads(loop.step(gradient).chunks, gradient.size());
}

TEST(Threshold, Only_magnitudes_above_tau_are_sent) {
    const float above = std::nextafter(0.25F, 1.0F);
    EncodeLoop exact(threshold_pipeline(0.25, QuantizerKind::kF32), 7, 1, 0);
    const std::vector<float> gradient = {0.25F, -0.25F, above, -above, 0.0F, -3.0F, 1e-40F};
    EXPECT_EQ(decoded_step(exact, gradient), (std::vector<float>{0, 0, above, -above, 0, -3, 0}));
    EXPECT_TRUE(std::ranges::equal(exact.residual(), std::vector<float>{0.25F, -0.25F, 0, 0, 0, 0, 1e-40F}));
}
TEST(Threshold, Strom_s_form_moves_one_tau_a_step_and_keeps_the_rest) {
    EncodeLoop loop(*parse_pipeline("threshold(0.25)"), 3, 1, 0);
    EXPECT_EQ(decoded_step(loop, {0.875F, -0.5F, 0.125F}), (std::vector<float>{0.25F, -0.25F, 0}));
    EXPECT_TRUE(std::ranges::equal(loop.residual(), std::vector<float>{0.625F, -0.25F, 0.125F}));
    EXPECT_EQ(decoded_step(loop, {0, 0, 0.25F}), (std::vector<float>{0.25F, 0, 0.25F})) << "-0.25 is not above tau";
    EXPECT_TRUE(std::ranges::equal(loop.residual(), std::vector<float>{0.375F, -0.25F, 0.125F}));
}
TEST(Threshold, A_gradient_that_stays_above_tau_is_sent_late_but_whole) {
    constexpr int kSteps = 40;
    EncodeLoop loop(threshold_pipeline(0.25, QuantizerKind::kSign), 1, 1, 0);
    double sent = 0;
    for (int step = 0; step < kSteps; ++step) sent += double{decoded_step(loop, {0.75F})[0]};
    EXPECT_EQ(sent, kSteps * 0.25) << "one quantum a step";
    EXPECT_EQ(sent + loop.residual()[0], kSteps * 0.75);
    int last = 0;
    for (; loop.residual()[0] > 0.25F; ++last) sent += double{decoded_step(loop, {0.0F})[0]};
    EXPECT_EQ(last, 2 * kSteps - 1);
    EXPECT_EQ(sent + loop.residual()[0], kSteps * 0.75);
}
TEST(Threshold, Powers_of_two_scale_state_and_selection_alike) {
    std::mt19937_64 random(71);
    EncodeLoop plain(threshold_pipeline(0.5, QuantizerKind::kBf16), 3000, 1, 0);
    EncodeLoop scaled(threshold_pipeline(0.5 * 0x1p-20, QuantizerKind::kBf16), 3000, 1, 0);
    for (int step = 0; step < 10; ++step) {
        auto gradient = make_gradient(DataKind::kGaussian, 3000, random);
        const auto sent = sent_elements(decoded_step(plain, gradient));
        for (float& value : gradient) value *= 0x1p-20F;
        EXPECT_EQ(sent_elements(decoded_step(scaled, gradient)), sent) << "step " << step;
        EXPECT_GT(sent.size(), 1000U);
    }
}
TEST(Threshold, What_stays_is_never_above_tau_where_values_are_sent_exactly) {
    std::mt19937_64 random(72);
    EncodeLoop loop(threshold_pipeline(0.5, QuantizerKind::kF32), 2000, 1, 0);
    for (int step = 0; step < 10; ++step) {
        static_cast<void>(loop.step(make_gradient(DataKind::kHeavyTailed, 2000, random)));
        for (const float left : loop.residual()) ASSERT_LE(std::fabs(left), 0.5F);
    }
}

}  // namespace
}  // namespace gradsieve::codec
