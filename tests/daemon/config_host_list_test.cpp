#include "daemon/config_host_list.hpp"

#include <gmock/gmock.h>

namespace gradsieve::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> hosts(std::string_view text) {
    const auto list = expand_host_list(text);
    EXPECT_TRUE(list.is_ok()) << list.status().to_string();
    return list.value_or(std::vector<std::string>{});
}
std::string refusal(std::string_view text) { return expand_host_list(text).status().to_string(); }

TEST(HostList, Names_ranges_and_several_brackets_are_expanded_in_their_order) {
    EXPECT_THAT(hosts("login"), ElementsAre("login"));
    EXPECT_THAT(hosts("b,a"), ElementsAre("b", "a"));
    EXPECT_THAT(hosts("node[08-11,3],login1"), ElementsAre("node08", "node09", "node10", "node11", "node3", "login1"));
    EXPECT_THAT(hosts("r[1-2]n[01-02].example"),
                ElementsAre("r1n01.example", "r1n02.example", "r2n01.example", "r2n02.example"));
    EXPECT_THAT(hosts("n[9-11]"), ElementsAre("n9", "n10", "n11"));
    EXPECT_EQ(hosts("n[0-1023]").size(), 1024U);
}
TEST(HostList, What_is_no_list_is_named) {
    EXPECT_EQ(refusal("node[1-2"),
              "invalid-argument: host list, at 'node[1-2': a bracket that is not closed: allowed are names and ranges "
              "such as node[01-04,7],login; correct it");
    EXPECT_THAT(refusal("node1]"), HasSubstr("a bracket that nothing opens"));
    EXPECT_THAT(refusal("n[1-[2]]"), HasSubstr("a bracket in a bracket"));
    for (const auto* text : {"n[]", "n[1-]", "n[-1]", "n[2-1]", "n[a]", "n[1,,2]", "n[1-2-3]", "n[1234567890]"})
        EXPECT_THAT(refusal(text), HasSubstr("no range of numbers")) << text;
    EXPECT_THAT(refusal("a,,b"), HasSubstr("'' is no host's name"));
    EXPECT_THAT(refusal(""), HasSubstr("'' is no host's name"));
    EXPECT_THAT(refusal("a b"), HasSubstr("'a b' is no host's name"));
    EXPECT_THAT(refusal("a,b,a"), HasSubstr("'a' is named twice"));
    EXPECT_THAT(refusal("n[1,1]"), HasSubstr("'n1' is named twice"));
    EXPECT_THAT(refusal("n[0-1024]"), HasSubstr("more than 1024 hosts"));
    EXPECT_THAT(refusal("n[0-999999999]"), HasSubstr("more than 1024 hosts"));
    EXPECT_THAT(refusal("a[0-99]b[0-99]"), HasSubstr("more than 1024 hosts"));
    EXPECT_THAT(refusal("a[0-999],b[0-999]"), HasSubstr("more than 1024 hosts"));
    EXPECT_THAT(refusal(std::string(70'000, 'a')), HasSubstr("more than 65536 bytes"));
}

}  // namespace
}  // namespace gradsieve::daemon
