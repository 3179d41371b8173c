#include "codec/pipeline_text.hpp"

#include <gtest/gtest.h>

#include <array>

namespace gradsieve::codec {
namespace {

TEST(PipelineText, Stages_split_into_names_and_arguments) {
    const auto stages = split_pipeline(" a ( 1 , x = 2 )|b");
    ASSERT_TRUE(stages.is_ok());
    ASSERT_EQ(stages->size(), 2U);
    EXPECT_EQ((*stages)[0].name, "a");
    ASSERT_EQ((*stages)[0].arguments.size(), 2U);
    EXPECT_EQ((*stages)[0].arguments[0].name, "");
    EXPECT_EQ((*stages)[0].arguments[0].value, "1");
    EXPECT_EQ((*stages)[0].arguments[1].name, "x");
    EXPECT_EQ((*stages)[0].arguments[1].value, "2");
    EXPECT_EQ((*stages)[1].name, "b");
    EXPECT_TRUE((*stages)[1].arguments.empty());
}
TEST(PipelineText, Nearest_name_has_the_fewest_edits_and_the_earlier_wins_a_tie) {
    constexpr std::array<std::string_view, 3> kNames = {"rice", "bitmap", "raw32"};
    EXPECT_EQ(nearest_name("rise", kNames), "rice");
    EXPECT_EQ(nearest_name("raw", kNames), "raw32");
    EXPECT_EQ(nearest_name("map", kNames), "bitmap");
    EXPECT_EQ(nearest_name("", kNames), "rice");
}
TEST(PipelineText, Error_has_four_parts) {
    EXPECT_EQ(bad_text("ratio", "2", "(0, 1]", "write less").to_string(),
              "invalid-argument: ratio '2': allowed is (0, 1]; write less");
}
TEST(PipelineText, First_error_of_a_stage_is_the_one_reported) {
    const auto stages = *split_pipeline("s(a=x, b=y)");
    ArgumentReader reader(stages[0]);
    const NumberRange range{0, 1, false, "[0, 1]"};
    EXPECT_EQ(reader.number("a", 0.5, range), 0);
    static_cast<void>(reader.number("b", 0.5, range));
    EXPECT_EQ(reader.finish().text(), "codec stage s: a 'x': allowed is [0, 1]; write a number in that range");
}
TEST(PipelineText, Numbers_print_in_their_shortest_form) {
    EXPECT_EQ(number_text(0.1), "0.1");
    EXPECT_EQ(number_text(1.0), "1");
    EXPECT_EQ(number_text(1.0 / 3), "0.3333333333333333");
}

}  // namespace
}  // namespace gradsieve::codec
