// What is special about the variance rule: bounds that follow from Cauchy-Schwarz, invariances, the providers' formulas
// against each other, and the hybrid's bookkeeping.
#include "encoder_harness.hpp"

#include <cfloat>
#include <cmath>

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kSeed = 63;

Pipeline undecayed(double alpha, QuantizerKind quantizer = QuantizerKind::kF32) {
    Pipeline pipeline = variance_pipeline(alpha, quantizer);
    pipeline.selector.zeta = 1.0;
    return pipeline;
}

/// v after one step from zero where nothing was sent: the increment itself.
std::vector<float> increments(const reference::Input& input) {
    EncodeWorkspace workspace;
    return run_form(input, zero_state(input), fastest_cpu_form(), workspace).state.variance;
}

reference::Input unsent_input(ElementCount elements, std::size_t samples, std::uint64_t batch, bool may_pool = false) {
    auto input = make_input(undecayed(1e20), elements, samples, DataKind::kGaussian, kSeed);
    input.batch_samples = batch;
    input.may_pool = may_pool;
    return input;
}

TEST(VarianceSpecials, One_gradient_a_step_sends_nothing_up_to_step_alpha) {
    for (const double alpha : {1.0, 2.0, 3.5}) {
        std::mt19937_64 random(kSeed);
        EncodeLoop loop(undecayed(alpha), 20000, 1, 0);
        for (int step = 1; step <= static_cast<int>(alpha); ++step) {
            EXPECT_EQ(loop.step(make_gradient(DataKind::kGaussian, 20000, random)).kept_elements, 0U)
                << "alpha " << alpha << " step " << step;
        }
        EXPECT_GT(loop.step(make_gradient(DataKind::kGaussian, 20000, random)).kept_elements, 0U) << "alpha " << alpha;
    }
}
TEST(VarianceSpecials, Identical_samples_go_at_once_only_above_alpha) {
    constexpr std::uint64_t kBatch = 4;
    const std::vector<float> gradient(100, 0.75F);
    const std::vector<float> moment(100, kBatch * 0.75F * 0.75F);
    const std::array<const float*, 1> samples = {gradient.data()};
    const std::array<const float*, 1> moments = {moment.data()};
    EncodeLoop sends(undecayed(3.99), 100, 1, kBatch);
    EXPECT_EQ(sends.step(samples, moments).kept_elements, 100U);
    EncodeLoop waits(undecayed(4.0), 100, 1, kBatch);
    EXPECT_EQ(waits.step(samples, moments).kept_elements, 0U) << "the test is strict";
}
TEST(VarianceSpecials, Powers_of_two_scale_state_and_leave_the_mask) {
    for (const std::size_t samples : {1U, 4U}) {
        EncodeLoop plain(variance_pipeline(1.0, QuantizerKind::kF32), 3000, samples, 64);
        EncodeLoop scaled(variance_pipeline(1.0, QuantizerKind::kF32), 3000, samples, 64);
        constexpr float kScale = 0x1p-9F;
        for (std::uint64_t step = 0; step < 6; ++step) {
            auto input = make_input(all_pipeline(QuantizerKind::kF32), 3000, samples, DataKind::kGaussian, step);
            std::vector<const float*> pointers;
            for (const auto& sample : input.samples) pointers.push_back(sample.data());
            const auto expected = decode_payloads(plain.step(pointers).chunks, 3000);
            for (auto& sample : input.samples) {
                for (float& value : sample) value *= kScale;
            }
            const auto decoded = decode_payloads(scaled.step(pointers).chunks, 3000);
            ASSERT_EQ(sent_elements(decoded), sent_elements(expected));
            for (ElementCount element = 0; element < 3000; ++element) {
                ASSERT_EQ(decoded[element], kScale * expected[element]);
                ASSERT_EQ(scaled.residual()[element], kScale * plain.residual()[element]);
                ASSERT_EQ(scaled.variance()[element], kScale * kScale * plain.variance()[element]);
            }
        }
    }
}
TEST(VarianceSpecials, A_change_of_the_loss_scale_changes_no_mask) {
    EncodeLoop steady(variance_pipeline(1.0, QuantizerKind::kF32), 3000, 1, 0);
    EncodeLoop changing(variance_pipeline(1.0, QuantizerKind::kF32), 3000, 1, 0);
    std::mt19937_64 random(kSeed);
    float scale = 1;
    ElementCount sent = 0;
    for (int step = 0; step < 12; ++step) {
        const float change = step % 4 == 3 ? 0x1p-3F : 1.0F;
        scale *= change;
        changing.set_rescale(change);
        auto gradient = make_gradient(DataKind::kGaussian, 3000, random);
        const auto expected = sent_elements(decode_payloads(steady.step(gradient).chunks, 3000));
        for (float& value : gradient) value *= scale;
        ASSERT_EQ(sent_elements(decode_payloads(changing.step(gradient).chunks, 3000)), expected) << "step " << step;
        sent += expected.size();
    }
    EXPECT_GT(sent, 300U);
}
TEST(VarianceSpecials, Opposite_gradients_flip_signs_only) {
    for (const NamedPipeline& named : every_pipeline()) {
        // gaussian_k's threshold follows the mean of the signed values, so that it leans to one side.
        const SelectorKind selector = named.pipeline.selector.kind;
        if (selector == SelectorKind::kAll || selector == SelectorKind::kGaussianK) continue;
        EncodeLoop plain(named.pipeline, 2000, 1, 0);
        EncodeLoop opposite(named.pipeline, 2000, 1, 0);
        std::mt19937_64 random(kSeed);
        for (int step = 0; step < 6; ++step) {
            auto gradient = make_gradient(DataKind::kGaussian, 2000, random);
            const auto decoded = decode_payloads(plain.step(gradient).chunks, 2000);
            for (float& value : gradient) value = -value;
            const auto mirrored = decode_payloads(opposite.step(gradient).chunks, 2000);
            for (ElementCount element = 0; element < 2000; ++element) {
                ASSERT_EQ(mirrored[element], -decoded[element]) << named.name;
                if (!has_residual(named.pipeline)) continue;
                ASSERT_EQ(opposite.residual()[element], -plain.residual()[element]) << named.name;
            }
            if (!has_variance(named.pipeline)) continue;
            for (ElementCount element = 0; element < 2000; ++element) {
                ASSERT_EQ(opposite.variance()[element], plain.variance()[element]) << named.name;
            }
        }
    }
}
TEST(VarianceSpecials, Groups_of_one_sample_give_the_sum_of_squares) {
    constexpr std::size_t kBatch = 16;
    const auto input = unsent_input(500, kBatch, kBatch);
    const auto inc = increments(input);
    for (ElementCount element = 0; element < 500; ++element) {
        double sum = 0;
        for (const auto& sample : input.samples) sum += double{sample[element]} * sample[element];
        EXPECT_NEAR(inc[element] / (sum / (kBatch * kBatch)), 1.0, 1e-5);
    }
}
TEST(VarianceSpecials, Unequal_groups_are_unbiased) {
    // Three groups of 8, 16 and 40 of 64 samples with sigma^2 = 64 and mean 3: E inc = (sigma^2 + mean^2) / B.
    constexpr ElementCount kElements = 200000;
    auto input = unsent_input(kElements, 3, 64);
    input.weights = {8.0F / 64, 16.0F / 64, 40.0F / 64};
    std::mt19937_64 random(kSeed);
    for (std::size_t group = 0; group < 3; ++group) {
        std::normal_distribution<float> normal(3.0F, std::sqrt(64.0F / (64.0F * input.weights[group])));
        for (float& value : input.samples[group]) value = normal(random);
    }
    double sum = 0;
    for (const float inc : increments(input)) sum += inc;
    EXPECT_NEAR(sum / kElements, (64.0 + 9.0) / 64.0, 0.01);
}
TEST(VarianceSpecials, A_known_batch_adds_its_share_of_the_mean) {
    auto input = unsent_input(100, 4, 0);
    const auto unknown = increments(input);
    input.batch_samples = 32;
    const auto known = increments(input);
    for (ElementCount element = 0; element < 100; ++element) {
        double mean = 0;
        for (const auto& sample : input.samples) mean += 0.25 * sample[element];
        const double expected = unknown[element] * (1 - 1.0 / 32) + mean * mean / 32;
        EXPECT_NEAR(known[element] / expected, 1.0, 1e-5);
    }
}
TEST(VarianceSpecials, Pooling_averages_aligned_groups_and_a_short_last_one) {
    constexpr ElementCount kElements = 77;
    const auto own = increments(unsent_input(kElements, 2, 0));
    const auto pooled = increments(unsent_input(kElements, 2, 0, true));
    for (ElementCount first = 0; first < kElements; first += 32) {
        const ElementCount count = std::min<ElementCount>(32, kElements - first);
        double sum = 0;
        for (ElementCount element = first; element < first + count; ++element) sum += own[element];
        for (ElementCount element = first; element < first + count; ++element) {
            EXPECT_NEAR(pooled[element] / (sum / static_cast<double>(count)), 1.0, 1e-5) << element;
        }
    }
}
TEST(VarianceSpecials, Source_follows_what_is_handed_in) {
    EncodeWorkspace workspace;
    const auto source = [&](std::size_t samples, bool has_moments, std::vector<float> weights) {
        auto input = unsent_input(40, samples, 64, true);
        if (!weights.empty()) input.weights = std::move(weights);
        if (has_moments) input.second_moments.assign(1, std::vector<float>(40, 1.0F));
        return run_form(input, zero_state(input), CpuForm::kScalar, workspace).result.variance_source;
    };
    EXPECT_EQ(source(1, false, {}), VarianceSource::kSingle);
    EXPECT_EQ(source(2, false, {}), VarianceSource::kGroupsPooled);
    EXPECT_EQ(source(7, false, {}), VarianceSource::kGroupsPooled);
    EXPECT_EQ(source(8, false, {}), VarianceSource::kGroups);
    EXPECT_EQ(source(8, true, {}), VarianceSource::kSecondMoment);
    EXPECT_EQ(source(2, false, {1.0F, 0.0F}), VarianceSource::kSingle) << "weight 0 observes nothing";
    EXPECT_EQ(variance_source_name(VarianceSource::kGroupsPooled), "groups, pooled");
}
TEST(VarianceSpecials, Alpha_zero_sends_all_that_is_not_zero) {
    EncodeLoop loop(variance_pipeline(0.0, QuantizerKind::kF32), 4, 1, 0);
    const auto decoded = decode_payloads(loop.step({0.0F, -0.0F, 1e-3F, -5.0F}).chunks, 4);
    EXPECT_EQ(decoded, (std::vector<float>{0.0F, 0.0F, 1e-3F, -5.0F}));
}
TEST(VarianceSpecials, A_step_is_not_repeated_and_v_decays_where_nothing_is_sent) {
    Pipeline pipeline = variance_pipeline(1.0, QuantizerKind::kF32);
    pipeline.selector.zeta = 0.5;
    EncodeLoop loop(pipeline, 1, 1, 0);
    EXPECT_EQ(loop.step({2.0F}).kept_elements, 0U) << "4 > 4 is false";
    EXPECT_EQ(loop.variance()[0], 2.0F) << "0.5 * 4";
    const EncodeResult result = loop.step({1.0F});
    EXPECT_EQ(decode_payloads(result.chunks, 1)[0], 3.0F) << "9 > 3";
    EXPECT_EQ(loop.residual()[0], 0.0F);
    EXPECT_EQ(loop.variance()[0], 0.0F) << "reset on send, no decay";
}
TEST(VarianceSpecials, Huge_gradients_are_sent_instead_of_starving) {
    EncodeLoop loop(variance_pipeline(4.0, QuantizerKind::kF32), 3, 1, 0);
    const std::vector<float> gradient = {FLT_MAX / 2, -1e30F, 1e18F};
    EXPECT_EQ(sent_elements(decode_payloads(loop.step(gradient).chunks, 3)), (std::vector<ElementCount>{0, 1}));
    EXPECT_TRUE(std::isfinite(loop.variance()[2]));
}

struct HybridStep {
    float residual;
    float variance;
};
/// One hybrid step with tau 0.5, alpha 1, no decay and gradient 0, from a given state.
HybridStep hybrid_step(float residual, float variance) {
    Pipeline pipeline = hybrid_pipeline(1.0, 0.5);
    pipeline.selector.zeta = 1.0;
    const auto input = make_input(pipeline, 1, 1, DataKind::kZero, kSeed);
    EncodeWorkspace workspace;
    const auto output = run_form(input, {{residual}, {variance}}, fastest_cpu_form(), workspace);
    return {output.state.residual[0], output.state.variance[0]};
}

TEST(VarianceSpecials, A_hybrid_send_keeps_r_squared_minus_v) {
    for (const float sign : {1.0F, -1.0F}) {
        const HybridStep after = hybrid_step(sign * 1.25F, 1.25F);
        EXPECT_EQ(after.residual, sign * 0.75F) << "|r| shrinks by tau";
        EXPECT_EQ(after.variance, 0.25F) << "1.25 - 2 * 1.25 * 0.5 + 0.25";
        EXPECT_EQ(0.75F * 0.75F - after.variance, 1.25F * 1.25F - 1.25F);
    }
}
TEST(VarianceSpecials, A_hybrid_clamps_v_at_zero) {
    const HybridStep after = hybrid_step(3.0F, 1.0F);
    EXPECT_EQ(after.residual, 2.5F);
    EXPECT_EQ(after.variance, 0.0F);
}
TEST(VarianceSpecials, A_hybrid_needs_both_tests) {
    EXPECT_EQ(hybrid_step(0.5F, 0.0F).residual, 0.5F) << "|r| > tau is strict";
    EXPECT_EQ(hybrid_step(1.0F, 1.0F).residual, 1.0F) << "r^2 > v is strict";
    EXPECT_EQ(hybrid_step(1.0F, 0.99F).residual, 0.5F);
}

}  // namespace
}  // namespace gradsieve::codec
