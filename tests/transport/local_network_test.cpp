#include "transport/local_network.hpp"

#include "transport_testing.hpp"

#include <algorithm>

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers

TEST(LocalNetwork, The_loopback_interface_is_listed_with_its_network) {
    const auto local = list_local_addresses();
    const auto is_loopback_entry = [](const LocalAddress& entry) { return entry.address == parse_ip("127.0.0.1"); };
    const auto found = std::find_if(local.begin(), local.end(), is_loopback_entry);
    ASSERT_NE(found, local.end());
    EXPECT_EQ(found->interface, "lo");
    EXPECT_EQ(found->prefix_bits, 8U);
}
TEST(LocalNetwork, Literals_resolve_to_themselves_and_nonsense_to_nothing) {
    EXPECT_EQ(resolve_host("10.1.2.3"), std::vector{parse_ip("10.1.2.3").value()});
    EXPECT_EQ(resolve_host("::1"), std::vector{parse_ip("::1").value()});
    EXPECT_TRUE(resolve_host("no host has a name with spaces").empty());
}
TEST(LocalNetwork, Only_a_host_without_any_ipv4_address_needs_ipv6) {
    EXPECT_TRUE(needs_ipv6("::1"));
    EXPECT_FALSE(needs_ipv6("127.0.0.1"));
    EXPECT_FALSE(needs_ipv6("no host has a name with spaces"));
    const auto addresses = resolve_host("localhost");
    for (std::size_t place = 1; place < addresses.size(); ++place) {
        EXPECT_LE(addresses[place - 1].is_ipv6, addresses[place].is_ipv6) << "IPv4 first";
    }
}
TEST(LocalNetwork, Loopback_is_reached_from_loopback) {
    EXPECT_EQ(find_route_source(parse_ip("127.0.0.1").value()), parse_ip("127.0.0.1"));
}
TEST(LocalNetwork, The_question_has_a_route_per_peer_and_none_for_ourselves) {
    ZmqOptions options;
    options.nodes = {{"a", "127.0.0.1", 1}, {"b", "127.0.0.2", 1}, {"c", "no host has a name with spaces", 1}};
    options.self = 0;
    options.bind_interface = "lo";
    const auto question = ask_bind_question(options);
    EXPECT_EQ(question.rule, "lo");
    EXPECT_EQ(question.own_host, "127.0.0.1");
    ASSERT_EQ(question.routes.size(), 2U);
    EXPECT_EQ(question.routes[0].address, parse_ip("127.0.0.2"));
    EXPECT_TRUE(question.routes[0].source.has_value());
    EXPECT_FALSE(question.routes[1].address.has_value());
}

}  // namespace
}  // namespace gradsieve::transport
