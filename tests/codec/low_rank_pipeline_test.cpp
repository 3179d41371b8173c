// lowrank as text, and which tensors it becomes what for.
#include "codec/stages/low_rank.hpp"

#include <gtest/gtest.h>

namespace gradsieve::codec {
namespace {

std::string canonical(std::string_view text) {
    const auto pipeline = parse_pipeline(text);
    return pipeline.is_ok() ? canonical_text(*pipeline, Knobs::kKeep) : pipeline.status().text();
}
std::string settled(std::string_view text, const std::vector<std::uint64_t>& shape) {
    return canonical_text(settle_low_rank(*parse_pipeline(text), shape), Knobs::kKeep);
}
bool refuses(std::string_view text, std::string_view part) {
    const auto pipeline = parse_pipeline(text);
    return !pipeline.is_ok() && pipeline.status().code() == StatusCode::kInvalidArgument &&
           pipeline.status().text().find(part) != std::string::npos;
}

TEST(LowRankPipeline, Texts_have_one_spelling) {
    EXPECT_EQ(canonical("lowrank"), "lowrank(rank=1, columns=auto)");
    EXPECT_EQ(canonical("lowrank(4, 512)"), "lowrank(rank=4, columns=512)");
    EXPECT_EQ(canonical("lowrank(columns=square, rank=2)"), "lowrank(rank=2, columns=square)");
    EXPECT_EQ(canonical("similarity | momentum | accumulate(2) | lowrank(2)"),
              "similarity | momentum(m=0.9, nesterov=no, clip=none) | accumulate(n=2) | lowrank(rank=2, columns=auto)");
    for (const char* text : {"lowrank", "lowrank(64, 1073741824)", "compensate(0.5) | lowrank(3, square)"}) {
        const auto pipeline = parse_pipeline(text);
        ASSERT_TRUE(pipeline.is_ok()) << pipeline.status().to_string();
        EXPECT_EQ(*parse_pipeline(canonical_text(*pipeline, Knobs::kKeep)), *pipeline);
        EXPECT_TRUE(has_residual(*pipeline));
        EXPECT_TRUE(has_phases(*pipeline));
        EXPECT_FALSE(has_variance(*pipeline));
    }
    EXPECT_EQ(canonical_text(*parse_pipeline("lowrank(4)"), Knobs::kBlank), "lowrank(rank=4, columns=auto)")
        << "nodes must agree on it";
}
TEST(LowRankPipeline, Wrong_texts_say_what_is_allowed) {
    EXPECT_TRUE(refuses("lowrank(0)", "a whole number in [1, 64]"));
    EXPECT_TRUE(refuses("lowrank(65)", "a whole number in [1, 64]"));
    EXPECT_TRUE(refuses("lowrank(1.5)", "a whole number in [1, 64]"));
    EXPECT_TRUE(refuses("lowrank(1, 0)", "auto, square or a whole number in [1, 2^30]"));
    EXPECT_TRUE(refuses("lowrank(1, 2.5)", "auto, square or a whole number in [1, 2^30]"));
    EXPECT_TRUE(refuses("lowrank(1, wide)", "columns"));
    EXPECT_TRUE(refuses("lowrank(1, 2, 3)", "lowrank"));
    EXPECT_TRUE(refuses("lowrank | bf16", "codec stage behind lowrank"));
    EXPECT_TRUE(refuses("lowrank | auto", "in place of selector, quantizer and index coder"));
    EXPECT_TRUE(refuses("topk(0.1) | lowrank", "in place of selector, quantizer and index coder"));
    EXPECT_TRUE(refuses("lowrnk(2)", "did you mean lowrank?"));
}
TEST(LowRankPipeline, Shape_gives_the_columns) {
    EXPECT_EQ(settled("lowrank(4)", {256, 512}), "lowrank(rank=4, columns=512)");
    EXPECT_EQ(settled("lowrank(2)", {64, 3, 7, 7}), "lowrank(rank=2, columns=147)");
    EXPECT_EQ(settled("lowrank(2, columns=100)", {256, 512}), "lowrank(rank=2, columns=100)");
    EXPECT_EQ(settled("lowrank(2, columns=square)", {1, 10000}), "lowrank(rank=2, columns=100)");
    EXPECT_EQ(settled("lowrank(2, columns=square)", {10001}), "lowrank(rank=2, columns=101)");
    EXPECT_EQ(settled("lowrank(2, columns=50)", {10000}), "lowrank(rank=2, columns=50)");
    EXPECT_EQ(settled("topk(0.1)", {256, 512}), "topk(ratio=0.1, scope=tensor, gate=0) | f32 | auto");
}
TEST(LowRankPipeline, Vectors_and_what_is_not_halved_go_as_they_are) {
    EXPECT_EQ(settled("lowrank(4)", {100000}), "all | f32 | auto");
    EXPECT_EQ(settled("lowrank(4)", {}), "all | f32 | auto");
    EXPECT_EQ(settled("lowrank(4)", {0, 5}), "all | f32 | auto");
    EXPECT_EQ(settled("lowrank(4)", {1, 4096}), "all | f32 | auto");
    EXPECT_EQ(settled("lowrank(4)", {16, 16}), "all | f32 | auto") << "(16 + 16) 4 2 = 256";
    EXPECT_EQ(settled("lowrank(4)", {17, 17}), "lowrank(rank=4, columns=17)") << "(17 + 17) 4 2 < 289";
    EXPECT_EQ(settled("momentum | compensate(0.5) | accumulate(3) | lowrank(4)", {7}),
              "momentum(m=0.9, nesterov=no, clip=none) | all | f32 | auto");
    EXPECT_EQ(settled("lowrank(columns=1000000)", {10, 10}), "all | f32 | auto") << "more columns than elements";
}

}  // namespace
}  // namespace gradsieve::codec
