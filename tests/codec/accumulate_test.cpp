// accumulate(n): of n steps the last one sends; what the forms do bit for bit is compared with the reference in
// encoder_forms_test.cpp and encoder_property_test.cpp.
#include "codec/stages/accumulate.hpp"
#include "encoder_harness.hpp"

#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>

namespace gradsieve::codec {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 120;

std::string canonical(const std::string& text) { return canonical_text(*parse_pipeline(text), Knobs::kKeep); }
std::string refusal(const char* text) { return parse_pipeline(text).status().text(); }

TEST(Accumulate, Steps_whose_number_n_divides_send_the_sum_and_the_others_send_nothing) {
    EncodeLoop loop(*parse_pipeline("accumulate(3) | all | bf16"), 2, 1, 0);
    for (int step = 1; step <= 9; ++step) {
        const auto result = loop.step({1.0F, -0.5F});
        const auto decoded = decode_payloads(result.chunks, 2);
        if (step % 3 == 0) {
            EXPECT_EQ(decoded, (std::vector<float>{3.0F, -1.5F})) << step;
            EXPECT_EQ(result.kept_elements, 2U);
        } else {
            EXPECT_TRUE(result.chunks.empty()) << step;
            EXPECT_EQ(result.kept_elements, 0U);
            EXPECT_EQ(loop.residual()[0], static_cast<float>(step % 3)) << step;
        }
    }
}
// Sums of small whole numbers are exact, so that what a codec makes of one large gradient can be told from what it
// makes of its parts.
TEST(Accumulate, N_steps_send_what_one_step_with_their_sum_would) {
    constexpr ElementCount kElements = 5000;
    constexpr int kPeriod = 4;
    for (const std::string stages : {"topk(0.05) | pow2", "topk(0.01) | f32", "threshold(9) | bf16", "all | sign",
                                     "all | minmax(8)", "all | pow2(4)", "block_topk(0.1, block=64) | sign",
                                     "gaussian_k(0.02)", "sidco(0.1, stages=1) | f16", "all | dither(7)"}) {
        std::mt19937_64 random(kSeed);
        EncodeLoop parts(*parse_pipeline("accumulate(4) | " + stages), kElements, 1, 0);
        const Pipeline plain = *parse_pipeline(stages);
        std::array<std::vector<float>, 2> residual{std::vector<float>(kElements), std::vector<float>(kElements)};
        std::uint32_t hint = 0;
        EncodeWorkspace workspace;
        for (int round = 0; round < 5; ++round) {
            std::vector<float> sum(kElements, 0.0F);
            EncodeResult last;
            for (int step = 0; step < kPeriod; ++step) {
                std::vector<float> gradient(kElements);
                for (ElementCount element = 0; element < kElements; ++element) {
                    gradient[element] = static_cast<float>(random() % 9) - 4.0F;
                    sum[element] += gradient[element];
                }
                last = parts.step(gradient);
            }
            const std::array<const float*, 1> samples = {sum.data()};
            const std::array<float, 1> weights = {1.0F};
            EncodeRequest request;
            request.pipeline = &plain;
            request.step = static_cast<Step>(kPeriod * (round + 1));
            request.elements = kElements;
            request.samples = samples;
            request.weights = weights;
            request.selection_hint = &hint;
            request.in.residual = residual[round % 2].data();
            request.out.residual = residual[1 - round % 2].data();
            const auto whole = encode_tensor(request, workspace);
            ASSERT_TRUE(whole.is_ok());
            // r is a sum of fewer or more parts: exact only while no quantizer has left a fraction there.
            if (round == 0 || stages.ends_with("f32")) {
                ASSERT_EQ(whole->chunks.size(), last.chunks.size()) << stages;
                for (std::size_t chunk = 0; chunk < last.chunks.size(); ++chunk)
                    EXPECT_EQ(whole->chunks[chunk].bytes, last.chunks[chunk].bytes) << stages << ", round " << round;
            }
            for (ElementCount element = 0; element < kElements && round == 0; ++element)
                ASSERT_EQ(parts.residual()[element], residual[1][element]) << stages << ", seed " << kSeed;
        }
    }
}
TEST(Accumulate, What_was_sent_and_r_are_what_was_handed_in) {
    constexpr ElementCount kElements = 1000;
    for (const char* text :
         {"accumulate(5) | topk(0.05) | pow2", "accumulate(3) | all | sign", "accumulate(4) | variance(0.5) | f16",
          "accumulate(2) | randk(0.2) | natural", "momentum | accumulate(3) | threshold(4) | sign(scale=mean)",
          "compensate(gamma=0.25) | accumulate(4) | all | bf16"}) {
        std::mt19937_64 random(kSeed);
        EncodeLoop loop(*parse_pipeline(text), kElements, 1, 0);
        std::vector<double> balance(kElements, 0.0);
        for (int step = 0; step < 61; ++step) {
            const auto gradient = make_gradient(DataKind::kGaussian, kElements, random);
            const auto handed_in = loop.handed_in(gradient);
            const auto sent = decode_payloads(loop.step(gradient).chunks, kElements);
            for (ElementCount element = 0; element < kElements; ++element) {
                balance[element] += double{sent[element]} - handed_in[element];
                ASSERT_NEAR(balance[element] + loop.residual()[element], 0, 61 * 0x1p-24 * 128)
                    << text << " step " << step << ", seed " << kSeed;
            }
        }
    }
}
// v of a step that waits: as if nothing had passed the test.
TEST(Accumulate, V_goes_on_while_nothing_is_sent) {
    for (const std::string stages : {"variance(0)", "topk(0.5, gate=0.001)", "variance_hybrid(0.01, alpha=0)"}) {
        EncodeLoop waiting(*parse_pipeline("accumulate(100) | " + stages), 200, 2, 0);
        EncodeLoop never(*parse_pipeline("variance_hybrid(1e30, alpha=0)"), 200, 2, 0);
        std::mt19937_64 random(kSeed);
        for (int step = 0; step < 20; ++step) {
            const auto left = make_gradient(DataKind::kGaussian, 200, random);
            const auto right = make_gradient(DataKind::kGaussian, 200, random);
            const std::array<const float*, 2> samples = {left.data(), right.data()};
            EXPECT_TRUE(waiting.step(samples).chunks.empty());
            static_cast<void>(never.step(samples));
        }
        for (ElementCount element = 0; element < 200; ++element) {
            ASSERT_GT(waiting.variance()[element], 0.0F);
            ASSERT_EQ(waiting.variance()[element], never.variance()[element]) << stages;
            ASSERT_EQ(waiting.residual()[element], never.residual()[element]) << stages;
        }
    }
}
TEST(Accumulate, U_is_cleared_only_where_something_is_sent) {
    EncodeLoop loop(*parse_pipeline("momentum(0.5) | accumulate(2) | topk(1)"), 1, 1, 0);
    static_cast<void>(loop.step({1.0F}));
    EXPECT_EQ(loop.momentum()[0], 1.0F);
    EXPECT_EQ(decode_payloads(loop.step({1.0F}).chunks, 1)[0], 2.5F);
    EXPECT_EQ(loop.momentum()[0], 0.0F);
}
TEST(Accumulate, Numbers_that_are_large_or_none_are_met_as_ever) {
    const Pipeline pipeline = *parse_pipeline("accumulate(2) | all | sign");
    EncodeWorkspace workspace;
    for (const CpuForm form : supported_forms()) {
        auto input = make_input(pipeline, 100, 1, DataKind::kGaussian, kSeed);
        input.samples[0][70] = NAN;
        const auto output = run_form(input, zero_state(input), form, workspace);
        ASSERT_TRUE(output.result.non_finite);
        EXPECT_EQ(output.result.non_finite->element, 70U);
        input.samples[0][70] = -FLT_MAX;
        const auto kept = run_form(input, zero_state(input), form, workspace);
        EXPECT_TRUE(kept.result.chunks.empty()) << "nothing is above the largest finite number";
        EXPECT_EQ(kept.state.residual[70], -FLT_MAX);
    }
}
TEST(Accumulate, The_hint_of_top_k_waits_too) {
    EncodeWorkspace workspace;
    const Pipeline pipeline = *parse_pipeline("accumulate(2) | topk(0.1)");
    auto input = make_input(pipeline, 100, 1, DataKind::kGaussian, kSeed);
    std::uint32_t hint = 0;
    static_cast<void>(run_form(input, zero_state(input), fastest_cpu_form(), workspace, {}, &hint));
    EXPECT_EQ(hint, 0U);
    input.step = 2;
    static_cast<void>(run_form(input, zero_state(input), fastest_cpu_form(), workspace, {}, &hint));
    EXPECT_NE(hint, 0U);
}
TEST(Accumulate, Its_text_has_one_spelling_and_it_stands_last_in_front) {
    EXPECT_EQ(canonical("accumulate(4) | topk(0.001)"),
              "accumulate(n=4) | topk(ratio=0.001, scope=tensor, gate=0) | f32 | auto");
    EXPECT_EQ(canonical("accumulate(n=1) | topk(0.1)"), canonical("topk(0.1)"));
    EXPECT_EQ(
        canonical("momentum | compensate(0.5) | accumulate(2) | all | sign"),
        "momentum(m=0.9, nesterov=no, clip=none) | compensate(beta=0.5, gamma=1, lowpass=1) | accumulate(n=2) | all | "
        "sign(scale=mean) | auto");
    EXPECT_THAT(refusal("accumulate(2) | compensate(0.5) | topk(0.1)"), HasSubstr("compensate, accumulate"));
    EXPECT_THAT(refusal("accumulate(2)"), HasSubstr("a selector behind accumulate"));
    for (const char* text : {"accumulate(0) | topk(0.1)", "accumulate(101) | topk(0.1)", "accumulate(2.5) | topk(0.1)"})
        EXPECT_THAT(refusal(text), HasSubstr("a whole number in [1, 100]")) << text;
    EXPECT_THAT(refusal("accumulate | topk(0.1)"), HasSubstr("n"));
}
TEST(Accumulate, Before_what_keeps_no_residual_it_is_refused_by_name) {
    for (const char* text : {"accumulate(2) | all", "accumulate(2) | all | dither(feedback=none)",
                             "accumulate(2) | randk(0.1, none)", "accumulate(2) | all | sign(scale=none)"})
        EXPECT_THAT(refusal(text), HasSubstr("keeps no residual 'accumulate': allowed is none")) << text;
}

}  // namespace
}  // namespace gradsieve::codec
