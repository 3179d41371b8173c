#include "tests/e2e/cluster.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <cstdio>

namespace gradsieve::e2e {
namespace {

/// The README's first command in small: `./dev demo` runs this tool after a build.
TEST(Demo, Short_run_ends_with_its_line_and_identical_ranks) {
    const int steps = kIsInstrumented ? 8 : 20;
    const auto ran = run({E2E_TOOL, "demo", "--epochs", "1", "--samples", std::to_string(256 * steps)}, 4 * kPatience);
    EXPECT_EQ(ran.code, 0) << ran.output;
    const auto begin = ran.output.rfind("demo: ");
    ASSERT_NE(begin, std::string::npos) << ran.output;
    const auto last_line = ran.output.substr(begin);
    double accuracy = 0, uncompressed = 0, ratio = 0;
    ASSERT_EQ(std::sscanf(last_line.c_str(), "demo: accuracy %lf (uncompressed %lf), wire ratio %lf", &accuracy,
                          &uncompressed, &ratio),
              3)
        << last_line;
    EXPECT_EQ(last_line, fmt::format("demo: accuracy {:.4f} (uncompressed {:.4f}), wire ratio {:.1f}, identical yes\n",
                                     accuracy, uncompressed, ratio));
    EXPECT_GT(uncompressed, kIsInstrumented ? 0.2 : 0.4) << steps << " steps of training beat guessing (0.1) by far";
    EXPECT_NE(ran.output.find("gradsieve status"), std::string::npos) << "one status from the middle of it";
    EXPECT_NE(ran.output.find("default       topk(0.01)"), std::string::npos) << "the daemon's default beside it";
}
TEST(Demo, Missing_data_set_names_its_package) {
    const auto ran = run({E2E_TOOL, "demo", "--data", "/no/such/folder"});
    EXPECT_NE(ran.code, 0);
    EXPECT_NE(ran.output.find("dataset-fashion-mnist"), std::string::npos) << ran.output;
}

}  // namespace
}  // namespace gradsieve::e2e
