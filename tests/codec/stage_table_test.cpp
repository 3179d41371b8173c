#include "codec/pipeline.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/quantizer_list.hpp"
#include "codec/stages/stage_list.hpp"

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
TEST(StageTable, Selectors_and_index_coders_stand_at_their_numbers) {
    for (std::size_t number = 0; number < selector_stages().size(); ++number) {
        const SelectorStage& stage = *selector_stages()[number];
        EXPECT_EQ(static_cast<std::size_t>(stage.kind), number) << stage.row.name;
        EXPECT_EQ(stage.expected_share == nullptr, stage.has_ratio) << stage.row.name;
    }
    for (std::size_t number = 0; number < index_coder_stages().size(); ++number)
        EXPECT_EQ(static_cast<std::size_t>(index_coder_stages()[number]->kind), number);
}
TEST(StageTable, Each_quantizer_s_number_leads_to_its_facts_and_its_coder) {
    std::set<std::string> names;
    std::set<QuantizerKind> numbers;
    for_each_form(Quantizers{}, [&]<typename Form>(Form) {
        constexpr QuantizerFacts kFacts = Form::kFacts;
        EXPECT_TRUE(names.insert(kFacts.name).second) << kFacts.name;
        EXPECT_TRUE(numbers.insert(kFacts.kind).second) << kFacts.name;
        EXPECT_LT(static_cast<std::size_t>(kFacts.kind), kMostQuantizers) << "31 stands for an earlier payload";
        EXPECT_TRUE(is_in(kQuantizers, kFacts.kind));
        EXPECT_EQ(facts_of(kFacts.kind).kind, kFacts.kind);
        EXPECT_EQ(&coder_of(kFacts.kind), &Form::kCoder) << kFacts.name;
        EXPECT_EQ(Form::kCoder.code_bits(Quantizer{.kind = kFacts.kind}) == 0,
                  kFacts.number_bits > 0 || kFacts.has_step)
            << kFacts.name << ": codes have bits, numbers none";
    });
    EXPECT_EQ(numbers.size(), 12U);
}
TEST(StageTable, Sets_have_the_quantizers_with_a_fact) {
    const QuantizerSet exact = quantizers_with([](const QuantizerFacts& facts) { return facts.is_exact; });
    EXPECT_TRUE(is_in(exact, QuantizerKind::kF32));
    EXPECT_EQ(exact, QuantizerSet{1} << static_cast<unsigned>(QuantizerKind::kF32));
    EXPECT_TRUE(has_base(QuantizerKind::kExponentialDither));
    EXPECT_FALSE(has_base(QuantizerKind::kDither));
    EXPECT_FALSE(is_in(kQuantizers, static_cast<QuantizerKind>(12)));
}
TEST(StageTable, A_quantizer_s_text_names_the_stage_that_owns_it) {
    for (const QuantizerStage* stage : quantizer_stages()) {
        const std::string name(stage->row.name);
        const auto pipeline = *parse_pipeline("all | " + name + (name == "integer" ? "(100)" : ""));
        EXPECT_EQ(&stage_of(pipeline.quantizer), stage) << name;
    }
}

}  // namespace
}  // namespace gradsieve::codec
