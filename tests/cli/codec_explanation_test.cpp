#include "cli/codec_explanation.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace gradsieve::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CodecExplanation explain(const char* text, std::uint64_t elements) {
    auto explanation = explain_codec(*codec::parse_pipeline(text), elements);
    EXPECT_TRUE(explanation.is_ok()) << explanation.status().to_string();
    return std::move(*explanation);
}

TEST(CodecExplanation, Names_its_stages_in_order_with_every_parameter) {
    const auto found = explain("topk(0.05)", 10'000);
    EXPECT_EQ(found.text, "topk(ratio=0.05, scope=tensor, gate=0) | f32 | auto");
    ASSERT_EQ(found.stages.size(), 3U);
    EXPECT_EQ(found.stages[0].name, "topk");
    EXPECT_EQ(found.stages[0].parameters, "ratio=0.05, scope=tensor, gate=0");
    EXPECT_EQ(found.stages[1].name, "f32");
    EXPECT_EQ(found.stages[2].name, "auto");
}
TEST(CodecExplanation, A_budget_is_a_jobs_and_not_explained) {
    EXPECT_EQ(
        pipeline_alone("topk(0.1); budget_ms_per_step = 3").status().to_string(),
        "invalid-argument: codec 'topk(0.1); budget_ms_per_step = 3': has a budget: allowed is one pipeline here, of "
        "which a job's budget moves the number; leave it out");
}
TEST(CodecExplanation, Figures_are_those_of_the_encoder) {
    const auto found = explain("topk(0.05) | f32 | raw32", 10'000);
    EXPECT_EQ(found.state_bytes, 80'000U);
    EXPECT_EQ(found.trial.elements, 10'000U);
    EXPECT_DOUBLE_EQ(found.trial.sent_fraction, 0.05);
    EXPECT_NEAR(found.trial.payload_bytes, 8 * 500, 32);
    EXPECT_GT(found.trial.normalized_error, 0.5);
    EXPECT_LT(found.trial.normalized_error, 1.0);
    EXPECT_EQ(explain("variance", 100).state_bytes, 1'600U);
    EXPECT_EQ(explain("momentum(0.9) | topk(0.05)", 100).state_bytes, 1'600U);
    EXPECT_EQ(explain("lowrank(2)", 10'000).state_bytes, 2 * 4 * (10'000U + 2 * 100));
    EXPECT_EQ(explain("sketch(0.01)", 10'000).state_bytes, 80'000U);
    EXPECT_EQ(explain("momentum(0.9) | topk(0.05)", 100).stages.front().parameters, "m=0.9, nesterov=no, clip=none");
    EXPECT_EQ(explain("compensate(0.5) | topk(0.05)", 100).stages.front().parameters, "beta=0.5, gamma=1, lowpass=1");
    EXPECT_EQ(explain("rotate | all | sign", 100).stages.front().name, "rotate");
    EXPECT_EQ(explain("rotate | all | sign", 100).state_bytes, 800U);
    EXPECT_EQ(explain("rotate | all | sign(scale=drive)", 100).state_bytes, 0U);
    EXPECT_EQ(explain("delta | topk(0.1)", 100).stages.front().name, "delta");
    EXPECT_EQ(explain("delta | topk(0.1)", 100).state_bytes, 1616U) << "what was sent, all nodes' average, the epoch";
}
TEST(CodecExplanation, Accumulation_over_n_steps_costs_an_nth_of_the_bytes) {
    const auto plain = explain("topk(0.05) | f32 | raw32", 10'000).trial;
    for (const unsigned n : {2U, 3U, 7U}) {
        const auto found =
            explain(("accumulate(" + std::to_string(n) + ") | topk(0.05) | f32 | raw32").c_str(), 10'000);
        EXPECT_EQ(found.stages.front().parameters, "n=" + std::to_string(n));
        EXPECT_EQ(found.trial.steps % (4 * n), 0U) << "whole periods are counted";
        EXPECT_NEAR(found.trial.sent_fraction, plain.sent_fraction / n, 1e-12);
        EXPECT_NEAR(found.trial.payload_bytes, plain.payload_bytes / n, 1e-6 * plain.payload_bytes);
        EXPECT_GT(found.trial.encode_milliseconds, 0.0);
    }
}
TEST(CodecExplanation, A_large_model_is_scaled_from_a_trial_of_a_quarter_chunk) {
    auto found = explain("all | bf16", 1'000'000'000);
    EXPECT_EQ(found.trial.elements, std::uint64_t{1} << 18U);
    EXPECT_EQ(found.trial.sent_fraction, 1.0);
    const auto text = render_explanation(found, {100, 0, false, true});
    EXPECT_THAT(text, HasSubstr("2.00 GB a step and node for 1.00G elements, 2.0 times less than fp32"));
    EXPECT_THAT(text, HasSubstr("16.0 bits for each"));
    EXPECT_THAT(text, Not(HasSubstr("auto:")));  // nothing is indexed
}
TEST(CodecExplanation, Codecs_of_two_phases_are_counted_for_all_elements) {
    EXPECT_THAT(render_explanation(explain("sketch(0.001)", 100'000'000), {100, 0, false, true}),
                HasSubstr("2.40 MB a step and node for 100M elements, 166.7 times less than fp32"));
    EXPECT_THAT(render_explanation(explain("accumulate(4) | sketch(0.001)", 100'000'000), {100, 0, false, true}),
                HasSubstr("600 kB a step and node for 100M elements, 666.7 times less than fp32"));
    EXPECT_THAT(render_explanation(explain("lowrank(4)", 100'000'000), {100, 0, false, true}),
                HasSubstr("320 kB a step and node for 100M elements, 1,250 times less than fp32"));
}
TEST(CodecExplanation, What_keeps_nothing_says_so) {
    const auto text = render_explanation(explain("all | f32", 5), {80, 0, false, true});
    EXPECT_THAT(text, HasSubstr("nothing from step to step"));
    EXPECT_THAT(text, HasSubstr("0.000 of the energy"));
}
TEST(CodecExplanation, Programs_get_the_same_figures) {
    const auto found = explain("topk(0.01) | pow2(bits=4) | auto", 50'000);
    const auto root = nlohmann::json::parse(explanation_json(found));
    EXPECT_EQ(root["codec"], found.text);
    EXPECT_EQ(root["stages"].size(), 3U);
    EXPECT_EQ(root["state_bytes"], 400'000U);
    EXPECT_EQ(root["on_noise"]["steps"], found.trial.steps);
    EXPECT_DOUBLE_EQ(root["on_noise"]["sent_fraction"], found.trial.sent_fraction);
    EXPECT_DOUBLE_EQ(root["on_noise"]["ratio_to_fp32"], 200'000 / found.trial.payload_bytes);
}

TEST(CodecExplanation, Recorded_gradients_stand_in_for_noise) {
    RecordedGradients recorded{{1, 0, 0, 0, 0, 0, 0, 0, 0, 2}, 10};
    const auto found = explain_codec(*codec::parse_pipeline("threshold(0.5) | f32 | raw32"), 1000, &recorded);
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    EXPECT_EQ(found->trial.elements, 10U);
    EXPECT_DOUBLE_EQ(found->trial.sent_fraction, 0.2);
    EXPECT_EQ(found->trial.normalized_error, 0.0);
    const auto text = render_explanation(*found, {100, 0, false, true});
    EXPECT_THAT(text, HasSubstr("on recorded gradients of 10 elements"));
    EXPECT_THAT(text, HasSubstr("20.0 % of the elements"));
    EXPECT_THAT(text, Not(HasSubstr("Gradients are not noise")));
    EXPECT_TRUE(nlohmann::json::parse(explanation_json(*found)).contains("on_gradients"));
}

}  // namespace
}  // namespace gradsieve::cli
