#include "codec/pipeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>

namespace gradsieve::codec {
namespace {

using ::testing::HasSubstr;

std::string canonical(std::string_view text, Knobs knobs = Knobs::kKeep) {
    const auto pipeline = parse_pipeline(text);
    return pipeline.is_ok() ? canonical_text(*pipeline, knobs) : pipeline.error().to_string();
}
/// The error of a text that must be refused.
std::string refusal(std::string_view text) {
    const auto pipeline = parse_pipeline(text);
    EXPECT_FALSE(pipeline.is_ok()) << text << " was accepted as " << canonical(text);
    EXPECT_EQ(pipeline.status().code(), StatusCode::kInvalidArgument) << text;
    return pipeline.status().text();
}

TEST(Pipeline, Missing_stages_and_parameters_take_their_defaults) {
    EXPECT_EQ(canonical("all"), "all | f32 | auto");
    EXPECT_EQ(canonical("variance"), "variance(alpha=1.5, zeta=0.999, mode=conserving) | f32 | auto");
    EXPECT_EQ(canonical("topk(0.01) | pow2"),
              "topk(ratio=0.01, scope=tensor, gate=0) | pow2(bits=4, scope=tile) | auto");
    EXPECT_EQ(canonical("topk(0.01) | rice"), "topk(ratio=0.01, scope=tensor, gate=0) | f32 | rice");
    EXPECT_EQ(canonical("variance_hybrid(0.01)"),
              "variance_hybrid(tau=0.01, alpha=2, zeta=0.999) | sign(scale=tau) | auto");
    EXPECT_EQ(canonical("threshold(0.01)"), "threshold(tau=0.01) | sign(scale=tau) | auto");
    EXPECT_EQ(canonical("threshold(0.01) | f32"), "threshold(tau=0.01) | f32 | auto");
    EXPECT_EQ(canonical("all | sign"), "all | sign(scale=mean) | auto");
    EXPECT_EQ(canonical("all | sign(two_mean)"), "all | sign(scale=two_mean) | auto");
    EXPECT_EQ(canonical("all | sign(none)"), "all | sign(scale=none) | auto");
    EXPECT_EQ(canonical("all | natural"), "all | natural(feedback=scaled) | auto");
    EXPECT_EQ(canonical("all | exponential_dither"),
              "all | exponential_dither(levels=7, base=2, mode=unbiased, norm=max, feedback=scaled) | auto");
    EXPECT_EQ(canonical("all | minmax"), "all | minmax(bits=4, bucket=512, feedback=scaled) | auto");
    EXPECT_EQ(canonical("all | minmax(8, 64, none)"), "all | minmax(bits=8, bucket=64, feedback=none) | auto");
    EXPECT_EQ(canonical("all | integer(1e4)"), "all | integer(scale=10000, mode=unbiased, feedback=unscaled) | auto");
    EXPECT_EQ(canonical("topk(0.5) | integer(30, biased)"),
              "topk(ratio=0.5, scope=tensor, gate=0) | integer(scale=30, mode=biased) | auto");
    EXPECT_EQ(canonical("randk(0.5, none) | integer(2)"),
              "randk(ratio=0.5, feedback=none) | integer(scale=2, mode=unbiased, feedback=none) | auto");
    EXPECT_EQ(canonical("topk(0.5) | exponential_dither(3, 1.1, biased, l2)"),
              "topk(ratio=0.5, scope=tensor, gate=0) | exponential_dither(levels=3, base=1.1, mode=biased, norm=l2) | "
              "auto");
    EXPECT_EQ(canonical("all | rounding"), "all | rounding(base=2, mode=unbiased, feedback=scaled) | auto");
    EXPECT_EQ(canonical("all | rounding(1.1, biased)"), "all | rounding(base=1.1, mode=biased) | auto");
    EXPECT_EQ(parse_pipeline("all | rounding(4)")->quantizer.levels, 64);
    EXPECT_EQ(canonical("gaussian_k(0.01)"), "gaussian_k(ratio=0.01) | f32 | auto");
    EXPECT_EQ(canonical("sidco(0.01)"), "sidco(ratio=0.01, stages=3) | f32 | auto");
    EXPECT_EQ(canonical("block_topk(0.01)"), "block_topk(ratio=0.01, block=4096) | f32 | auto");
    EXPECT_EQ(canonical("randk(0.01)"), "randk(ratio=0.01, feedback=scaled) | f32 | auto");
    EXPECT_EQ(canonical("randk(0.5, none) | dither"),
              "randk(ratio=0.5, feedback=none) | dither(levels=7, norm=max, feedback=none) | auto");
    EXPECT_EQ(canonical("bernoulli(0.1) | natural"),
              "bernoulli(p=0.1, feedback=scaled) | natural(feedback=scaled) | auto");
    EXPECT_EQ(canonical("biased_random(0.5, 0.01)"), "biased_random(first=0.5, last=0.01) | f32 | auto");
    EXPECT_EQ(canonical("adaptive_random(0.01)"), "adaptive_random(ratio=0.01, block=4096) | f32 | auto");
    EXPECT_EQ(canonical("all | ternary"), "all | ternary(clip=2.5, feedback=scaled) | auto");
    EXPECT_EQ(canonical("all | ternary(none)"), "all | dither(levels=1, norm=max, feedback=scaled) | auto");
}
TEST(Pipeline, Spellings_of_one_meaning_have_one_canonical_text) {
    const auto expected = canonical("topk(0.01, gate=1) | pow2(bits=4) | auto");
    for (const char* text : {"topk(ratio=0.01,gate=1.0)|pow2|auto", "  topk ( 1e-2 , tensor , 1 ) | pow2 ( 4 , tile ) ",
                             "topk(gate=1, scope=tensor, ratio=0.010) | pow2(scope=tile) | auto"})
        EXPECT_EQ(canonical(text), expected) << text;
    EXPECT_EQ(canonical("variance(1.5, 0.999, conserving) | f32 | auto"), canonical("variance"));
    EXPECT_EQ(canonical("variance(-0)"), canonical("variance(alpha=0)"));
    EXPECT_EQ(canonical("variance_hybrid(0.5) | sign(scale=0.5)"), canonical("variance_hybrid(0.5) | sign(scale=tau)"));
    EXPECT_EQ(canonical("threshold(0.5) | sign(scale=0.5)"), canonical("threshold(0.5)"));
    EXPECT_EQ(canonical("threshold(0.5) | sign(scale=0.25)"), "threshold(tau=0.5) | sign(scale=0.25) | auto");
}
TEST(Pipeline, Parameters_arrive_in_their_fields) {
    const auto variance = *parse_pipeline("variance(2, mode=faithful) | bf16 | bitmap");
    EXPECT_EQ(variance.selector.kind, SelectorKind::kVariance);
    EXPECT_EQ(variance.selector.alpha, 2);
    EXPECT_EQ(variance.selector.zeta, 0.999);
    EXPECT_TRUE(variance.selector.is_faithful);
    EXPECT_EQ(variance.quantizer.kind, QuantizerKind::kBf16);
    EXPECT_EQ(variance.index_coder, IndexCoderKind::kBitmap);
    const auto topk = *parse_pipeline("topk(0.25, gate=0.5) | pow2(bits=7, scope=tensor) | raw32");
    EXPECT_EQ(topk.selector.ratio, 0.25);
    EXPECT_EQ(topk.selector.gate, 0.5);
    EXPECT_EQ(topk.quantizer.bits, 7);
    EXPECT_EQ(topk.quantizer.scope, Scope::kTensor);
    const auto hybrid = *parse_pipeline("variance_hybrid(0.125, 3, 0.5) | sign(scale=tau)");
    EXPECT_EQ(hybrid.selector.tau, 0.125);
    EXPECT_EQ(hybrid.quantizer.tau, 0.125);
    EXPECT_EQ(hybrid.selector.alpha, 3);
    EXPECT_EQ(parse_pipeline("all | sign(scale=0.25)")->quantizer.tau, 0.25);
}
TEST(Pipeline, Blanked_knobs_agree_between_nodes_that_tune_alone) {
    EXPECT_EQ(canonical("variance(alpha=3, zeta=0.5)", Knobs::kBlank),
              "variance(alpha=*, zeta=*, mode=conserving) | f32 | auto");
    EXPECT_EQ(canonical("topk(0.5, gate=2) | pow2(bits=3)", Knobs::kBlank),
              canonical("topk(0.1) | pow2(bits=3)", Knobs::kBlank));
    EXPECT_NE(canonical("topk(0.5) | pow2(bits=3)", Knobs::kBlank), canonical("topk(0.5) | pow2", Knobs::kBlank));
    EXPECT_EQ(canonical("variance_hybrid(0.5)", Knobs::kBlank),
              "variance_hybrid(tau=*, alpha=*, zeta=*) | sign(scale=tau) | auto");
    EXPECT_EQ(canonical("threshold(0.5)", Knobs::kBlank), "threshold(tau=*) | sign(scale=tau) | auto");
    EXPECT_EQ(canonical("all | sign(scale=0.5)", Knobs::kBlank), "all | sign(scale=*) | auto");
    EXPECT_EQ(canonical("gaussian_k(0.5)", Knobs::kBlank), "gaussian_k(ratio=*) | f32 | auto");
    EXPECT_EQ(canonical("sidco(0.5, 2)", Knobs::kBlank), "sidco(ratio=*, stages=*) | f32 | auto");
    EXPECT_EQ(canonical("block_topk(0.5, 64)", Knobs::kBlank), "block_topk(ratio=*, block=*) | f32 | auto");
    EXPECT_EQ(canonical("randk(0.5)", Knobs::kBlank), "randk(ratio=*, feedback=scaled) | f32 | auto");
    EXPECT_EQ(canonical("bernoulli(0.5, none)", Knobs::kBlank), "bernoulli(p=*, feedback=none) | f32 | auto");
    EXPECT_EQ(canonical("biased_random(0.5, 1)", Knobs::kBlank), "biased_random(first=*, last=*) | f32 | auto");
    EXPECT_EQ(canonical("adaptive_random(0.5)", Knobs::kBlank), "adaptive_random(ratio=*, block=*) | f32 | auto");
    EXPECT_EQ(canonical("all | ternary(3)", Knobs::kBlank), "all | ternary(clip=*, feedback=scaled) | auto");
}

TEST(Pipeline, Numbers_out_of_range_are_refused_with_the_range) {
    for (const char* text :
         {"topk(0)", "topk(-0.1)", "topk(1.01)", "topk(nan)", "topk(inf)", "topk(0.1x)", "topk(0x1)"})
        EXPECT_THAT(refusal(text), HasSubstr("(0, 1]")) << text;
    EXPECT_THAT(refusal("topk(1.5)"),
                ::testing::StrEq("codec stage topk: ratio '1.5': allowed is (0, 1]; write a number in "
                                 "that range"));
    EXPECT_THAT(refusal("variance(alpha=-1)"), HasSubstr("[0, 1e30]"));
    EXPECT_THAT(refusal("variance(zeta=0)"), HasSubstr("(0, 1]"));
    EXPECT_THAT(refusal("topk(0.1, gate=-1)"), HasSubstr("[0, 1e30]"));
    EXPECT_THAT(refusal("variance_hybrid(0)"), HasSubstr("[1e-30, 1e30]"));
    EXPECT_THAT(refusal("threshold(0)"), HasSubstr("[1e-30, 1e30]"));
    EXPECT_THAT(refusal("all | sign(scale=-1)"), HasSubstr("[1e-30, 1e30]"));
    for (const char* text :
         {"all | pow2(bits=1)", "all | pow2(bits=9)", "all | pow2(bits=4.5)", "all | pow2(bits=nan)"})
        EXPECT_THAT(refusal(text), HasSubstr("[2, 8]")) << text;
    for (const char* text : {"all | dither(0)", "all | dither(128)", "all | dither(levels=6.5)", "all | dither(nan)"})
        EXPECT_THAT(refusal(text), HasSubstr("[1, 127]")) << text;
    for (const char* text : {"block_topk(0.1, 32)", "block_topk(0.1, 8192)", "block_topk(0.1, 100)",
                             "block_topk(0.1, 64.5)", "block_topk(0.1, block=nan)"})
        EXPECT_THAT(refusal(text), HasSubstr("a power of two in [64, 4096]")) << text;
    for (const char* text : {"sidco(0.1, 0)", "sidco(0.1, 9)", "sidco(0.1, stages=2.5)"})
        EXPECT_THAT(refusal(text), HasSubstr("a whole number in [1, 8]")) << text;
    for (const char* text : {"gaussian_k", "sidco", "sidco(stages=2)"})
        EXPECT_THAT(refusal(text), HasSubstr("ratio 'missing'")) << text;
    EXPECT_THAT(refusal("gaussian_k(0)"), HasSubstr("(0, 1]"));
    EXPECT_THAT(refusal("block_topk"), HasSubstr("ratio 'missing'"));
    for (const char* text : {"all | exponential_dither(base=1)", "all | exponential_dither(base=16.1)",
                             "all | rounding(base=0.5)", "all | rounding(base=-2)", "all | rounding(base=1)"})
        EXPECT_THAT(refusal(text), HasSubstr("[1.1, 16]")) << text;
    EXPECT_THAT(refusal("all | minmax(1)"), HasSubstr("[2, 8]"));
    EXPECT_THAT(refusal("all | minmax(9)"), HasSubstr("[2, 8]"));
    for (const char* text :
         {"all | minmax(4, 63)", "all | minmax(4, 96)", "all | minmax(4, 64.5)", "all | minmax(4, 8192)"})
        EXPECT_THAT(refusal(text), HasSubstr("a power of two in [64, 4096]")) << text;
    EXPECT_THAT(refusal("topk(0.1) | minmax"), HasSubstr("quantizer after topk 'minmax': allowed is all | minmax"));
    EXPECT_THAT(refusal("randk(0.1) | minmax"), HasSubstr("quantizer after randk 'minmax'"));
    EXPECT_THAT(refusal("all | minmax | rice"), HasSubstr("index coder after all"));
    EXPECT_THAT(refusal("all | integer"), HasSubstr("scale 'missing'"));
    for (const char* text : {"all | integer(0)", "all | integer(-1)", "all | integer(1e31)", "all | integer(nan)"})
        EXPECT_THAT(refusal(text), HasSubstr("[1e-30, 1e30]")) << text;
    EXPECT_THAT(refusal("all | integer(1, feedback=scaled)"), HasSubstr("allowed is unscaled or none"));
    EXPECT_THAT(refusal("all | integer(1, biased, none)"), HasSubstr("none of its own with mode=biased"));
    EXPECT_THAT(refusal("topk(0.1) | integer(1, unbiased, none)"), HasSubstr("allowed is unscaled after a selector"));
    EXPECT_THAT(refusal("randk(0.1, none) | integer(1, biased)"), HasSubstr("rounds at random without bias"));
    EXPECT_THAT(refusal("all | exponential_dither(0)"), HasSubstr("[1, 127]"));
    EXPECT_THAT(refusal("all | exponential_dither(levels=127, base=2.1)"), HasSubstr("up to 2^126"));
    EXPECT_EQ(canonical("all | exponential_dither(127)").substr(0, 29), "all | exponential_dither(leve");
    for (const char* text : {"all | ternary(0.9)", "all | ternary(65)", "all | ternary(clip=off)"})
        EXPECT_THAT(refusal(text), HasSubstr("none or [1, 64]")) << text;
    EXPECT_THAT(refusal("topk"), HasSubstr("ratio 'missing'"));
    EXPECT_THAT(refusal("variance_hybrid(alpha=2)"), HasSubstr("tau 'missing'"));
    EXPECT_THAT(refusal("threshold"), HasSubstr("tau 'missing'"));
}
TEST(Pipeline, Unknown_names_are_refused_with_the_nearest_known_one) {
    EXPECT_THAT(refusal("varience"), HasSubstr("did you mean variance?"));
    EXPECT_THAT(refusal("top-k(0.1)"), HasSubstr("did you mean topk?"));
    EXPECT_THAT(refusal("all | bf61"), HasSubstr("did you mean bf16?"));
    EXPECT_THAT(refusal("topk(0.1) | pow2 | ricee"), HasSubstr("did you mean rice?"));
    EXPECT_THAT(refusal("variance(alfa=1)"), HasSubstr("did you mean alpha?"));
    EXPECT_THAT(refusal("variance(mode=faithfull)"), HasSubstr("did you mean faithful?"));
    EXPECT_THAT(refusal("topk(0.1, scope=tile)"), HasSubstr("allowed is tensor"));
    EXPECT_THAT(refusal("all | dither(norm=l1)"), HasSubstr("allowed is max or l2"));
    EXPECT_THAT(refusal("all | dither(feedback=off)"), HasSubstr("allowed is scaled or unscaled or none"));
    EXPECT_THAT(refusal("all(1)"), HasSubstr("allowed is none"));
    EXPECT_THAT(refusal("topk(0.1) | f32 | rice(6)"), HasSubstr("allowed is none"));
}
TEST(Pipeline, Malformed_texts_are_refused) {
    for (const char* text : {"",
                             " ",
                             "|",
                             "all |",
                             "| f32",
                             "topk(0.1",
                             "topk 0.1)",
                             "topk((0.1))",
                             "topk(0.1))",
                             "topk(0.1,)",
                             "topk(=0.1)",
                             "topk(ratio=)",
                             "topk(gate=1, 0.1)",
                             "topk(0.1, ratio=0.2)",
                             "topk(0.1, tensor, 1, 2)",
                             "topk(ratio=0.1, ratio=0.1)",
                             "all | f32 | auto | auto",
                             "all all",
                             "f32",
                             "rice",
                             "f32 | all",
                             "all | auto | f32",
                             "all | f32 | bf16",
                             "topk(0.1)x | f32"})
        EXPECT_THAT(refusal(text), HasSubstr("allowed is")) << text;
    EXPECT_THAT(refusal(std::string(600, 'a')), HasSubstr("at most 512"));
    EXPECT_THAT(refusal("rice | all"), HasSubstr("its role is index coder"));
}
TEST(Pipeline, Combinations_without_sense_are_refused_in_words) {
    EXPECT_THAT(refusal("topk(0.1) | sign(scale=tau)"), HasSubstr("variance_hybrid(0.01) or threshold(0.01)"));
    EXPECT_THAT(refusal("topk(0.1) | sign(scale=none)"),
                HasSubstr("codec stage sign: scale 'none': allowed is mean, two_mean or a number after a selector but "
                          "all"));
    EXPECT_THAT(refusal("variance_hybrid(0.1) | sign(two_mean)"), HasSubstr("allowed is sign(scale=tau)"));
    EXPECT_THAT(refusal("all | sign(none, feedback=scaled)"), HasSubstr("codec stage sign: parameter 'feedback'"));
    EXPECT_THAT(refusal("all | sign(none) | rice"), HasSubstr("no indices"));
    EXPECT_THAT(refusal("variance_hybrid(0.1) | f32"), HasSubstr("allowed is sign(scale=tau)"));
    EXPECT_THAT(refusal("variance_hybrid(0.1) | sign"), HasSubstr("allowed is sign(scale=tau)"));
    EXPECT_THAT(refusal("variance_hybrid(0.1) | sign(scale=0.2)"), HasSubstr("allowed is sign(scale=tau)"));
    EXPECT_THAT(refusal("topk(0.1) | dither(feedback=none)"), HasSubstr("after a selector that keeps a residual"));
    EXPECT_THAT(refusal("variance(mode=faithful) | dither(feedback=scaled)"), HasSubstr("none after mode=faithful"));
    EXPECT_EQ(canonical("variance(1, 1, faithful) | dither"),
              "variance(alpha=1, zeta=1, mode=faithful) | dither(levels=7, norm=max, feedback=none) | auto");
    EXPECT_EQ(canonical("all | dither(127, l2, none)"), "all | dither(levels=127, norm=l2, feedback=none) | auto");
    EXPECT_THAT(refusal("topk(0.1) | natural(none)"), HasSubstr("codec stage natural: feedback 'none'"));
    EXPECT_THAT(refusal("variance(mode=faithful) | natural(unscaled)"), HasSubstr("none after mode=faithful"));
    EXPECT_EQ(canonical("variance(1, 1, faithful) | natural"),
              "variance(alpha=1, zeta=1, mode=faithful) | natural(feedback=none) | auto");
    EXPECT_THAT(refusal("all | natural(levels=3)"), HasSubstr("allowed is feedback"));
    EXPECT_THAT(refusal("all | rounding(mode=biased, feedback=none)"), HasSubstr("codec stage rounding: feedback"));
    EXPECT_THAT(refusal("all | rounding(levels=3)"), HasSubstr("allowed is base, mode, feedback"));
    EXPECT_THAT(refusal("all | exponential_dither(mode=biased, feedback=none)"), HasSubstr("errors are kept"));
    EXPECT_THAT(refusal("topk(0.1) | exponential_dither(feedback=none)"), HasSubstr("exponential_dither: feedback"));
    EXPECT_THAT(refusal("topk(0.1) | ternary(feedback=none)"), HasSubstr("codec stage ternary: feedback 'none'"));
    EXPECT_THAT(refusal("all | natural | rice"), HasSubstr("no indices"));
    EXPECT_THAT(refusal("all | dither | rice"), HasSubstr("no indices"));
    EXPECT_THAT(refusal("all | f32 | rice"), HasSubstr("no indices"));
    EXPECT_EQ(canonical("all | pow2 | rice"), "all | pow2(bits=4, scope=tile) | rice") << "pow2 leaves elements out";
}

TEST(Pipeline, Random_selectors_refuse_what_would_not_mean_what_it_says) {
    EXPECT_THAT(refusal("randk(0.1) | pow2"), HasSubstr("one with a code for zero"));
    EXPECT_THAT(refusal("bernoulli(0.1) | f32 | rice"), HasSubstr("a key is sent in place of indices"));
    EXPECT_THAT(refusal("biased_random(0.1, 0.2) | bitmap"), HasSubstr("a key is sent in place of indices"));
    EXPECT_THAT(refusal("randk(0.1, none) | bf16"), HasSubstr("f32 or one that rounds at random without bias"));
    EXPECT_THAT(refusal("bernoulli(0.1, none) | sign"), HasSubstr("f32 or one that rounds at random without bias"));
    EXPECT_THAT(refusal("randk(0.1, none) | natural(scaled)"), HasSubstr("none after a selector with feedback=none"));
    EXPECT_THAT(refusal("randk(0.1) | natural(none)"), HasSubstr("scaled or unscaled"));
    EXPECT_THAT(refusal("randk(0.1, unscaled)"), HasSubstr("scaled or none"));
    EXPECT_THAT(refusal("adaptive_random(0.1) | pow2(scope=tensor)"), HasSubstr("need not be among those drawn"));
    for (const char* text : {"bernoulli(0)", "bernoulli(1.1)", "bernoulli(p=nan)", "biased_random(0.1, 0)"})
        EXPECT_THAT(refusal(text), HasSubstr("[2^-32, 1]")) << text;
    EXPECT_THAT(refusal("biased_random(0.1)"), HasSubstr("last 'missing'"));
    EXPECT_THAT(refusal("randk"), HasSubstr("ratio 'missing'"));
}
TEST(Pipeline, State_arrays_follow_from_the_stages) {
    const auto state = [](std::string_view text) {
        const auto pipeline = *parse_pipeline(text);
        return std::pair(has_residual(pipeline), has_variance(pipeline));
    };
    EXPECT_EQ(state("all | f32"), std::pair(false, false));
    EXPECT_EQ(state("all | f16"), std::pair(true, false));
    EXPECT_EQ(state("all | bf16"), std::pair(true, false));
    EXPECT_EQ(state("all | dither"), std::pair(true, false));
    EXPECT_EQ(state("all | dither(feedback=none)"), std::pair(false, false));
    EXPECT_EQ(state("all | natural"), std::pair(true, false));
    EXPECT_EQ(state("all | natural(unscaled)"), std::pair(true, false));
    EXPECT_EQ(state("all | natural(none)"), std::pair(false, false));
    EXPECT_EQ(state("topk(0.1)"), std::pair(true, false));
    EXPECT_EQ(state("topk(0.1, gate=1)"), std::pair(true, true));
    EXPECT_EQ(state("threshold(1)"), std::pair(true, false));
    EXPECT_EQ(state("block_topk(0.1)"), std::pair(true, false));
    EXPECT_EQ(state("gaussian_k(0.1)"), std::pair(true, false));
    EXPECT_EQ(state("sidco(0.1)"), std::pair(true, false));
    EXPECT_EQ(state("randk(0.1)"), std::pair(true, false));
    EXPECT_EQ(state("randk(0.1, none)"), std::pair(false, false));
    EXPECT_EQ(state("bernoulli(0.1, none) | dither"), std::pair(false, false));
    EXPECT_EQ(state("biased_random(0.1, 1)"), std::pair(true, false));
    EXPECT_EQ(state("adaptive_random(0.1)"), std::pair(true, false));
    EXPECT_EQ(state("variance"), std::pair(true, true));
    EXPECT_EQ(state("variance_hybrid(1)"), std::pair(true, true));
}

rc::Gen<double> number_in(double low, double high) {
    return rc::gen::map(rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 53U), [=](std::int64_t position) {
        return low + (high - low) * static_cast<double>(position) * 0x1p-53;
    });
}

TEST(Pipeline, Canonical_text_parses_back_to_the_same_pipeline) {
    EXPECT_TRUE(rc::check("round trip", [] {
        Pipeline pipeline;
        auto& selector = pipeline.selector;
        selector.kind = static_cast<SelectorKind>(*rc::gen::inRange(0, 12));
        if (selector.kind == SelectorKind::kVariance || selector.kind == SelectorKind::kVarianceHybrid) {
            selector.alpha = *number_in(0, 1e6);
            selector.zeta = 1 - *number_in(0, 0.999);
            selector.is_faithful = selector.kind == SelectorKind::kVariance && *rc::gen::arbitrary<bool>();
        }
        const bool has_tau =
            selector.kind == SelectorKind::kVarianceHybrid || selector.kind == SelectorKind::kThreshold;
        if (has_tau) selector.tau = *number_in(1e-12, 10);
        if (selector.kind == SelectorKind::kGaussianK || selector.kind == SelectorKind::kSidco ||
            selector.kind == SelectorKind::kRandK)
            selector.ratio = 1 - *number_in(0, 0.9999999);
        if (selector.kind == SelectorKind::kSidco) selector.stages = *rc::gen::inRange(1, 9);
        if (selector.kind == SelectorKind::kBernoulli || selector.kind == SelectorKind::kBiasedRandom)
            selector.probability = *number_in(0x1p-32, 1);
        if (selector.kind == SelectorKind::kBiasedRandom) selector.last_probability = *number_in(0x1p-32, 1);
        if (selector.kind == SelectorKind::kBlockTopK || selector.kind == SelectorKind::kAdaptiveRandom) {
            selector.ratio = 1 - *number_in(0, 0.9999999);
            selector.block = 1 << *rc::gen::inRange(6, 13);
        }
        if (selector.kind == SelectorKind::kTopK) {
            selector.ratio = 1 - *number_in(0, 0.9999999);
            selector.gate = *number_in(0, 9);
        }
        auto& quantizer = pipeline.quantizer;
        quantizer.kind = *rc::gen::element(
            QuantizerKind::kF32, QuantizerKind::kF16, QuantizerKind::kBf16, QuantizerKind::kPow2, QuantizerKind::kSign,
            QuantizerKind::kTwoMean, QuantizerKind::kVote, QuantizerKind::kNatural, QuantizerKind::kDither,
            QuantizerKind::kExponentialDither, QuantizerKind::kMinMax, QuantizerKind::kInteger);
        if (selector.kind == SelectorKind::kVarianceHybrid) quantizer.kind = QuantizerKind::kSign;
        if (quantizer.kind == QuantizerKind::kMinMax && selector.kind != SelectorKind::kAll)
            quantizer.kind = QuantizerKind::kBf16;
        if (quantizer.kind == QuantizerKind::kMinMax) {
            quantizer.bits = *rc::gen::inRange(2, 9);
            quantizer.bucket = 1 << *rc::gen::inRange(6, 13);
        }
        if (quantizer.kind == QuantizerKind::kVote && selector.kind != SelectorKind::kAll)
            quantizer.kind = QuantizerKind::kTwoMean;
        if (quantizer.kind == QuantizerKind::kVote) quantizer.feedback = Feedback::kNone;
        if (is_keyed(selector) && (quantizer.kind == QuantizerKind::kPow2 || quantizer.kind == QuantizerKind::kTwoMean))
            quantizer.kind = QuantizerKind::kF16;
        const bool may_drop = selector.kind == SelectorKind::kRandK || selector.kind == SelectorKind::kBernoulli;
        if (may_drop && (quantizer.kind == QuantizerKind::kF32 || quantizer.kind == QuantizerKind::kNatural))
            selector.feedback = *rc::gen::element(Feedback::kScaled, Feedback::kNone);
        if (quantizer.kind == QuantizerKind::kPow2) {
            quantizer.bits = *rc::gen::inRange(2, 9);
            if (selector.kind != SelectorKind::kAdaptiveRandom)
                quantizer.scope = static_cast<Scope>(*rc::gen::inRange(0, 2));
        }
        if (quantizer.kind == QuantizerKind::kDither) {
            quantizer.levels = *rc::gen::element(1, 1, 2, 7, 127);
            quantizer.norm = *rc::gen::element(Norm::kMax, Norm::kL2);
            if (quantizer.levels == 1 && quantizer.norm == Norm::kMax) quantizer.clip = 64 - *number_in(0, 63);
        }
        if (quantizer.kind == QuantizerKind::kExponentialDither) {
            quantizer.levels = *rc::gen::inRange(1, 33);
            quantizer.base = static_cast<float>(*number_in(1.11, 15));
            quantizer.norm = *rc::gen::element(Norm::kMax, Norm::kL2);
            quantizer.is_biased = *rc::gen::arbitrary<bool>();
        }
        if (is_random(quantizer)) {
            quantizer.feedback = *rc::gen::element(Feedback::kScaled, Feedback::kUnscaled);
            if (drops_errors(selector)) quantizer.feedback = Feedback::kNone;
            if (selector.kind == SelectorKind::kAll && *rc::gen::arbitrary<bool>())
                quantizer.feedback = Feedback::kNone;
        }
        if (quantizer.kind == QuantizerKind::kInteger) {
            quantizer.scale = *number_in(1e-9, 1e9);
            if (quantizer.feedback == Feedback::kScaled) quantizer.feedback = Feedback::kUnscaled;
            quantizer.is_biased = quantizer.feedback == Feedback::kUnscaled && *rc::gen::arbitrary<bool>();
        }
        if (quantizer.kind == QuantizerKind::kSign && *rc::gen::arbitrary<bool>()) quantizer.tau = *number_in(1e-9, 9);
        if (selector.kind == SelectorKind::kVarianceHybrid) quantizer.tau = selector.tau;
        if ((selector.kind != SelectorKind::kAll && !is_keyed(selector)) || quantizer.kind == QuantizerKind::kPow2)
            pipeline.index_coder = static_cast<IndexCoderKind>(*rc::gen::inRange(0, 5));
        const auto text = canonical_text(pipeline, Knobs::kKeep);
        const auto parsed = parse_pipeline(text);
        if (!parsed.is_ok()) RC_FAIL(text + ": " + parsed.error().to_string());
        RC_ASSERT(*parsed == pipeline);
        RC_ASSERT(canonical_text(*parsed, Knobs::kKeep) == text);
    }));
}
TEST(Pipeline, Any_text_is_parsed_or_refused) {
    EXPECT_TRUE(rc::check("no text does harm", [](const std::vector<std::uint8_t>& picks) {
        static constexpr std::string_view kPieces[] = {"all",  "topk", "variance", "pow2",  "sign",  "(",   ")",
                                                       ",",    "=",    "|",        "0.1",   "scale", "tau", "bits",
                                                       "rice", " ",    "-",        "1e999", "\xff"};
        std::string text;
        for (const auto pick : picks) text += kPieces[pick % std::size(kPieces)];
        const auto parsed = parse_pipeline(text);
        if (parsed.is_ok()) RC_ASSERT(*parse_pipeline(canonical_text(*parsed, Knobs::kKeep)) == *parsed);
    }));
}

}  // namespace
}  // namespace gradsieve::codec
