// warmup(steps, from): ratios of the first steps; what the forms do bit for bit is compared with the reference in
// encoder_forms_test.cpp and encoder_property_test.cpp.
#include "codec/stages/warmup.hpp"

#include "codec/model_scope.hpp"
#include "codec/threshold_estimate.hpp"
#include "encoder_harness.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace gradsieve::codec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 410;

std::string canonical(const std::string& text) { return canonical_text(*parse_pipeline(text), Knobs::kKeep); }
std::string refusal(const char* text) { return parse_pipeline(text).status().text(); }

// Lin et al. 2018, section 3.3: 75 %, 93.75 %, 98.4375 %, 99.6 %, 99.9 % of the gradient are held back.
TEST(Warmup, Ratios_are_those_of_deep_gradient_compression) {
    const Pipeline pipeline = *parse_pipeline("warmup(400) | topk(0.001)");
    EXPECT_EQ(warmup_stages(pipeline), 4);
    EXPECT_THAT((std::array{ratio_at(pipeline, 1), ratio_at(pipeline, 101), ratio_at(pipeline, 201),
                            ratio_at(pipeline, 301), ratio_at(pipeline, 401)}),
                ElementsAre(0.25, 0.0625, 0.015625, 0.00390625, 0.001));
    for (Step step = 1; step <= 400; ++step) {
        ASSERT_EQ(ratio_at(pipeline, step), 0.25 * std::pow(0.25, static_cast<double>((step - 1) / 100))) << step;
        ASSERT_GE(ratio_at(pipeline, step), ratio_at(pipeline, step + 1)) << step;
    }
    EXPECT_EQ(ratio_at(pipeline, Step{1} << 60U), 0.001);
    EXPECT_EQ(ratio_at(pipeline, 0), 0.25);
}
TEST(Warmup, Its_last_stage_is_not_the_selectors_own_ratio) {
    const Pipeline exact = *parse_pipeline("warmup(10, from=1) | topk(0.25)");
    EXPECT_EQ(warmup_stages(exact), 1);
    EXPECT_EQ(ratio_at(exact, 10), 1);
    EXPECT_EQ(ratio_at(exact, 11), 0.25);
    const Pipeline least = *parse_pipeline("warmup(1, from=0.2500001) | topk(0.25)");
    EXPECT_EQ(ratio_at(least, 1), 0.2500001);
    EXPECT_EQ(ratio_at(least, 2), 0.25);
}
TEST(Warmup, Fewer_steps_than_stages_leave_some_out) {
    const Pipeline pipeline = *parse_pipeline("warmup(2, from=1) | topk(0.001)");
    EXPECT_EQ(warmup_stages(pipeline), 5);
    EXPECT_EQ(ratio_at(pipeline, 1), 1);
    EXPECT_EQ(ratio_at(pipeline, 2), 0.0625);
    EXPECT_EQ(ratio_at(pipeline, 3), 0.001);
}
TEST(Warmup, Each_selector_sends_its_share_of_the_step) {
    constexpr ElementCount kElements = 40'960;
    for (const std::string selector : {"topk(0.01)", "block_topk(0.01)", "gaussian_k(0.01)", "sidco(0.01)",
                                       "randk(0.01)", "randk(0.01, none)", "adaptive_random(0.01)"}) {
        EncodeLoop loop(*parse_pipeline("warmup(6) | " + selector + " | f32"), kElements, 1, 0);
        loop.set_selection_seed(kSeed);
        std::mt19937_64 random(kSeed);
        for (int step = 1; step <= 9; ++step) {
            const auto result = loop.step(make_gradient(DataKind::kGaussian, kElements, random));
            const double ratio = step <= 2 ? 0.25 : step <= 4 ? 0.0625 : step <= 6 ? 0.015625 : 0.01;
            const double wanted = ratio * kElements;
            const auto kept = static_cast<double>(result.kept_elements);
            SCOPED_TRACE(selector + " step " + std::to_string(step) + ", seed " + std::to_string(kSeed));
            EXPECT_LE(kept, 1.34 * wanted);
            // Estimates are of noise, which what waits is not; a draw may meet an element twice.
            if (is_estimated(parse_pipeline(selector)->selector)) continue;
            EXPECT_GE(kept, (selector.starts_with("adaptive") ? 0.5 : 1) * wanted - 11);
        }
    }
}
/// A step of a warm-up is that of the same codec with the step's ratio, in bytes and in state.
TEST(Warmup, Steps_are_those_of_a_codec_with_their_ratio) {
    for (const std::string stages : {"topk(%) | pow2", "randk(%) | natural", "momentum | topk(%) | f32"}) {
        const auto with = [&](const std::string& ratio) {
            auto text = stages;
            return text.replace(text.find('%'), 1, ratio);
        };
        auto text = with("0.02");
        const std::size_t at = text.starts_with("momentum") ? text.find("topk") : 0;
        EncodeLoop loop(*parse_pipeline(text.insert(at, "warmup(2, from=0.2) | ")), 3000, 1, 0);
        std::mt19937_64 random(kSeed);
        const auto gradient = make_gradient(DataKind::kHeavyTailed, 3000, random);
        EncodeLoop first(*parse_pipeline(with("0.2")), 3000, 1, 0);
        for (auto* each : {&loop, &first}) {
            each->set_random_seed(kSeed);
            each->set_selection_seed(kSeed);
        }
        const auto warm = loop.step(gradient);
        const auto plain = first.step(gradient);
        ASSERT_EQ(warm.chunks.size(), plain.chunks.size());
        for (std::size_t chunk = 0; chunk < warm.chunks.size(); ++chunk)
            EXPECT_TRUE(std::ranges::equal(warm.chunks[chunk].bytes.view(), plain.chunks[chunk].bytes.view())) << text;
        EXPECT_TRUE(std::ranges::equal(loop.residual(), first.residual())) << text;
    }
}
TEST(Warmup, What_is_not_sent_waits_as_ever) {
    EncodeLoop loop(*parse_pipeline("warmup(4) | topk(0.01) | pow2"), 5000, 1, 0);
    std::vector<double> balance(5000);
    std::mt19937_64 random(kSeed);
    for (int step = 0; step < 8; ++step) {
        const auto gradient = make_gradient(DataKind::kGaussian, 5000, random);
        const auto decoded = decode_payloads(loop.step(gradient).chunks, 5000);
        for (ElementCount element = 0; element < 5000; ++element) {
            balance[element] += static_cast<double>(decoded[element]) - static_cast<double>(gradient[element]);
            ASSERT_NEAR(balance[element] + static_cast<double>(loop.residual()[element]), 0, 1e-4)
                << step << ", seed " << kSeed;
        }
    }
}
TEST(Warmup, Lists_have_room_for_the_largest_ratio) {
    const Pipeline plain = *parse_pipeline("topk(0.01, scope=model)");
    const Pipeline warm = *parse_pipeline("warmup(10, from=0.5) | topk(0.01, scope=model)");
    EXPECT_EQ(largest_ratio(plain), 0.01);
    EXPECT_EQ(largest_ratio(warm), 0.5);
    EXPECT_GT(scope_bytes(warm, 2, 100'000), scope_bytes(plain, 2, 100'000) + 2 * 40'000 * sizeof(float));
    EXPECT_EQ(settled_pipeline(warm), plain);
    EXPECT_EQ(warmed_pipeline(warm, 11), plain);
}

TEST(Warmup, Text_says_what_it_means) {
    EXPECT_EQ(canonical("warmup(500) | topk(0.001)"),
              "warmup(steps=500, from=0.25) | topk(ratio=0.001, scope=tensor, gate=0) | f32 | auto");
    EXPECT_EQ(canonical("momentum | warmup(9, 0.5) | delta | topk(0.1)"),
              "momentum(m=0.9, nesterov=no, clip=none) | warmup(steps=9, from=0.5) | delta | topk(ratio=0.1, "
              "scope=tensor, gate=0) | f32 | auto");
    EXPECT_THAT(refusal("warmup(9) | accumulate(2) | topk(0.1)"), HasSubstr("accumulate, warmup, delta"));
}
TEST(Warmup, Refused_is_what_has_no_ratio_to_fall_to) {
    for (const char* text : {"warmup(9) | all | sign", "warmup(9) | variance", "warmup(9) | threshold(1)",
                             "warmup(9) | bernoulli(0.1)", "warmup(9) | lowrank(2)", "warmup(9) | sketch(0.01)"})
        EXPECT_THAT(refusal(text), HasSubstr("allowed is topk, block_topk, gaussian_k, sidco, randk")) << text;
    EXPECT_THAT(refusal("warmup(9, from=0.1) | topk(0.1)"), HasSubstr("more than the selector's ratio of 0.1"));
    EXPECT_THAT(refusal("warmup | topk(0.1)"), HasSubstr("steps 'missing'"));
    for (const char* text : {"warmup(0) | topk(0.1)", "warmup(1.5) | topk(0.1)", "warmup(2e9) | topk(0.1)"})
        EXPECT_THAT(refusal(text), HasSubstr("a whole number in [1, 1e9]")) << text;
    for (const char* text : {"warmup(9, 0) | topk(0.1)", "warmup(9, 1.5) | topk(0.1)"})
        EXPECT_THAT(refusal(text), HasSubstr("(0, 1]")) << text;
}

}  // namespace
}  // namespace gradsieve::codec
