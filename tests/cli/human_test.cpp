#include "cli/human.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace gradsieve::cli {
namespace {

TEST(Human, Bytes_have_three_digits_and_change_unit_without_four) {
    EXPECT_EQ(bytes_text(0), "0 B");
    EXPECT_EQ(bytes_text(999), "999 B");
    EXPECT_EQ(bytes_text(1000), "1.00 kB");
    EXPECT_EQ(bytes_text(9'994), "9.99 kB");
    EXPECT_EQ(bytes_text(9'999), "10.0 kB");
    EXPECT_EQ(bytes_text(99'999), "100 kB");
    EXPECT_EQ(bytes_text(999'499), "999 kB");
    EXPECT_EQ(bytes_text(999'999), "1.00 MB");
    EXPECT_EQ(bytes_text(UINT64_MAX), "18.4 EB");
}
TEST(Human, Memory_counts_in_powers_of_1024) {
    EXPECT_EQ(memory_text(1023), "1023 B");
    EXPECT_EQ(memory_text(1024), "1.00 KiB");
    EXPECT_EQ(memory_text(std::uint64_t{12} << 30U), "12.0 GiB");
    EXPECT_EQ(memory_text(UINT64_MAX), "16.0 EiB");
}
TEST(Human, Counts_are_grouped_then_scaled) {
    EXPECT_EQ(count_text(0), "0");
    EXPECT_EQ(count_text(999), "999");
    EXPECT_EQ(count_text(1000), "1,000");
    EXPECT_EQ(count_text(999'999), "999,999");
    EXPECT_EQ(count_text(1'000'000), "1.00M");
    EXPECT_EQ(count_text(999'600'000), "1.00G");
    EXPECT_EQ(count_text(UINT64_MAX), "18.4E");
}
TEST(Human, Times_have_one_or_two_units) {
    EXPECT_EQ(time_text(0), "0.0 s");
    EXPECT_EQ(time_text(9.94), "9.9 s");
    EXPECT_EQ(time_text(59.4), "59 s");
    EXPECT_EQ(time_text(59.6), "1 min 0 s");
    EXPECT_EQ(time_text(3599.7), "1 h 0 min");
    EXPECT_EQ(time_text(90'061), "1 d 1 h");
    EXPECT_EQ(time_text(-1), "?");
    EXPECT_EQ(time_text(std::numeric_limits<double>::quiet_NaN()), "?");
    EXPECT_EQ(time_text(1e300), "ages");
}
TEST(Human, Figures_keep_what_matters) {
    EXPECT_EQ(figure_text(0), "0.0");
    EXPECT_EQ(figure_text(0.1234), "0.12");
    EXPECT_EQ(figure_text(0.00041), "0.00041");
    EXPECT_EQ(figure_text(5.06), "5.1");
    EXPECT_EQ(figure_text(143.2), "143.2");
    EXPECT_EQ(figure_text(999.97), "1,000");
    EXPECT_EQ(figure_text(12345.6), "12,346");
    EXPECT_EQ(figure_text(-12345.6), "-1.23e+04");
    EXPECT_EQ(figure_text(1e300), "1e+300");
    EXPECT_EQ(figure_text(std::numeric_limits<double>::infinity()), "?");
}
TEST(Human, Width_counts_columns_not_bytes) {
    EXPECT_EQ(display_width("abc"), 3U);
    EXPECT_EQ(display_width("…"), 1U);
    EXPECT_EQ(display_width("重み"), 4U);
    EXPECT_EQ(display_width("e\u0301"), 1U) << "combining accent";
    EXPECT_EQ(display_width("\xff\xfe"), 2U) << "broken bytes count one each";
}
TEST(Human, Printable_text_has_no_controls_and_is_valid) {
    EXPECT_EQ(printable("fc1.weight"), "fc1.weight");
    EXPECT_EQ(printable("重み"), "重み");
    EXPECT_EQ(printable("a\x1b[31m\n\x7f"), "a?[31m??");
    EXPECT_EQ(printable("a\u009bb"), "a?b") << "C1 control";
    EXPECT_EQ(printable("a\u202eb"), "a?b") << "reverses what follows";
    EXPECT_EQ(printable("\xc0\xaf"), "??") << "overlong";
    EXPECT_EQ(printable("\xed\xa0\x80"), "???") << "surrogate";
    EXPECT_EQ(printable("\xe9\x87"), "??") << "cut off";
}
TEST(Human, Cuts_fit_and_keep_both_ends_or_the_front) {
    EXPECT_EQ(cut_middle("encoder.weight", 14, "…"), "encoder.weight");
    EXPECT_EQ(cut_middle("encoder.weight", 9, "…"), "enco…ight");
    EXPECT_EQ(cut_middle("encoder.weight", 1, "…"), "…");
    EXPECT_EQ(cut_middle("encoder.weight", 0, "…"), "");
    EXPECT_EQ(cut_middle("重み重み", 6, "…"), "重…み") << "a wide letter is not halved";
    EXPECT_EQ(cut_end("encoder.weight", 9, "…"), "encoder.…");
    EXPECT_EQ(cut_end("encoder.weight", 9, "~"), "encoder.~");
}
TEST(Human, Words_wrap_and_long_ones_are_cut) {
    using testing::ElementsAre;
    EXPECT_THAT(wrap_words("", 10, "…"), ElementsAre(""));
    EXPECT_THAT(wrap_words("one two three", 7, "…"), ElementsAre("one two", "three"));
    EXPECT_THAT(wrap_words("  one  ", 7, "…"), ElementsAre("one"));
    EXPECT_THAT(wrap_words("a 123456789 b", 5, "…"), ElementsAre("a", "1234…", "b"));
}

}  // namespace
}  // namespace gradsieve::cli
