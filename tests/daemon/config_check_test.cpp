#include "daemon/config_check.hpp"

#include <gtest/gtest.h>

namespace gradsieve::daemon {
namespace {

TEST(ConfigCheck, Cpu_lists_are_taken_or_refused) {
    for (const auto* good : {"", "0", "0-3", "0-3,8", "7-7", "8191"}) EXPECT_TRUE(is_cpu_list(good)) << good;
    for (const auto* bad : {",", "0,", "3-1", "-1", "a", "8192", "0 - 3", "0-", "1,,2", "99999999999999"})
        EXPECT_FALSE(is_cpu_list(bad)) << bad;
}
TEST(ConfigCheck, Interface_rules_are_taken_or_refused) {
    for (const auto* good :
         {"", "eth0", "!docker0", "10.0.0.1", "10.0.0.0/8", "!10.0.0.0/8", "2001:db8::/32", "bond0.100"})
        EXPECT_TRUE(is_interface_rule(good)) << good;
    for (const auto* bad :
         {"!", "a b", "10.0.0.0/33", "10.0.0/8", "2001:db8::/129", "sixteen_letters_", "eth0/8", "10.0.0.0/"})
        EXPECT_FALSE(is_interface_rule(bad)) << bad;
}

}  // namespace
}  // namespace gradsieve::daemon
