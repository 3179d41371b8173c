#include "transport/handshake.hpp"

#include "transport/frame.hpp"
#include "transport_testing.hpp"

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers

const std::vector<PeerAddress> kNodes = {{"a", "10.0.0.1", 7077}, {"b", "10.0.0.2", 7077}};

Hello make_hello() {
    Hello hello;
    hello.from = 0;
    hello.to = 1;
    hello.kind = ConnectionKind::kData;
    hello.lane = 1;
    hello.lanes = 2;
    hello.instance = 0xA1A2A3A4A5A6A7A8ULL;
    hello.list = digest_of(kNodes);
    hello.name = "a";
    return hello;
}

std::string frame_hex(std::uint16_t type, Bytes body) {
    const auto part = SharedView::take(std::move(body));
    const auto head = build_frame_header({type, 0, 0}, {&part, 1});
    return hex_of(head) + hex_of(part.bytes());
}

TEST(Handshake, Built_frames_are_the_golden_ones) {
    EXPECT_EQ(digest_of(kNodes).digest, 0x8933CFEB9D86BC1FULL);
    EXPECT_EQ(frame_hex(kHelloType, build_hello(make_hello())),
              "4753010001000000230000000000000000000000000000000000000089c66c842d045ac5"
              "00000000010000000201000200a8a7a6a5a4a3a2a1020000001fbc869debcf33890161");
    EXPECT_EQ(frame_hex(kHeartbeatType, build_heartbeat(42)),
              "475301000200000008000000000000000000000000000000000000004a61dd1b516270d22a00000000000000");
    EXPECT_EQ(frame_hex(kRefusalType, build_refusal("no")),
              "4753010003000000030000000000000000000000000000000000000038b30cff44e59c2a026e6f");
    EXPECT_EQ(hex_of(build_routing_id(make_hello())), "475300000000020100a8a7a6a5a4a3a2a1");
}
TEST(Handshake, Hello_reads_back_and_bytes_added_later_are_ignored) {
    auto bytes = build_hello(make_hello());
    bytes.push_back(std::byte{0xFF});
    const auto hello = parse_hello(bytes);
    ASSERT_TRUE(hello.is_ok()) << hello.status().to_string();
    EXPECT_EQ(hello->from, 0U);
    EXPECT_EQ(hello->to, 1U);
    EXPECT_EQ(hello->kind, ConnectionKind::kData);
    EXPECT_EQ(hello->lane, 1U);
    EXPECT_EQ(hello->lanes, 2U);
    EXPECT_EQ(hello->instance, 0xA1A2A3A4A5A6A7A8ULL);
    EXPECT_EQ(hello->list.nodes, 2U);
    EXPECT_EQ(hello->name, "a");
}
TEST(Handshake, Every_truncated_hello_and_every_value_out_of_range_is_refused) {
    const auto bytes = build_hello(make_hello());
    for (std::size_t count = 0; count < bytes.size(); ++count) {
        EXPECT_FALSE(parse_hello(ByteView(bytes).first(count)).is_ok()) << count;
    }
    const auto refuses = [](const std::function<void(Hello&)>& change) {
        auto hello = make_hello();
        change(hello);
        return !parse_hello(build_hello(hello)).is_ok();
    };
    EXPECT_TRUE(refuses([](Hello& hello) { hello.kind = static_cast<ConnectionKind>(3); }));
    EXPECT_TRUE(refuses([](Hello& hello) { hello.lanes = 0; }));
    EXPECT_TRUE(refuses([](Hello& hello) { hello.lanes = kLanesMax + 1; }));
    EXPECT_TRUE(refuses([](Hello& hello) { hello.lane = hello.lanes; }));
    EXPECT_TRUE(refuses([](Hello& hello) { hello.name = std::string(kNameBytesMax + 1, 'x'); }));
}
TEST(Handshake, A_name_with_control_characters_is_made_fit_for_a_log_line) {
    auto hello = make_hello();
    hello.name = "a\n\x1b[31m";
    EXPECT_EQ(parse_hello(build_hello(hello))->name, "a??[31m");
}
TEST(Handshake, A_matching_hello_passes) { EXPECT_TRUE(check_hello(make_hello(), kNodes, 1).is_ok()); }
TEST(Handshake, Another_node_list_is_refused_with_both_described) {
    auto hello = make_hello();
    hello.list = {3, 99};
    const auto status = check_hello(hello, kNodes, 1);
    EXPECT_EQ(status.to_string(),
              "mismatch: node list differs: a has 3 nodes, b has 2 nodes: a 10.0.0.1:7077, b 10.0.0.2:7077; give all "
              "nodes the same names, addresses and ports in the same order");
    hello.list = digest_of(kNodes);
    hello.list.digest ^= 1;
    EXPECT_EQ(check_hello(hello, kNodes, 1).code(), StatusCode::kMismatch);
}
TEST(Handshake, The_digest_sees_names_hosts_ports_and_order) {
    auto changed = kNodes;
    changed[1].name = "c";
    EXPECT_NE(digest_of(changed).digest, digest_of(kNodes).digest);
    changed = kNodes;
    changed[0].host = "10.0.0.3";
    EXPECT_NE(digest_of(changed).digest, digest_of(kNodes).digest);
    changed = kNodes;
    changed[0].port = 7078;
    EXPECT_NE(digest_of(changed).digest, digest_of(kNodes).digest);
    EXPECT_NE(digest_of(std::vector{kNodes[1], kNodes[0]}).digest, digest_of(kNodes).digest);
}
TEST(Handshake, An_unknown_name_position_or_target_is_refused) {
    auto hello = make_hello();
    hello.name = "z";
    EXPECT_EQ(check_hello(hello, kNodes, 1).text(),
              "unknown node z at position 0: b has 2 nodes: a 10.0.0.1:7077, b 10.0.0.2:7077; start each node under "
              "its own name");
    hello = make_hello();
    hello.from = 2;
    EXPECT_EQ(check_hello(hello, kNodes, 1).code(), StatusCode::kMismatch);
    hello = make_hello();
    EXPECT_EQ(check_hello(hello, kNodes, 0).code(), StatusCode::kMismatch) << "our own name";
    hello.to = 0;
    EXPECT_EQ(check_hello(hello, kNodes, 1).text(),
              "hello from a was meant for node a: it reached b; check the addresses in the node list");
}
TEST(Handshake, Long_node_lists_are_named_in_part) {
    std::vector<PeerAddress> nodes;
    for (int node = 0; node < 9; ++node) nodes.push_back({"n" + std::to_string(node), "::1", 1});
    const auto text = node_list_text(nodes);
    EXPECT_TRUE(text.starts_with("9 nodes: n0 [::1]:1, n1")) << text;
    EXPECT_TRUE(text.ends_with("n7 [::1]:1, ...")) << text;
}
TEST(Handshake, Heartbeat_and_refusal_read_back_and_truncations_are_refused) {
    EXPECT_EQ(parse_heartbeat(build_heartbeat(7)), 7U);
    EXPECT_FALSE(parse_heartbeat(Bytes(7)));
    EXPECT_EQ(parse_refusal(build_refusal("because")), "because");
    EXPECT_FALSE(parse_refusal(Bytes{std::byte{5}}));
    EXPECT_EQ(parse_refusal(build_refusal(std::string(5000, 'x')))->size(), kRefusalTextBytesMax);
}

}  // namespace
}  // namespace gradsieve::transport
