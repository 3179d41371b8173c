#include "cli/text_table.hpp"

#include "tests/cli/golden.hpp"

#include <gtest/gtest.h>

namespace gradsieve::cli {
namespace {

const std::vector<Column> kColumns = {{"NAME", false, 6, 9}, {"COUNT", true, 0, 5}, {"STATE", false, 0, 3}};
const std::vector<Row> kRows = {{{"encoder.weight"}, {"12"}, {"up"}}, {{"b"}, {"3,456"}, {}}};

TEST(TextTable, Columns_take_what_they_need) {
    EXPECT_EQ(render_table(kColumns, kRows, plain(60)),
              "  NAME           COUNT STATE\n"
              "  encoder.weight    12 up\n"
              "  b              3,456\n");
}
TEST(TextTable, Wide_screens_have_wider_gaps) {
    EXPECT_EQ(render_table(kColumns, kRows, plain(96)),
              "  NAME            COUNT  STATE\n"
              "  encoder.weight     12  up\n"
              "  b               3,456\n");
}
TEST(TextTable, Name_gives_way_first) {
    EXPECT_EQ(render_table(kColumns, kRows, plain(22)),
              "  NAME     COUNT STATE\n"
              "  enc…ight    12 up\n"
              "  b        3,456\n");
}
TEST(TextTable, Least_important_column_goes_when_nothing_gives_way) {
    EXPECT_EQ(render_table(kColumns, kRows, plain(19)),
              "  NAME        COUNT\n"
              "  encod…eight    12\n"
              "  b           3,456\n");
    EXPECT_EQ(render_table(kColumns, kRows, plain(10)),
              "  NAME\n"
              "  enc…ight\n"
              "  b\n");
}
TEST(TextTable, Table_without_rows_is_its_titles) {
    EXPECT_EQ(render_table(kColumns, {}, plain(60)), "  NAME COUNT STATE\n");
}
TEST(TextTable, Ink_does_not_move_columns) {
    const std::vector<Row> rows = {{{"a", Ink::kBad}, {"1", Ink::kGood}, {"up", Ink::kBold}}};
    EXPECT_EQ(render_table(kColumns, rows, {60, 0, true, true}),
              "  \x1b[2mNAME\x1b[0m \x1b[2mCOUNT\x1b[0m \x1b[2mSTATE\x1b[0m\n"
              "  \x1b[1;31ma\x1b[0m        \x1b[32m1\x1b[0m \x1b[1mup\x1b[0m\n");
}

}  // namespace
}  // namespace gradsieve::cli
