#include "transport/interface.hpp"

#include <gtest/gtest.h>

namespace gradsieve::transport {
namespace {

IpAddress ip(const std::string& text) { return parse_ip(text).value(); }

/// A host with eth0 10.0.0.1/24, eth1 192.168.5.1/16, docker0 172.17.0.1/16 and loopback; peer 10.0.0.2 over eth0.
BindQuestion make_question(const std::string& rule = "", const std::string& own_host = "10.0.0.1") {
    BindQuestion question;
    question.rule = rule;
    question.own_host = own_host;
    if (const auto literal = parse_ip(own_host)) question.own_addresses = {*literal};
    question.local = {{"lo", ip("127.0.0.1"), 8},   {"lo", ip("::1"), 128},          {"docker0", ip("172.17.0.1"), 16},
                      {"eth0", ip("10.0.0.1"), 24}, {"eth1", ip("192.168.5.1"), 16}, {"eth1", ip("fd00::1"), 64}};
    question.routes = {{"10.0.0.2", ip("10.0.0.2"), ip("10.0.0.1")}};
    return question;
}
void expect_choice(const BindQuestion& question, const std::string& address, const std::string& why) {
    const auto choice = choose_bind_address(question);
    ASSERT_TRUE(choice.is_ok()) << choice.status().to_string();
    EXPECT_EQ(ip_text(choice->address), address);
    EXPECT_EQ(choice->why, why);
}
std::string refusal(const BindQuestion& question) {
    const auto choice = choose_bind_address(question);
    return choice.is_ok() ? "chose " + ip_text(choice->address) : choice.status().to_string();
}
const std::string kHas =
    "; this host has lo 127.0.0.1, lo ::1, docker0 172.17.0.1, eth0 10.0.0.1, eth1 192.168.5.1, eth1 fd00::1; ";

TEST(Interface, The_nodes_own_address_is_taken_if_it_is_local) {
    expect_choice(make_question(), "10.0.0.1", "eth0 has this node's address");
    expect_choice(make_question("", "192.168.5.1"), "192.168.5.1", "eth1 has this node's address");
}
TEST(Interface, A_name_that_means_loopback_here_gives_way_to_the_route) {
    auto question = make_question("", "node-a");
    question.own_addresses = {ip("127.0.1.1")};  // as Debian's /etc/hosts has it
    expect_choice(question, "10.0.0.1", "eth0 routes to 10.0.0.2");
}
TEST(Interface, An_address_of_another_host_gives_way_to_the_route) {
    expect_choice(make_question("", "203.0.113.5"), "10.0.0.1", "eth0 routes to 10.0.0.2");
}
TEST(Interface, A_loopback_address_is_never_taken_for_a_remote_peer) {
    const auto text = refusal(make_question("", "127.0.0.1"));
    EXPECT_EQ(text,
              "invalid-argument: listening address: this node's own address is 127.0.0.1, where remote peers cannot "
              "reach it" +
                  kHas + "give it an address in the node list that they can reach");
    EXPECT_EQ(refusal(make_question("lo")),
              "invalid-argument: interface \"lo\": allows no address that remote peers can reach" + kHas +
                  "name another interface, an address, a network, or \"!name\"");
    EXPECT_NE(refusal(make_question("127.0.0.1")).find("allows no address"), std::string::npos);
}
TEST(Interface, Loopback_is_fine_if_all_peers_are_there) {
    auto question = make_question("", "127.0.0.1");
    question.routes = {{"127.0.0.2", ip("127.0.0.2"), ip("127.0.0.1")}};
    expect_choice(question, "127.0.0.1", "lo has this node's address");
    question.own_host = "127.0.0.3";
    question.own_addresses = {ip("127.0.0.3")};
    expect_choice(question, "127.0.0.3", "lo has this node's address");
    question.rule = "127.0.0.9";
    expect_choice(question, "127.0.0.9", "lo is allowed by interface \"127.0.0.9\"");
    question.routes.push_back({"unknown", std::nullopt, std::nullopt});
    EXPECT_EQ(choose_bind_address(question).status().code(), StatusCode::kInvalidArgument)
        << "what does not resolve is remote";
}
TEST(Interface, A_named_interface_address_or_network_decides) {
    expect_choice(make_question("eth1"), "192.168.5.1", "eth1 is allowed by interface \"eth1\"");
    expect_choice(make_question("192.168.5.1"), "192.168.5.1", "eth1 is allowed by interface \"192.168.5.1\"");
    expect_choice(make_question("192.168.0.0/16"), "192.168.5.1", "eth1 is allowed by interface \"192.168.0.0/16\"");
    expect_choice(make_question("fd00::/8"), "fd00::1", "eth1 is allowed by interface \"fd00::/8\"");
    expect_choice(make_question("eth0"), "10.0.0.1", "eth0 has this node's address");
    expect_choice(make_question("0.0.0.0"), "0.0.0.0", "all interfaces, as interface \"0.0.0.0\" says");
}
TEST(Interface, An_excluded_interface_is_not_taken) {
    auto question = make_question("!docker0");
    expect_choice(question, "10.0.0.1", "eth0 has this node's address");
    question = make_question("!eth0");
    expect_choice(question, "172.17.0.1", "docker0 is allowed by interface \"!eth0\"");
}
TEST(Interface, What_this_host_does_not_have_is_refused_with_what_it_has) {
    EXPECT_EQ(refusal(make_question("eth7")), "invalid-argument: interface \"eth7\": there is no such interface" +
                                                  kHas + "name one of these, an address, a network, or \"!name\"");
    EXPECT_NE(refusal(make_question("10.9.9.9")).find("allows no address"), std::string::npos);
    EXPECT_NE(refusal(make_question("11.0.0.0/8")).find("allows no address"), std::string::npos);
    for (const std::string rule : {"10.0.0.0/33", "10.0.0.0/", "10.0.0.0/x", "eth0/24", "10.0.0.0/2 ", "::/129"}) {
        EXPECT_NE(refusal(make_question(rule)).find("is no network"), std::string::npos) << rule;
    }
}
TEST(Interface, Peers_on_several_interfaces_need_a_decision) {
    auto question = make_question("", "node-a");
    question.routes.push_back({"192.168.5.9", ip("192.168.5.9"), ip("192.168.5.1")});
    EXPECT_EQ(refusal(question),
              "invalid-argument: listening address: peers are reached from 10.0.0.1 and from 192.168.5.1" + kHas +
                  "give this node one of these addresses in the node list, or name the interface");
    question.rule = "!eth1";
    expect_choice(question, "10.0.0.1", "eth0 routes to 10.0.0.2");
}
TEST(Interface, Without_any_route_the_text_says_what_to_do) {
    auto question = make_question("", "node-a");
    question.routes = {{"node-b", std::nullopt, std::nullopt}};
    EXPECT_EQ(refusal(question), "invalid-argument: listening address: no peer of 1 can be reached from here now" +
                                     kHas +
                                     "check the network and the addresses in the node list, or name the interface");
}
TEST(Interface, Networks_compare_their_prefix_only) {
    EXPECT_TRUE(is_in_network(ip("10.1.2.3"), ip("10.1.255.255"), 16));
    EXPECT_FALSE(is_in_network(ip("10.1.2.3"), ip("10.1.255.255"), 17));
    EXPECT_TRUE(is_in_network(ip("1.2.3.4"), ip("200.0.0.0"), 0));
    EXPECT_FALSE(is_in_network(ip("::1"), ip("0.0.0.0"), 0)) << "families do not mix";
    EXPECT_TRUE(is_in_network(ip("fd00::1"), ip("fd00::2"), 126));
    EXPECT_FALSE(is_in_network(ip("fd00::1"), ip("fd00::2"), 127));
}
TEST(Interface, Addresses_print_as_they_parse) {
    for (const std::string text : {"10.0.0.1", "::1", "fd00::1:2"}) EXPECT_EQ(ip_text(ip(text)), text);
    EXPECT_EQ(endpoint_text(ip("10.0.0.1"), 7077), "10.0.0.1:7077");
    EXPECT_EQ(endpoint_text(ip("::1"), 7077), "[::1]:7077");
    for (const std::string text : {"", "10.0.0", "10.0.0.256", "node-a", "1::2::3"})
        EXPECT_FALSE(parse_ip(text)) << text;
    EXPECT_TRUE(is_loopback(ip("127.9.9.9")));
    EXPECT_FALSE(is_loopback(ip("128.0.0.1")));
}

}  // namespace
}  // namespace gradsieve::transport
