#include "codec/pipeline.hpp"

#include <gtest/gtest.h>

#include <set>

namespace gradsieve::codec {
namespace {

TEST(StageTable, Every_row_names_a_stage_that_parses_in_its_role) {
    std::set<std::string_view> names;
    for (const StageRow& row : stage_table()) {
        EXPECT_TRUE(names.insert(row.name).second) << row.name << " stands twice";
        EXPECT_FALSE(row.meaning.empty()) << row.name;
        EXPECT_FALSE(row.source.empty()) << row.name;
        std::string text(row.name);
        if (row.role == "front")
            text += std::string(row.parameters == "n" || row.name == "warmup" ? "(4)" : "") +
                    (row.name == "rotate" ? " | all | sign" : " | topk(0.1)");
        else if (row.role == "whole codec")
            text += row.name == "sketch" ? "(0.01)" : "(2)";
        else if (row.role == "selector")
            text += row.name == "biased_random" ? "(0.1, 0.2)"
                    : row.parameters.starts_with("tau") || row.parameters.starts_with("ratio") ||
                            row.parameters.starts_with("p,")
                        ? "(0.1)"
                        : "";
        else if (row.name == "integer")
            text = "topk(0.1) | integer(100)";
        else
            text = (row.name == "minmax" ? "all | " : "topk(0.1) | ") +
                   std::string(row.role == "entropy coder" ? "natural | " : "") + text;
        const auto pipeline = parse_pipeline(text);
        EXPECT_TRUE(pipeline.is_ok()) << text << ": " << pipeline.status().to_string();
    }
    EXPECT_EQ(names.size(), 39U);
}
TEST(StageTable, Defaults_in_the_table_are_the_parser_s) {
    for (const StageRow& row : stage_table()) {
        if (row.name == "variance") {
            EXPECT_EQ(*parse_pipeline("variance(alpha=1.5, zeta=0.999, mode=conserving)"), *parse_pipeline("variance"));
            EXPECT_EQ(row.parameters, "alpha=1.5, zeta=0.999, mode=conserving|faithful");
        }
        if (row.name == "warmup") {
            EXPECT_EQ(*parse_pipeline("warmup(9, from=0.25) | topk(0.1)"), *parse_pipeline("warmup(9) | topk(0.1)"));
            EXPECT_EQ(row.parameters, "steps, from=0.25");
        }
        if (row.name == "lowrank") {
            EXPECT_EQ(*parse_pipeline("lowrank(rank=1, columns=auto)"), *parse_pipeline("lowrank"));
            EXPECT_EQ(row.parameters, "rank=1, columns=auto|square|number");
        }
        if (row.name == "sketch") {
            EXPECT_EQ(*parse_pipeline("sketch(0.01, rows=5, columns=auto)"), *parse_pipeline("sketch(0.01)"));
            EXPECT_EQ(row.parameters, "ratio, rows=5, columns=auto|number");
        }
        if (row.name == "minmax") {
            EXPECT_EQ(*parse_pipeline("all | minmax(bits=4, bucket=512, feedback=scaled)"),
                      *parse_pipeline("all | minmax"));
            EXPECT_EQ(row.parameters, "bits=4, bucket=512, feedback=scaled|unscaled|none");
        }
        if (row.name == "similarity") {
            EXPECT_EQ(*parse_pipeline("similarity(skip=0.5, most=7) | all | sign"),
                      *parse_pipeline("similarity(0.5) | all | sign"));
            EXPECT_EQ(*parse_pipeline("similarity(skip=none) | topk(0.1)"), *parse_pipeline("similarity | topk(0.1)"));
            EXPECT_EQ(row.parameters, "skip=none|NUMBER, most=7");
        }
        if (row.name == "variance_hybrid") {
            EXPECT_EQ(*parse_pipeline("variance_hybrid(1, alpha=2, zeta=0.999)"),
                      *parse_pipeline("variance_hybrid(1)"));
            EXPECT_EQ(row.parameters, "tau, alpha=2, zeta=0.999");
        }
    }
}

}  // namespace
}  // namespace gradsieve::codec
