// Which pipelines have a density, and what moving it does to them.
#include "codec/density.hpp"

#include <gmock/gmock.h>

namespace gradsieve::codec {
namespace {

using testing::HasSubstr;

Pipeline pipeline(std::string_view text) {
    const auto parsed = parse_pipeline(text);
    EXPECT_TRUE(parsed.is_ok()) << text;
    return parsed.value_or(Pipeline{});
}
std::string moved(std::string_view text, double density) {
    return canonical_text(at_density(pipeline(text), density), Knobs::kKeep);
}
std::string written(std::string_view text) { return canonical_text(pipeline(text), Knobs::kKeep); }

TEST(Density, Shares_are_multiplied_and_thresholds_divided) {
    EXPECT_EQ(moved("topk(0.01) | pow2", 2), written("topk(0.02) | pow2"));
    EXPECT_EQ(moved("momentum(0.9) | topk(0.01) | f32", 0.5), written("momentum(0.9) | topk(0.005) | f32"));
    EXPECT_EQ(moved("block_topk(0.5, block=64) | f32", 4), written("block_topk(1, block=64) | f32"));
    EXPECT_EQ(moved("gaussian_k(0.01)", 4), written("gaussian_k(0.04)"));
    EXPECT_EQ(moved("sidco(0.01, stages=2)", 4), written("sidco(0.04, stages=2)"));
    EXPECT_EQ(moved("adaptive_random(0.25)", 0.5), written("adaptive_random(0.125)"));
    EXPECT_EQ(moved("variance(alpha=3) | pow2", 2), written("variance(alpha=1.5) | pow2"));
    EXPECT_EQ(moved("threshold(0.5) | f32", 4), written("threshold(0.125) | f32"));
}
TEST(Density, What_is_sent_as_the_threshold_moves_with_it) {
    EXPECT_EQ(moved("threshold(0.5)", 4), written("threshold(0.125)"));
    EXPECT_EQ(moved("variance_hybrid(0.5)", 2), written("variance_hybrid(0.25)"));
    EXPECT_EQ(moved("threshold(0.5) | sign(scale=0.25)", 4), written("threshold(0.125) | sign(scale=0.25)"));
}
TEST(Density, Numbers_stay_where_a_text_could_have_them) {
    EXPECT_EQ(moved("threshold(1e30)", 1e-9), written("threshold(1e30)"));
    EXPECT_EQ(moved("threshold(1e-30)", 1e9), written("threshold(1e-30)"));
    for (const double density : {1e-6, 1e-3, 1.0, 1e3, 1e6})
        for (const auto* text : {"topk(0.01)", "threshold(1)", "variance_hybrid(1e-3)", "variance(2)", "sidco(0.5)"}) {
            const auto one = moved(text, density);
            EXPECT_EQ(canonical_text(pipeline(one), Knobs::kKeep), one);
            EXPECT_EQ(canonical_text(pipeline(one), Knobs::kBlank), canonical_text(pipeline(text), Knobs::kBlank))
                << "nodes at other densities agree";
        }
}
TEST(Density, Limits_are_where_moving_changes_nothing_any_more) {
    const auto topk = density_limits(pipeline("topk(0.01)"), 10'000);
    EXPECT_DOUBLE_EQ(topk.least, 0.01);
    EXPECT_DOUBLE_EQ(topk.most, 100);
    EXPECT_DOUBLE_EQ(density_limits(pipeline("topk(0.01)"), 10).least, 1) << "one element is sent as it is";
    EXPECT_DOUBLE_EQ(density_limits(pipeline("block_topk(0.5, block=64)"), 10'000).least, 2.0 / 64);
    EXPECT_LT(density_limits(pipeline("variance(2)"), 10).least, 1e-6);
    EXPECT_GT(density_limits(pipeline("threshold(2)"), 10).most, 1e6);
    EXPECT_EQ(density_limits(pipeline("all | f32"), 10).most, 1);
}
TEST(Density, Responses_tell_how_soon_a_move_shows) {
    EXPECT_EQ(density_response(pipeline("topk(0.01)")).value(), DensityResponse::kExact);
    EXPECT_EQ(density_response(pipeline("topk(0.01, gate=1)")).value(), DensityResponse::kGradual);
    EXPECT_EQ(density_response(pipeline("delta | block_topk(0.01)")).value(), DensityResponse::kExact);
    EXPECT_EQ(density_response(pipeline("gaussian_k(0.01)")).value(), DensityResponse::kEstimated);
    EXPECT_EQ(density_response(pipeline("variance(1)")).value(), DensityResponse::kGradual);
}
TEST(Density, Codecs_without_a_number_of_their_own_are_refused_with_the_reason) {
    const auto reason = [](std::string_view text) { return density_response(pipeline(text)).status().to_string(); };
    EXPECT_EQ(
        reason("all | bf16"),
        "invalid-argument: budget with codec 'all | bf16 | auto': allowed is a selector whose number each node may "
        "move alone: topk, block_topk, gaussian_k, sidco, adaptive_random, variance, variance_hybrid or threshold; "
        "all sends every element: take a selector, or leave the budget out");
    EXPECT_THAT(reason("lowrank(4)"), HasSubstr("factors and sketches of one size"));
    EXPECT_THAT(reason("sketch(0.01)"), HasSubstr("factors and sketches of one size"));
    EXPECT_THAT(reason("topk(0.01, scope=model)"), HasSubstr("leave scope=model out"));
    for (const auto* text : {"randk(0.01)", "bernoulli(0.01)", "biased_random(0.1, 0.01)"})
        EXPECT_THAT(reason(text), HasSubstr("with the same number on every node"));
    EXPECT_THAT(reason("warmup(100) | topk(0.01)"), HasSubstr("leave one of the two out"));
    EXPECT_THAT(reason("variance(0)"), HasSubstr("alpha = 0 sends everything"));
    EXPECT_THAT(reason("similarity(skip=0.5) | all | sign"), HasSubstr("all sends every element"));
    EXPECT_EQ(moved("all | bf16", 3), written("all | bf16"));
    EXPECT_EQ(density_text(pipeline("all | bf16")), "");
    EXPECT_EQ(density_text(pipeline("topk(0.0123456)")), "ratio = 0.0123");
    EXPECT_EQ(density_text(pipeline("variance(3)")), "alpha = 3");
}

}  // namespace
}  // namespace gradsieve::codec
