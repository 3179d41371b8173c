// Golden texts: the drawn text must be equal to the file beside the tests. GRADSIEVE_UPDATE_GOLDEN=1 writes them anew;
// the difference then goes through review like any other change. What is drawn, and how wide, besides.
#pragma once

#include "cli/status_view.hpp"
#include "cli/text_table.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace gradsieve::cli {

[[nodiscard]] inline std::string golden_path(const std::string& name) {
    return std::string(GRADSIEVE_SOURCE_DIR) + "/tests/cli/golden/" + name;
}
[[nodiscard]] inline std::string golden_text(const std::string& name) {
    std::ifstream file(golden_path(name));
    EXPECT_TRUE(file.is_open()) << golden_path(name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}
/// Of the document NAME.json.
[[nodiscard]] inline StatusView view_of(const std::string& name) {
    auto view = parse_status_document(golden_text(name + ".json"));
    EXPECT_TRUE(view.is_ok()) << name;
    return *view;
}
/// Without colour.
[[nodiscard]] inline Look plain(std::size_t width) { return {width, 0, false, true}; }
inline void expect_golden(const std::string& name, const std::string& drawn) {
    if (std::getenv("GRADSIEVE_UPDATE_GOLDEN") != nullptr) std::ofstream(golden_path(name)) << drawn;
    EXPECT_EQ(drawn, golden_text(name))
        << "if this is meant, run with GRADSIEVE_UPDATE_GOLDEN=1 and review the difference";
}

}  // namespace gradsieve::cli
