// Momentum in front of the selector against its definition, in closed forms and shadows in double; what the forms do
// bit for bit is compared with the reference in encoder_forms_test.cpp and encoder_property_test.cpp.
#include "codec/state_arrays.hpp"
#include "encoder_harness.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace gradsieve::codec {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 117;

std::vector<float> sent_of_ones(const std::string& codec, int steps) {
    EncodeLoop loop(*parse_pipeline(codec), 1, 1, 0);
    std::vector<float> sent;
    for (int step = 0; step < steps; ++step) sent.push_back(decode_payloads(loop.step({1.0F}).chunks, 1)[0]);
    return sent;
}

// u = 1, 3/2, 7/4, 15/8 and r = 1, 5/2, 17/4, 49/8: sent at the first above 5, where u and r begin anew.
TEST(Momentum, A_constant_gradient_waits_as_momentum_sgd_would_have_moved) {
    EXPECT_EQ(sent_of_ones("momentum(0.5) | threshold(5) | f32", 8),
              (std::vector<float>{0, 0, 0, 6.125F, 0, 0, 0, 6.125F}));
}
// What is added is u / 2 + 1: 3/2, 7/4, 15/8 come to 41/8.
TEST(Momentum, Nesterov_looks_one_step_ahead) {
    EXPECT_EQ(sent_of_ones("momentum(0.5, nesterov=yes) | threshold(5) | f32", 6),
              (std::vector<float>{0, 0, 5.125F, 0, 0, 5.125F}));
}
TEST(Momentum, What_quantization_loses_stays_in_the_residual_while_u_is_cleared) {
    EncodeLoop loop(*parse_pipeline("momentum(0.5) | threshold(5) | sign(scale=4)"), 1, 1, 0);
    for (int step = 0; step < 4; ++step) static_cast<void>(loop.step({1.0F}));
    EXPECT_EQ(loop.residual()[0], 2.125F);
    EXPECT_EQ(loop.momentum()[0], 0.0F);
}
TEST(Momentum, An_element_that_is_picked_and_has_no_code_keeps_its_u) {
    // 1 / 512 lies more octaves below 1 than three bits reach.
    EncodeLoop loop(*parse_pipeline("momentum(0.5) | topk(1) | pow2"), 2, 1, 0);
    static_cast<void>(loop.step({1.0F, 0x1p-9F}));
    EXPECT_EQ(loop.momentum()[0], 0.0F);
    EXPECT_EQ(loop.momentum()[1], 0x1p-9F);
    EXPECT_EQ(loop.residual()[1], 0x1p-9F);
}
TEST(Momentum, What_is_sent_at_every_step_has_no_momentum) {
    std::mt19937_64 random(kSeed);
    EncodeLoop loop(*parse_pipeline("momentum(0.9) | topk(1)"), 1000, 1, 0);
    for (int step = 0; step < 5; ++step) {
        const auto gradient = make_gradient(DataKind::kGaussian, 1000, random);
        EXPECT_TRUE(same_bits(decode_payloads(loop.step(gradient).chunks, 1000), gradient)) << step;
    }
}
TEST(Momentum, Behind_it_all_is_momentum_sgd_itself) {
    constexpr ElementCount kElements = 500;
    constexpr double kFactor = 0.875;
    for (const bool is_nesterov : {false, true}) {
        std::mt19937_64 random(kSeed);
        EncodeLoop loop(*parse_pipeline(is_nesterov ? "momentum(0.875, yes) | all" : "momentum(0.875) | all"),
                        kElements, 1, 0);
        std::vector<double> u(kElements, 0.0);
        for (int step = 0; step < 60; ++step) {
            const auto gradient = make_gradient(DataKind::kGaussian, kElements, random);
            const auto sent = decode_payloads(loop.step(gradient).chunks, kElements);
            for (ElementCount element = 0; element < kElements; ++element) {
                u[element] = kFactor * u[element] + gradient[element];
                const double expected = is_nesterov ? kFactor * u[element] + gradient[element] : u[element];
                ASSERT_NEAR(sent[element], expected, 1e-5) << "step " << step << ", seed " << kSeed;
            }
        }
    }
}
// Deep Gradient Compression as its Algorithm 4 and its section on factor masking have it, in double.
TEST(Momentum, Many_steps_agree_with_a_shadow_in_double) {
    constexpr ElementCount kElements = 2000;
    for (const char* text : {"momentum(0.9) | topk(0.05)", "momentum(0.9) | threshold(3) | f32",
                             "momentum(0.9) | block_topk(0.1, block=64)", "momentum(0.9, nesterov=yes) | topk(0.05)"}) {
        const Pipeline pipeline = *parse_pipeline(text);
        std::mt19937_64 random(kSeed);
        EncodeLoop loop(pipeline, kElements, 1, 0);
        std::vector<double> u(kElements, 0.0);
        std::vector<double> r(kElements, 0.0);
        for (int step = 0; step < 100; ++step) {
            const auto gradient = make_gradient(DataKind::kGaussian, kElements, random);
            const auto sent = decode_payloads(loop.step(gradient).chunks, kElements);
            for (ElementCount element = 0; element < kElements; ++element) {
                u[element] = 0.9 * u[element] + gradient[element];
                r[element] += pipeline.front.is_nesterov ? 0.9 * u[element] + gradient[element] : u[element];
                if (sent[element] != 0) {
                    ASSERT_NEAR(sent[element], r[element], 2e-4) << text << " step " << step << ", seed " << kSeed;
                    u[element] = r[element] = 0;
                }
                ASSERT_NEAR(loop.residual()[element], r[element], 2e-4) << text << " step " << step;
                ASSERT_NEAR(loop.momentum()[element], u[element], 2e-5) << text << " step " << step;
            }
        }
    }
}
TEST(Momentum, A_change_of_scale_goes_through_u_too) {
    EncodeLoop loop(*parse_pipeline("momentum(0.5) | threshold(100)"), 1, 1, 0);
    static_cast<void>(loop.step({1.0F}));
    loop.set_rescale(4.0F);
    static_cast<void>(loop.step({4.0F}));
    EXPECT_EQ(loop.momentum()[0], 6.0F);
    EXPECT_EQ(loop.residual()[0], 10.0F);
}
TEST(Momentum, Before_what_v_judges_it_is_refused_by_name) {
    for (const char* text :
         {"momentum | variance", "momentum(0.5) | variance_hybrid(0.1)", "momentum | topk(0.1, gate=1)"}) {
        const auto pipeline = parse_pipeline(text);
        ASSERT_FALSE(pipeline.is_ok()) << text;
        EXPECT_THAT(pipeline.error().text(), HasSubstr("momentum")) << text;
        EXPECT_THAT(pipeline.error().text(), HasSubstr("select with topk without a gate")) << text;
    }
}
TEST(Momentum, Its_text_has_one_spelling_and_its_place_is_in_front) {
    const auto canonical = [](const char* text) { return canonical_text(*parse_pipeline(text), Knobs::kKeep); };
    EXPECT_EQ(canonical("momentum | topk(0.001)"),
              "momentum(m=0.9, nesterov=no, clip=none) | topk(ratio=0.001, scope=tensor, gate=0) | f32 | auto");
    EXPECT_EQ(canonical("momentum(0.5, yes) | all"), "momentum(m=0.5, nesterov=yes, clip=none) | all | f32 | auto");
    EXPECT_EQ(canonical(canonical("momentum(nesterov=yes, m=0.99) | threshold(1)").c_str()),
              canonical("momentum(0.99, yes) | threshold(1)"));
    const auto refusal = [](const char* text) { return parse_pipeline(text).status().text(); };
    EXPECT_THAT(refusal("momentum"), HasSubstr("a selector behind momentum"));
    EXPECT_THAT(refusal("topk(0.1) | momentum"), HasSubstr("once, before the selector"));
    EXPECT_THAT(refusal("momentum | momentum | topk(0.1)"), HasSubstr("once, before the selector"));
    EXPECT_THAT(refusal("momentum | f32"), HasSubstr("codec stage 'f32'"));
    EXPECT_THAT(refusal("momentum(1) | topk(0.1)"), HasSubstr("[1e-6, 0.9999]"));
    EXPECT_THAT(refusal("momentum(0.9, maybe) | topk(0.1)"), HasSubstr("maybe"));
    EXPECT_THAT(refusal("momentom | topk(0.1)"), HasSubstr("did you mean momentum?"));
}
TEST(StateArrays, Names_are_those_of_kept_states) {
    std::vector<std::string> names;
    for (const StateArray& array : state_arrays()) names.emplace_back(array.name);
    EXPECT_THAT(names, ::testing::ElementsAre("residual", "variance", "momentum", "factor", "average", "epoch", "down",
                                              "sent"));
    EXPECT_EQ(find_state_array("residual")->values, &StateView::residual);
    EXPECT_EQ(find_state_array("nothing"), nullptr);
    EXPECT_EQ(kept_state_arrays(*parse_pipeline("all | f32")), 0U);
    EXPECT_EQ(kept_state_arrays(*parse_pipeline("variance")), 2U);
    EXPECT_EQ(kept_state_arrays(*parse_pipeline("momentum | topk(0.1)")), 2U);
}

}  // namespace
}  // namespace gradsieve::codec
