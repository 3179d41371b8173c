// The listening side: strangers and damaged bytes at a ZeroMQ node: refused, named, counted, and the node goes on.
#include "raw_peer.hpp"
#include "transport/frame.hpp"
#include "zmq_fixture.hpp"

#include <random>

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers

class ZmqReceiverTest : public ZmqPair {
protected:
    /// Sends one message to b and gives back how b refused it, counted at `peer`.
    [[nodiscard]] std::string refusal_of(RawDealer& dealer, const std::vector<Bytes>& parts, PeerIndex peer) {
        const auto before = at_b(peer).frames_refused;
        dealer.send(parts);
        EXPECT_TRUE(wait([&] { return at_b(peer).frames_refused > before; }));
        return at_b(peer).last_refusal;
    }
    static constexpr PeerIndex kUnknown = 1;  ///< b itself: what cannot be attributed is counted there
};

Bytes text_bytes(std::string_view text) {
    const auto view = as_bytes(text);
    return {view.begin(), view.end()};
}

TEST_F(ZmqReceiverTest, Garbage_from_a_stranger_is_refused_and_counted) {
    start_both();
    RawDealer dealer(nodes_[1], text_bytes("stranger"));
    EXPECT_EQ(refusal_of(dealer, {text_bytes("hi")}, kUnknown),
              "message of 2 bytes: a frame has at least 36; is the sender a gradsieve node?");
    EXPECT_EQ(refusal_of(dealer, {Bytes(100, std::byte{7})}, kUnknown),
              "frame magic 0x0707: expected 0x5347; is the sender a gradsieve node?");
    EXPECT_EQ(refusal_of(dealer, {Bytes{}}, kUnknown),
              "message of 0 bytes: a frame has at least 36; is the sender a gradsieve node?");
    EXPECT_EQ(refusal_of(dealer, std::vector<Bytes>(1200, Bytes(1)), kUnknown),
              "message of too many bytes or parts: the limits are 67108864 bytes and 1024 parts; send smaller frames");
    EXPECT_TRUE(b_.inbox.frames.empty());
    expect_alive();
}
TEST_F(ZmqReceiverTest, Random_messages_never_end_the_node) {
    start_both();
    const auto seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    RawDealer dealer(nodes_[1], text_bytes("stranger"));
    constexpr std::uint64_t kMessages = 500;
    for (std::uint64_t message = 0; message < kMessages; ++message) {
        std::vector<Bytes> parts(1 + random() % 4);
        for (auto& part : parts) {
            part.resize(random() % 100);
            for (auto& byte : part) byte = static_cast<std::byte>(random());
        }
        dealer.send(parts);
    }
    ASSERT_TRUE(wait([&] { return at_b(kUnknown).frames_refused == kMessages; }));
    EXPECT_TRUE(b_.inbox.frames.empty());
    expect_alive();
}
TEST_F(ZmqReceiverTest, Raw_bytes_on_the_port_never_end_the_node) {
    start_both();
    send_raw_tcp(nodes_[1], as_bytes("GET / HTTP/1.1\r\nHost: b\r\n\r\n"));
    send_raw_tcp(nodes_[1], {});
    send_raw_tcp(nodes_[1], Bytes(5000, std::byte{0xFF}));
    // A ZMTP greeting that promises a part of 2^63 bytes.
    Bytes greeting = bytes_of("ff00000000000000017f0300");
    greeting.resize(64);
    const auto huge = bytes_of("027fffffffffffffff");
    greeting.insert(greeting.end(), huge.begin(), huge.end());
    send_raw_tcp(nodes_[1], greeting);
    expect_alive();
    EXPECT_EQ(b_.last_event(0).state, PeerState::kUp);
}
TEST_F(ZmqReceiverTest, A_frame_before_a_valid_hello_is_refused) {
    start(b_, 1);
    RawDealer dealer(nodes_[1], build_routing_id(hello_of(nodes_, 0, 1)));
    EXPECT_EQ(refusal_of(dealer, {frame_bytes({20, 0, 0}, text_bytes("early"))}, kUnknown),
              "frame of type 20 before a valid hello: nothing was taken from it; is the sender a gradsieve node?");
    EXPECT_TRUE(b_.inbox.frames.empty());
}
TEST_F(ZmqReceiverTest, After_a_valid_hello_damage_is_counted_at_the_sender_and_good_frames_pass) {
    start(b_, 1);
    const auto hello = hello_of(nodes_, 0, 1);
    RawDealer dealer(nodes_[1], build_routing_id(hello));
    dealer.send({frame_bytes({kHelloType, 0, 0}, build_hello(hello))});
    auto damaged = frame_bytes({20, 0, 0}, text_bytes("damaged"));
    damaged.back() ^= std::byte{1};
    EXPECT_EQ(
        refusal_of(dealer, {damaged}, 0),
        "frame of type 20 and 7 bytes: its checksum differs, it was damaged on the way; nothing was taken from it");
    EXPECT_EQ(refusal_of(dealer, {frame_bytes({kHeartbeatType, 0, 0}, Bytes(3))}, 0),
              "heartbeat of 3 bytes: 8 are needed; install the same release on all nodes");
    EXPECT_EQ(refusal_of(dealer, {frame_bytes({kHelloType, 0, 0}, Bytes(3))}, 0),
              "hello of 3 bytes: it does not parse; install the same release on all nodes");
    dealer.send({frame_bytes({9, 0, 0}, {})});  // a transport type of some later minor version
    dealer.send({frame_bytes({20, 0, 5}, text_bytes("good"))});
    ASSERT_TRUE(wait([&] { return b_.inbox.frames.size() == 1; }));
    EXPECT_EQ(text_of(b_.inbox.frames[0].body), "good");
    EXPECT_EQ(b_.inbox.frames[0].from, 0U);
    EXPECT_EQ(at_b(0).frames_refused, 3U);
    EXPECT_EQ(at_b(kUnknown).frames_refused, 0U);
}
TEST_F(ZmqReceiverTest, A_header_and_body_in_odd_pieces_still_make_a_frame) {
    start(b_, 1);
    const auto hello = hello_of(nodes_, 0, 1);
    RawDealer dealer(nodes_[1], build_routing_id(hello));
    dealer.send({frame_bytes({kHelloType, 0, 0}, build_hello(hello))});
    const auto whole = frame_bytes({20, 0, 5}, text_bytes("gradsieve"));
    const auto piece = [&](std::size_t first, std::size_t last) {
        return Bytes(whole.begin() + static_cast<std::ptrdiff_t>(first),
                     whole.begin() + static_cast<std::ptrdiff_t>(last));
    };
    dealer.send({piece(0, 38), piece(38, 38), piece(38, 45)});
    ASSERT_TRUE(wait([&] { return b_.inbox.frames.size() == 1; }));
    EXPECT_EQ(text_of(b_.inbox.frames[0].body), "gradsieve");
    EXPECT_NE(refusal_of(dealer, {piece(0, 30), piece(30, 45)}, 0).find("message of 30 bytes"), std::string::npos)
        << "a cut header";
}
TEST_F(ZmqReceiverTest, Another_major_version_is_refused_in_words_on_both_sides) {
    start(b_, 1);
    const auto hello = hello_of(nodes_, 0, 1);
    RawDealer dealer(nodes_[1], build_routing_id(hello));
    auto frame = frame_bytes({kHelloType, 0, 0}, build_hello(hello));
    frame[2] = std::byte{2};
    const std::string expected =
        "frame format 2.0 from the sender: this node reads 1.0; install the same release on all nodes";
    EXPECT_EQ(refusal_of(dealer, {frame}, kUnknown), expected);
    std::string answer;
    EXPECT_TRUE(wait([&] { return !(answer = dealer.next_refusal()).empty(); }));
    EXPECT_EQ(answer, expected);
}
TEST_F(ZmqReceiverTest, A_hello_that_differs_from_its_connection_or_our_list_is_refused) {
    start(b_, 1);
    const auto hello = hello_of(nodes_, 0, 1);
    auto other = hello;
    other.instance = 78;
    RawDealer dealer(nodes_[1], build_routing_id(hello));
    EXPECT_EQ(refusal_of(dealer, {frame_bytes({kHelloType, 0, 0}, build_hello(other))}, kUnknown),
              "hello of a: it differs from its connection's id; install the same release on all nodes");
    other = hello;
    other.to = 0;
    EXPECT_EQ(refusal_of(dealer, {frame_bytes({kHelloType, 0, 0}, build_hello(other))}, kUnknown),
              "hello from a was meant for node a: it reached b; check the addresses in the node list");
    other = hello;
    other.name = "z";
    EXPECT_NE(refusal_of(dealer, {frame_bytes({kHelloType, 0, 0}, build_hello(other))}, kUnknown)
                  .find("unknown node z at position 0"),
              std::string::npos);
}
TEST_F(ZmqReceiverTest, An_older_life_of_a_peer_is_not_heard_after_the_newer_ones_hello) {
    start(b_, 1);
    auto hello = hello_of(nodes_, 0, 1);
    RawDealer older(nodes_[1], build_routing_id(hello));
    older.send({frame_bytes({kHelloType, 0, 0}, build_hello(hello))});
    older.send({frame_bytes({20, 0, 1}, {})});
    ASSERT_TRUE(wait([&] { return b_.inbox.frames.size() == 1; }));
    hello.instance = 78;
    RawDealer newer(nodes_[1], build_routing_id(hello));
    newer.send({frame_bytes({kHelloType, 0, 0}, build_hello(hello))});
    newer.send({frame_bytes({20, 0, 2}, {})});
    ASSERT_TRUE(wait([&] { return b_.inbox.frames.size() == 2; }));
    EXPECT_NE(refusal_of(older, {frame_bytes({20, 0, 3}, {})}, kUnknown).find("before a valid hello"),
              std::string::npos);
    EXPECT_EQ(b_.inbox.frames.size(), 2U);
}
TEST_F(ZmqReceiverTest, Nodes_with_different_lists_refuse_each_other_and_both_say_why) {
    start(a_, 0);
    start(b_, 1, [](ZmqOptions& options) { options.nodes.push_back({"c", "127.0.0.1", find_free_port()}); });
    const std::string at_both = "node list differs: ";
    ASSERT_TRUE(wait([&] {
        return at_a(1).last_refusal.find(at_both) != std::string::npos &&
               at_b(0).last_refusal.find(at_both) != std::string::npos;
    }));
    EXPECT_NE(at_a(1).last_refusal.find("refused by b: node list differs: a has 2 nodes, b has 3 nodes: a "),
              std::string::npos)
        << at_a(1).last_refusal;
    EXPECT_NE(at_b(0).last_refusal.find("refused by a: node list differs: b has 3 nodes, a has 2 nodes: a "),
              std::string::npos);
    EXPECT_NE(at_a(0).last_refusal.find("node list differs: b has 3 nodes"), std::string::npos)
        << "what a refused itself";
    EXPECT_NE(at_a(1).state, PeerState::kUp);
    EXPECT_TRUE(a_.inbox.events.empty());
}

}  // namespace
}  // namespace gradsieve::transport
