// sketch as text, and which tensors it becomes what for.
#include "codec/settle_whole.hpp"
#include "codec/stages/sketch.hpp"

#include <gtest/gtest.h>

namespace gradsieve::codec {
namespace {

std::string canonical(std::string_view text) {
    const auto pipeline = parse_pipeline(text);
    return pipeline.is_ok() ? canonical_text(*pipeline, Knobs::kKeep) : pipeline.status().text();
}
std::string settled(std::string_view text, const std::vector<std::uint64_t>& shape) {
    return canonical_text(settle_whole(*parse_pipeline(text), shape), Knobs::kKeep);
}
bool refuses(std::string_view text, std::string_view part) {
    const auto pipeline = parse_pipeline(text);
    return !pipeline.is_ok() && pipeline.status().code() == StatusCode::kInvalidArgument &&
           pipeline.status().text().find(part) != std::string::npos;
}

TEST(SketchPipeline, Texts_have_one_spelling) {
    EXPECT_EQ(canonical("sketch(0.01)"), "sketch(ratio=0.01, rows=5, columns=auto)");
    EXPECT_EQ(canonical("sketch(0.01, 3, 5000)"), "sketch(ratio=0.01, rows=3, columns=5000)");
    EXPECT_EQ(canonical("sketch(columns=auto, ratio=0.001, rows=7)"), "sketch(ratio=0.001, rows=7, columns=auto)");
    EXPECT_EQ(canonical("similarity | momentum | accumulate(2) | sketch(0.01)"),
              "similarity | momentum(m=0.9, nesterov=no, clip=none) | accumulate(n=2) | sketch(ratio=0.01, rows=5, "
              "columns=auto)");
    for (const char* text : {"sketch(0.01)", "sketch(0.25, 1, 67108864)", "compensate(0.5) | sketch(0.02, 3)"}) {
        const auto pipeline = parse_pipeline(text);
        ASSERT_TRUE(pipeline.is_ok()) << pipeline.status().to_string();
        EXPECT_EQ(*parse_pipeline(canonical_text(*pipeline, Knobs::kKeep)), *pipeline);
        EXPECT_TRUE(has_residual(*pipeline));
        EXPECT_TRUE(has_phases(*pipeline));
        EXPECT_FALSE(has_factor(*pipeline));
        EXPECT_FALSE(has_variance(*pipeline));
    }
    EXPECT_EQ(canonical_text(*parse_pipeline("sketch(0.01)"), Knobs::kBlank),
              "sketch(ratio=0.01, rows=5, columns=auto)")
        << "nodes must agree on it";
}
TEST(SketchPipeline, Wrong_texts_say_what_is_allowed) {
    EXPECT_TRUE(refuses("sketch", "ratio"));
    EXPECT_TRUE(refuses("sketch(0)", "(0, 0.25]"));
    EXPECT_TRUE(refuses("sketch(0.3, 1)", "(0, 0.25]"));
    EXPECT_TRUE(refuses("sketch(nan)", "(0, 0.25]"));
    EXPECT_TRUE(refuses("sketch(0.01, 0)", "1, 3, 5 or 7"));
    EXPECT_TRUE(refuses("sketch(0.01, 4)", "1, 3, 5 or 7"));
    EXPECT_TRUE(refuses("sketch(0.01, 9)", "1, 3, 5 or 7"));
    EXPECT_TRUE(refuses("sketch(0.01, 2.5)", "1, 3, 5 or 7"));
    EXPECT_TRUE(refuses("sketch(0.01, 5, 63)", "auto or a whole number in [64, 2^26]"));
    EXPECT_TRUE(refuses("sketch(0.01, 5, 100.5)", "auto or a whole number in [64, 2^26]"));
    EXPECT_TRUE(refuses("sketch(0.01, 5, 67108865)", "auto or a whole number in [64, 2^26]"));
    EXPECT_TRUE(refuses("sketch(0.01, 5, square)", "columns"));
    EXPECT_TRUE(refuses("sketch(0.1)", "less than 0.08333333333333333 with 5 rows and columns=auto"));
    EXPECT_TRUE(refuses("sketch(0.25, 1)", "less than 0.25 with 1 row and columns=auto"));
    EXPECT_TRUE(parse_pipeline("sketch(0.1, 3)").is_ok());
    EXPECT_TRUE(parse_pipeline("sketch(0.1, 5, 1000)").is_ok());
    EXPECT_TRUE(refuses("sketch(0.01) | bf16", "codec stage behind sketch"));
    EXPECT_TRUE(refuses("topk(0.1) | sketch(0.01)", "in place of selector, quantizer and index coder"));
    EXPECT_TRUE(refuses("rotate | sketch(0.01)", "codec after rotate"));
    EXPECT_TRUE(refuses("rotate | lowrank", "codec after rotate"));
    EXPECT_TRUE(refuses("sktch(0.1)", "did you mean sketch?"));
}
TEST(SketchPipeline, Elements_give_the_shape) {
    const auto shape = sketch_shape(*parse_pipeline("sketch(0.01)"), 1'000'000);
    EXPECT_EQ(shape.kept, 10'000U);
    EXPECT_EQ(shape.columns, 10'000U);
    EXPECT_EQ(shape.rows, 5U);
    EXPECT_EQ(shape.block, 1024U);
    const auto small = sketch_shape(*parse_pipeline("sketch(0.01, 3)"), 20);
    EXPECT_EQ(small.kept, 1U);
    EXPECT_EQ(small.columns, 64U);
    EXPECT_EQ(small.block, 64U);
    EXPECT_EQ(sketch_shape(*parse_pipeline("sketch(0.01, 3, 1000)"), 3000).block, 512U);
    EXPECT_EQ(sketch_shape(*parse_pipeline("sketch(0.01, 3, 67108864)"), 3000).columns, 3000U);
    EXPECT_EQ(sketch_shape(*parse_pipeline("sketch(0.01, 3, 1000)"), 20).columns, 64U);
    EXPECT_EQ(sketch_shape(*parse_pipeline("sketch(0.01)"), 0).cells(), 0U);
}
TEST(SketchPipeline, Tensors_that_it_would_not_halve_go_as_they_are) {
    EXPECT_EQ(settled("sketch(0.01)", {1000, 1000}), "sketch(ratio=0.01, rows=5, columns=auto)");
    EXPECT_EQ(settled("sketch(0.01)", {1'000'000}), "sketch(ratio=0.01, rows=5, columns=auto)");
    EXPECT_EQ(settled("sketch(0.01)", {653}), "sketch(ratio=0.01, rows=5, columns=auto)") << "2 (5 64 + 6) < 653";
    EXPECT_EQ(settled("sketch(0.01)", {652}), "all | f32 | auto");
    EXPECT_EQ(settled("sketch(0.01)", {}), "all | f32 | auto");
    EXPECT_EQ(settled("sketch(0.01)", {0, 5}), "all | f32 | auto");
    EXPECT_EQ(settled("sketch(0.01, 3, 20000)", {100'000}), "all | f32 | auto");
    EXPECT_EQ(settled("momentum | compensate(0.5, 2) | accumulate(3) | sketch(0.01)", {7}),
              "momentum(m=0.9, nesterov=no, clip=none) | compensate(beta=1, gamma=2, lowpass=1) | all | f32 | auto");
    EXPECT_EQ(settled("lowrank(4)", {256, 512}), "lowrank(rank=4, columns=512)");
}

}  // namespace
}  // namespace gradsieve::codec
