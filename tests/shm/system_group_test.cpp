#include "shm/system_group.hpp"

#include <gtest/gtest.h>

namespace gradsieve::shm {
namespace {

TEST(SystemGroup, Known_group_is_found_by_name_and_named_by_number) {
    EXPECT_EQ(find_group("root").value(), 0U);
    EXPECT_EQ(group_text(0), "'root'");
}

TEST(SystemGroup, Unknown_group_is_not_found_and_says_how_to_add_it) {
    const auto status = find_group("no-such-group-here").status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_NE(status.text().find("addgroup --system no-such-group-here"), std::string::npos) << status.text();
    EXPECT_EQ(group_text(4'000'000'123U), "4000000123");
}

}  // namespace
}  // namespace gradsieve::shm
