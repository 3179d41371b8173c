// beta and gamma of the error compensation against their definition, p = beta e + gamma g and e = p - dec(C(p)), in
// closed forms and a shadow in double; what the forms do bit for bit is compared with the reference in
// encoder_forms_test.cpp and encoder_property_test.cpp.
#include "encoder_harness.hpp"

#include <gmock/gmock.h>

#include <algorithm>

namespace gradsieve::codec {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 118;

std::string canonical(const std::string& text) { return canonical_text(*parse_pipeline(text), Knobs::kKeep); }
std::string refusal(const char* text) { return parse_pipeline(text).status().text(); }

// p = 4, 6, 7, 15/2: each half of the one before and 4.
TEST(Compensate, A_constant_gradient_comes_near_gamma_over_1_minus_beta) {
    EncodeLoop loop(*parse_pipeline("compensate(0.5, 4) | threshold(7.25) | f32"), 1, 1, 0);
    std::vector<float> sent;
    for (int step = 0; step < 5; ++step) sent.push_back(decode_payloads(loop.step({1.0F}).chunks, 1)[0]);
    EXPECT_EQ(sent, (std::vector<float>{0, 0, 0, 7.5F, 0}));
    EXPECT_EQ(loop.residual()[0], 4.0F);
}
TEST(Compensate, What_quantization_loses_fades_too) {
    EncodeLoop loop(*parse_pipeline("compensate(0.5) | threshold(5) | sign(scale=4)"), 1, 1, 0);
    static_cast<void>(loop.step({6.0F}));
    EXPECT_EQ(loop.residual()[0], 2.0F);
    static_cast<void>(loop.step({0.0F}));
    EXPECT_EQ(loop.residual()[0], 1.0F);
}
TEST(Compensate, Beta_0_forgets_what_was_not_sent) {
    std::mt19937_64 random(kSeed);
    EncodeLoop loop(*parse_pipeline("compensate(0) | topk(0.1)"), 1000, 1, 0);
    for (int step = 0; step < 5; ++step) {
        const auto gradient = make_gradient(DataKind::kGaussian, 1000, random);
        const auto sent = decode_payloads(loop.step(gradient).chunks, 1000);
        for (ElementCount element = 0; element < sent.size(); ++element)
            ASSERT_TRUE(sent[element] == 0 || sent[element] == gradient[element]) << "seed " << kSeed;
    }
}
TEST(Compensate, Gamma_also_scales_what_keeps_no_residual) {
    EncodeLoop loop(*parse_pipeline("compensate(gamma=0.25) | all"), 2, 1, 0);
    EXPECT_EQ(decode_payloads(loop.step({8.0F, -3.0F}).chunks, 2), (std::vector<float>{2.0F, -0.75F}));
}
TEST(Compensate, A_change_of_scale_goes_through_the_residual_and_not_through_the_gradient) {
    EncodeLoop loop(*parse_pipeline("compensate(0.5, 2) | threshold(100)"), 1, 1, 0);
    static_cast<void>(loop.step({1.0F}));
    loop.set_rescale(4.0F);
    static_cast<void>(loop.step({4.0F}));
    EXPECT_EQ(loop.residual()[0], 12.0F);
}
TEST(Compensate, Many_steps_agree_with_a_shadow_in_double) {
    constexpr ElementCount kElements = 2000;
    for (const char* text : {"compensate(0.9, 0.5) | topk(0.05)", "compensate(0.5, 3) | threshold(2) | f16",
                             "momentum(0.9) | compensate(0.75, 0.25) | block_topk(0.1, block=64)",
                             "compensate(0.8, 0.7) | all | sign", "compensate(0.3) | randk(0.1) | natural"}) {
        const Pipeline pipeline = *parse_pipeline(text);
        std::mt19937_64 random(kSeed);
        EncodeLoop loop(pipeline, kElements, 1, 0);
        std::vector<double> e(kElements, 0.0);
        std::vector<double> u(kElements, 0.0);
        for (int step = 0; step < 100; ++step) {
            const auto gradient = make_gradient(DataKind::kGaussian, kElements, random);
            const auto sent = decode_payloads(loop.step(gradient).chunks, kElements);
            for (ElementCount element = 0; element < kElements; ++element) {
                double g = gradient[element];
                if (has_momentum(pipeline)) {
                    g = u[element] = 0.9 * u[element] + g;
                    if (sent[element] != 0) u[element] = 0;
                }
                e[element] = pipeline.front.beta * e[element] + pipeline.front.gamma * g - sent[element];
                ASSERT_NEAR(loop.residual()[element], e[element], 1e-4)
                    << text << " step " << step << ", seed " << kSeed;
            }
        }
    }
}
TEST(Compensate, Ones_are_no_stage) {
    EXPECT_EQ(canonical("compensate | topk(0.1)"), canonical("topk(0.1)"));
    EXPECT_EQ(canonical("compensate(1, 1) | variance"), canonical("variance"));
}
TEST(Compensate, Its_text_has_one_spelling_and_it_stands_behind_momentum) {
    EXPECT_EQ(canonical("compensate(0.9) | topk(0.001)"),
              "compensate(beta=0.9, gamma=1, lowpass=1) | topk(ratio=0.001, scope=tensor, gate=0) | f32 | auto");
    EXPECT_EQ(canonical("momentum | compensate(gamma=0.5) | all"),
              "momentum(m=0.9, nesterov=no, clip=none) | compensate(beta=1, gamma=0.5, lowpass=1) | all | f32 | auto");
    EXPECT_EQ(canonical(canonical("compensate(gamma=2, beta=0) | threshold(1)")),
              canonical("compensate(0, 2) | threshold(1)"));
    EXPECT_THAT(refusal("compensate(0.5)"), HasSubstr("a selector behind compensate"));
    EXPECT_THAT(refusal("compensate(0.5) | momentum | topk(0.1)"), HasSubstr("momentum, compensate"));
    EXPECT_THAT(refusal("compensate | compensate | topk(0.1)"), HasSubstr("once, before the selector"));
    EXPECT_THAT(refusal("compensate(1.5) | topk(0.1)"), HasSubstr("[0, 1]"));
    EXPECT_THAT(refusal("compensate(gamma=0) | topk(0.1)"), HasSubstr("[1e-6, 1e6]"));
    EXPECT_THAT(refusal("compensat | topk(0.1)"), HasSubstr("did you mean compensate?"));
}
TEST(Compensate, Before_what_v_judges_or_what_keeps_nothing_it_is_refused_by_name) {
    for (const char* text : {"compensate(0.5) | variance", "compensate(gamma=2) | variance_hybrid(0.1)",
                             "compensate(0.5) | topk(0.1, gate=1)"})
        EXPECT_THAT(refusal(text), HasSubstr("v measures gradients as they are")) << text;
    for (const char* text : {"compensate(0.5) | all", "compensate(0.5) | all | dither(feedback=none)",
                             "compensate(0.5) | randk(0.1, none)", "compensate(0.5) | all | sign(scale=none)"})
        EXPECT_THAT(refusal(text), HasSubstr("keeps no residual")) << text;
}

}  // namespace
}  // namespace gradsieve::codec
