#include "daemon/nearest_name.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace gradsieve::daemon {
namespace {

const std::vector<std::string> kNames = {"lanes", "interface", "heartbeat_ms", "silent_ms"};

TEST(NearestName, Slip_finds_the_name_that_was_meant) {
    EXPECT_EQ(nearest_name("lane", kNames), "lanes");
    EXPECT_EQ(nearest_name("lanse", kNames), "lanes");
    EXPECT_EQ(nearest_name("hartbeat_s", kNames), "heartbeat_ms");
}
TEST(NearestName, Something_else_finds_nothing) {
    EXPECT_EQ(nearest_name("colour", kNames), "");
    EXPECT_EQ(nearest_name("", kNames), "");
    EXPECT_EQ(nearest_name("x", {}), "");
    EXPECT_EQ(nearest_name(std::string(100'000, 'l'), kNames), "");
}
TEST(NearestName, Tie_keeps_the_earlier_name) {
    const std::vector<std::string> names = {"ab", "ac"};
    EXPECT_EQ(nearest_name("ad", names), "ab");
}

}  // namespace
}  // namespace gradsieve::daemon
