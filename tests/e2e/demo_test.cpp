#include "tests/e2e/cluster.hpp"

#include <gtest/gtest.h>
#include <regex>

namespace gradsieve::e2e {
namespace {

/// The README's first command in small: `./dev demo` runs this tool after a build.
TEST(Demo, Short_run_ends_with_its_line_and_identical_ranks) {
    const auto ran = run({E2E_TOOL, "demo", "--epochs", "1", "--samples", "5120"}, Milliseconds(120'000));
    EXPECT_EQ(ran.code, 0) << ran.output;
    const std::regex last_line("demo: accuracy (0\\.[0-9]{4}) \\(uncompressed (0\\.[0-9]{4})\\), wire ratio ([0-9]+\\.[0-9]), identical yes\n$");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(ran.output, found, last_line)) << ran.output;
    EXPECT_GT(std::stod(found[2]), 0.4) << "twenty steps of training beat guessing (0.1) by far";
    EXPECT_NE(ran.output.find("gradsieve status"), std::string::npos) << "one status from the middle of it";
}
TEST(Demo, Missing_data_set_names_its_package) {
    const auto ran = run({E2E_TOOL, "demo", "--data", "/no/such/folder"});
    EXPECT_NE(ran.code, 0);
    EXPECT_NE(ran.output.find("dataset-fashion-mnist"), std::string::npos) << ran.output;
}

}  // namespace
}  // namespace gradsieve::e2e
