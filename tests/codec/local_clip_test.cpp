// Local clipping in front of momentum, momentum(clip=x), against its definition in double; that every form has the
// reference's bits with it is EncoderForms' and EncoderProperty's, conservation over many steps EncoderConservation's.
#include "codec/local_clip.hpp"
#include "encoder_harness.hpp"

#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>
#include <limits>

namespace gradsieve::codec {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 131;
/// Several tiles, the last one short.
constexpr ElementCount kElements = 3 * kTileElements + 1237;

double norm_of(std::span<const float> values) {
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value) * value;
    return std::sqrt(sum);
}

std::vector<float> gaussian(std::uint64_t seed, float scale = 1) {
    std::mt19937_64 random(seed);
    auto values = make_gradient(DataKind::kGaussian, kElements, random);
    for (float& value : values) value *= scale;
    return values;
}

/// One step from zero, where u is what entered it.
FormOutput first_step(const std::string& codec, std::vector<std::vector<float>> samples, std::vector<float> weights,
                      CpuForm form, std::uint32_t node_count = 1) {
    auto input = make_input(*parse_pipeline(codec), kElements, samples.size(), DataKind::kZero, kSeed);
    input.samples = std::move(samples);
    input.weights = std::move(weights);
    input.node_count = node_count;
    EncodeWorkspace workspace;
    return run_form(input, zero_state(input), form, workspace);
}

TEST(LocalClip, Factor_leaves_what_is_within_the_threshold_times_the_root_of_nodes) {
    EXPECT_EQ(clip_factor(2, 1, 0), 1.0F);
    EXPECT_EQ(clip_factor(2, 1, 4), 1.0F) << "the bound itself";
    EXPECT_EQ(clip_factor(2, 1, 16), 0.5F);
    EXPECT_EQ(clip_factor(2, 4, 16), 1.0F);
    EXPECT_EQ(clip_factor(2, 4, 64), 0.5F);
    EXPECT_EQ(clip_factor(1, 9, 144), 0.25F);
}
TEST(LocalClip, Factor_of_a_norm_that_is_not_finite_is_one) {
    EXPECT_EQ(clip_factor(2, 1, std::numeric_limits<double>::infinity()), 1.0F);
    EXPECT_EQ(clip_factor(2, 1, std::numeric_limits<double>::quiet_NaN()), 1.0F);
}
TEST(LocalClip, Small_gradient_is_left_alone_bit_for_bit) {
    for (const std::string rest : {"topk(0.05)", "threshold(0.5) | pow2", "block_topk(0.1) | dither", "all | sign"})
        for (const CpuForm form : supported_forms()) {
            auto input = make_input(*parse_pipeline("momentum(0.9) | " + rest), kElements, 3, DataKind::kGaussian, 7);
            EncodeWorkspace workspace;
            const auto before = run_form(input, zero_state(input), form, workspace).state;
            const auto plain = run_form(input, before, form, workspace);
            input.pipeline = *parse_pipeline("momentum(0.9, clip=200) | " + rest);  // the norm is about 67
            const auto clipped = run_form(input, before, form, workspace);
            EXPECT_TRUE(same_bits(clipped.state.momentum, plain.state.momentum)) << rest;
            EXPECT_TRUE(same_bits(clipped.state.residual, plain.state.residual)) << rest;
            ASSERT_EQ(clipped.result.chunks.size(), plain.result.chunks.size()) << rest;
            for (std::size_t chunk = 0; chunk < plain.result.chunks.size(); ++chunk)
                EXPECT_EQ(clipped.result.chunks[chunk].bytes, plain.result.chunks[chunk].bytes) << rest;
        }
}
TEST(LocalClip, Large_gradient_has_the_norm_that_is_allowed_and_its_direction) {
    const auto gradient = gaussian(kSeed, 100);
    const double norm = norm_of(gradient);
    for (const double clip : {0.001, 1.0, 7.5, 1000.0})
        for (const std::uint32_t node_count : {1U, 2U, 3U, 100U})
            for (const CpuForm form : supported_forms()) {
                const auto codec = "momentum(0.9, clip=" + std::to_string(clip) + ") | all";
                const auto u = first_step(codec, {gradient}, {1}, form, node_count).state.momentum;
                const double most = clip * std::sqrt(node_count);
                EXPECT_NEAR(norm_of(u), most, most * 0x1p-22) << "seed " << kSeed;
                for (ElementCount element = 0; element < kElements; ++element)
                    ASSERT_NEAR(u[element], gradient[element] * (most / norm), std::fabs(u[element]) * 0x1p-22);
            }
}
TEST(LocalClip, Four_nodes_double_the_threshold) {
    const auto gradient = gaussian(kSeed, 100);
    for (const CpuForm form : supported_forms()) {
        const auto alone = first_step("momentum(clip=3) | all", {gradient}, {1}, form, 1).state.momentum;
        auto of_four = first_step("momentum(clip=3) | all", {gradient}, {1}, form, 4).state.momentum;
        for (float& value : of_four) value /= 2;
        EXPECT_TRUE(same_bits(of_four, alone));
    }
}
TEST(LocalClip, Independent_gradients_of_all_nodes_average_to_the_threshold) {
    for (const std::uint32_t node_count : {4U, 9U}) {
        std::vector<float> sum(kElements, 0.0F);
        for (std::uint32_t node = 0; node < node_count; ++node) {
            const auto u =
                first_step("momentum(clip=6) | all", {gaussian(kSeed + node)}, {1}, fastest_cpu_form(), node_count)
                    .state.momentum;
            for (ElementCount i = 0; i < kElements; ++i) sum[i] += u[i] / static_cast<float>(node_count);
        }
        // Cosines between the nodes' gradients are about 1 / sqrt(n) = 0.009.
        EXPECT_NEAR(norm_of(sum), 6, 0.3) << node_count << " nodes, seed " << kSeed;
    }
}
TEST(LocalClip, Norm_is_that_of_the_weighted_mean_of_samples) {
    const std::vector<float> weights = {0.5F, 0.3F, 0.2F};
    const std::vector<std::vector<float>> samples = {gaussian(1, 10), gaussian(2, 20), gaussian(3, 5)};
    std::vector<float> mean(kElements, 0.0F);
    for (std::size_t sample = 0; sample < samples.size(); ++sample)
        for (ElementCount i = 0; i < kElements; ++i) mean[i] += weights[sample] * samples[sample][i];
    for (const CpuForm form : supported_forms()) {
        const auto u = first_step("momentum(clip=2) | all", samples, weights, form).state.momentum;
        EXPECT_NEAR(norm_of(u), 2, 2 * 0x1p-21);
        const double factor = 2 / norm_of(mean);
        for (ElementCount i = 0; i < kElements; ++i) ASSERT_NEAR(u[i], factor * mean[i], 1e-6) << i;
    }
}
TEST(LocalClip, Samples_that_cancel_out_are_not_clipped) {
    auto forth = gaussian(1, 1000);
    auto back = forth;
    for (float& value : back) value = -value;
    forth[5] = back[5] = 0.75F;
    for (const CpuForm form : supported_forms()) {
        const auto u = first_step("momentum(clip=1) | all", {forth, back}, {0.5F, 0.5F}, form).state.momentum;
        EXPECT_EQ(u[5], 0.75F);
        EXPECT_EQ(norm_of(u), 0.75);
    }
}
TEST(LocalClip, Zeros_stay_zeros) {
    for (const CpuForm form : supported_forms()) {
        const auto output = first_step("momentum(clip=1) | topk(0.1)", {std::vector<float>(kElements)}, {1}, form);
        EXPECT_TRUE(same_bits(output.state.momentum, std::vector<float>(kElements)));
        EXPECT_EQ(output.result.kept_elements, 0U);
    }
}
// What is sent, and what stays, is what the gradients times their factors come to.
TEST(LocalClip, Many_steps_agree_with_a_shadow_in_double) {
    constexpr double kClip = 20;
    for (const char* text : {"momentum(0.9, clip=20) | topk(0.05)", "momentum(0.9, yes, 20) | threshold(0.5) | pow2",
                             "momentum(0.9, clip=20) | compensate(gamma=0.5) | block_topk(0.1, block=64)"}) {
        const Pipeline pipeline = *parse_pipeline(text);
        EncodeLoop loop(pipeline, kElements, 1, 0);
        loop.set_node_count(2);
        std::vector<double> u(kElements, 0.0);
        std::vector<double> owed(kElements, 0.0);
        int clipped = 0;
        for (int step = 0; step < 60; ++step) {
            const auto gradient = gaussian(kSeed + step, step % 3 == 0 ? 0.1F : 1 + 0.5F * static_cast<float>(step));
            const double factor = std::min(1.0, kClip * std::sqrt(2.0) / norm_of(gradient));
            clipped += factor < 1 ? 1 : 0;
            const auto sent = decode_payloads(loop.step(gradient).chunks, kElements);
            for (ElementCount i = 0; i < kElements; ++i) {
                const double own = factor * gradient[i];
                u[i] = 0.9 * u[i] + own;
                owed[i] += pipeline.front.gamma * (pipeline.front.is_nesterov ? 0.9 * u[i] + own : u[i]) - sent[i];
                if (sent[i] != 0) u[i] = 0;
                ASSERT_NEAR(loop.residual()[i], owed[i], 2e-5) << text << " step " << step << ", seed " << kSeed;
                ASSERT_NEAR(loop.momentum()[i], u[i], 1e-5) << text << " step " << step << ", seed " << kSeed;
            }
        }
        EXPECT_EQ(clipped, 40) << text;
    }
}
TEST(LocalClip, What_is_not_finite_is_reported_as_without_it) {
    auto spoiled = std::vector<std::vector<float>>{gaussian(1), gaussian(2), gaussian(3)};
    spoiled[2][kTileElements + 5] = NAN;
    spoiled[1][kTileElements + 5] = -INFINITY;
    spoiled[0][kTileElements + 6] = INFINITY;
    auto overflowing = std::vector<std::vector<float>>{gaussian(1), gaussian(2), gaussian(3)};
    for (auto& sample : overflowing) sample[9000] = FLT_MAX;
    for (const auto& samples : {spoiled, overflowing})
        for (const std::string rest : {"topk(0.1)", "all | sign", "threshold(1)", "sidco(0.1)"})
            for (const CpuForm form : supported_forms()) {
                const std::vector<float> weights = {0.5F, 0.5F, 0.5F};
                const auto plain = first_step("momentum | " + rest, samples, weights, form).result.non_finite;
                const auto found = first_step("momentum(clip=1) | " + rest, samples, weights, form).result.non_finite;
                ASSERT_TRUE(plain && found) << rest;
                EXPECT_EQ(found->element, plain->element) << rest;
                EXPECT_EQ(found->sample_index, plain->sample_index) << rest;
            }
}
// Unclipped, element 10 would be too large as well.
TEST(LocalClip, What_is_too_large_in_spite_of_it_is_found_where_it_is) {
    auto input = make_input(*parse_pipeline("momentum(0.9, clip=1) | threshold(1)"), 100, 1, DataKind::kZero, kSeed);
    input.rescale = 2;
    input.samples[0][10] = FLT_MAX / 2;
    auto state = zero_state(input);
    state.momentum[10] = FLT_MAX / 2;
    state.momentum[20] = FLT_MAX;
    for (const CpuForm form : supported_forms()) {
        EncodeWorkspace workspace;
        const auto found = run_form(input, state, form, workspace).result.non_finite;
        ASSERT_TRUE(found);
        EXPECT_EQ(found->element, 20U);
        EXPECT_EQ(found->sample_index, 0U);
    }
}
TEST(LocalClip, Its_text_has_one_spelling_and_a_range) {
    const auto canonical = [](const char* text) { return canonical_text(*parse_pipeline(text), Knobs::kKeep); };
    EXPECT_EQ(canonical("momentum(clip=2.5) | all"), "momentum(m=0.9, nesterov=no, clip=2.5) | all | f32 | auto");
    EXPECT_EQ(canonical("momentum(0.5, yes, 1e3) | all"),
              "momentum(m=0.5, nesterov=yes, clip=1000) | all | f32 | auto");
    EXPECT_EQ(canonical("momentum(clip=none) | all"), canonical("momentum | all"));
    for (const char* text : {"momentum(clip=0.1) | topk(0.1)", "momentum(0.99, yes, 1e-9) | all | sign"})
        EXPECT_EQ(*parse_pipeline(canonical(text)), *parse_pipeline(text)) << text;
    // Every node has to clip alike, so that it is part of what nodes agree on.
    EXPECT_THAT(canonical_text(*parse_pipeline("momentum(clip=2) | topk(0.1)"), Knobs::kBlank), HasSubstr("clip=2)"));
    for (const char* value : {"0", "-1", "nan", "1e-10", "2e9", "nothing"})
        EXPECT_THAT(parse_pipeline("momentum(clip=" + std::string(value) + ") | all").status().text(),
                    HasSubstr("none or [1e-9, 1e9]"))
            << value;
}

}  // namespace
}  // namespace gradsieve::codec
