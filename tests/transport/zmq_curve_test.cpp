// CURVE between nodes: who is let in, who is not, what each side says of it, and what it costs on the wire.
#include "base/unique_fd.hpp"
#include "raw_peer.hpp"
#include "transport/frame.hpp"
#include "zmq_fixture.hpp"

#include <gmock/gmock.h>
#include <random>

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers
using ::testing::HasSubstr;

class ZmqCurveTest : public ZmqPair {
protected:
    /// With the key that belongs to `self` in the list, unless `change` says otherwise.
    void start_with_key(Node& node, PeerIndex self, const std::function<void(ZmqOptions&)>& change = {}) {
        start(node, self, [&](ZmqOptions& options) {
            options.secret_key = pairs_[self].secret_key;
            if (change) change(options);
        });
    }
    void start_both_with_keys() {
        start_with_key(a_, 0);
        start_with_key(b_, 1);
        ASSERT_TRUE(wait([&] { return is_up(); }));
    }
    [[nodiscard]] DialKeys keys_of(PeerIndex node) const {
        return {nodes_[1].public_key, pairs_[node].public_key, pairs_[node].secret_key};
    }
    [[nodiscard]] static std::size_t notices_with(const Node& node, const std::string& part) {
        std::size_t count = 0;
        for (const auto& notice : node.inbox.notices) count += notice.text.find(part) != std::string::npos ? 1 : 0;
        return count;
    }

    std::vector<KeyPair> pairs_ = [this] {
        nodes_.push_back(make_node_list(3).back());  // c, which only some tests start
        return give_keys(nodes_);
    }();
};

TEST_F(ZmqCurveTest, Nodes_with_each_others_keys_exchange_frames) {
    start_both_with_keys();
    expect_alive();
    ASSERT_TRUE(b_.transport->send(0, Lane::kControl, make_frame(20, 5, {make_body("from b")})).is_ok());
    ASSERT_TRUE(wait([&] { return !a_.inbox.frames.empty(); }));
    EXPECT_EQ(a_.inbox.frames[0].from, 1U);
    EXPECT_EQ(text_of(a_.inbox.frames[0].body), "from b");
    for (const auto& port : {a_.transport->port_counters(), b_.transport->port_counters()}) {
        EXPECT_EQ(port.keys_refused + port.handshakes_failed, 0U) << port.last_refusal;
    }
    EXPECT_EQ(at_a(1).handshake, "");
}
TEST_F(ZmqCurveTest, A_frame_at_the_limit_passes_in_one_part) {
    constexpr ByteCount kLimit = 100'000;
    start_with_key(a_, 0, [](ZmqOptions& options) { options.frame_limit_bytes = kLimit; });
    start_with_key(b_, 1, [](ZmqOptions& options) { options.frame_limit_bytes = kLimit; });
    ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, 1, {make_body(kLimit, 3)})).is_ok());
    ASSERT_TRUE(wait([&] { return !b_.inbox.frames.empty(); }));
    EXPECT_TRUE(std::ranges::equal(b_.inbox.frames[0].body.bytes(), make_body(kLimit, 3).bytes()));
}
TEST_F(ZmqCurveTest, An_unknown_key_is_refused_counted_and_told_once_on_both_sides) {
    start_with_key(b_, 1);
    const auto stranger = make_key_pair().value();
    start(a_, 0, [&](ZmqOptions& options) {
        options.nodes[0].public_key = stranger.public_key;
        options.secret_key = stranger.secret_key;
    });
    // Several attempts of each of the three connections.
    ASSERT_TRUE(wait([&] { return b_.transport->port_counters().keys_refused >= 7; }));
    EXPECT_THAT(b_.transport->port_counters().last_refusal,
                HasSubstr("key " + stranger.public_key + " from 127.0.0.1"));
    EXPECT_EQ(notices_with(b_, stranger.public_key), 1U);
    EXPECT_EQ(at_a(1).handshake, "key refused by b (" + nodes_[1].host + ":" + std::to_string(nodes_[1].port) +
                                     "): it must have " + stranger.public_key +
                                     " as the public_key of node a; enter it there, then reload that daemon");
    EXPECT_EQ(notices_with(a_, "key refused by b"), 1U);
    EXPECT_FALSE(a_.has_event(1, PeerState::kUp) || b_.has_event(0, PeerState::kUp));
    EXPECT_TRUE(b_.inbox.frames.empty());
    EXPECT_EQ(at_b(0).bytes_received + at_b(1).frames_refused, 0U) << "not a frame came through";
}
TEST_F(ZmqCurveTest, A_node_whose_new_key_was_entered_comes_up_without_its_own_restart) {
    auto list = nodes_;
    const auto fresh = make_key_pair().value();
    start_with_key(b_, 1);
    const auto with_fresh_key = [&](ZmqOptions& options) { options.nodes[0].public_key = fresh.public_key; };
    start(a_, 0, [&](ZmqOptions& options) {
        with_fresh_key(options);
        options.secret_key = fresh.secret_key;
    });
    ASSERT_TRUE(wait([&] { return !at_a(1).handshake.empty(); }));
    b_ = {};
    start_with_key(b_, 1, with_fresh_key);
    ASSERT_TRUE(wait([&] { return is_up(); }));
    EXPECT_EQ(at_a(1).handshake, "") << "what failed before is no news any more";
    expect_alive();
    a_ = {};
    start_with_key(a_, 0);  // the key from before
    ASSERT_TRUE(wait([&] { return b_.transport->port_counters().keys_refused > 0; }));
    EXPECT_THAT(b_.transport->port_counters().last_refusal, HasSubstr(pairs_[0].public_key));
}
TEST_F(ZmqCurveTest, Plain_text_and_curve_do_not_meet_and_both_say_so) {
    start(a_, 0);
    start_with_key(b_, 1);
    // Whoever reads the other's greeting first hangs up, and the other learns the cause from a later attempt.
    const auto has = [](const PeerCounters& counters, const std::string& text) {
        return counters.handshake.find(text) != std::string::npos;
    };
    ASSERT_TRUE(wait([&] {
        return has(at_a(1), ") wants CURVE: this node speaks plain text; set security the same") &&
               has(at_b(0), ") speaks plain text: this node wants CURVE; set security the same");
    })) << at_a(1).handshake
        << at_b(0).handshake;
    ASSERT_TRUE(wait([&] {
        return a_.transport->port_counters().handshakes_failed > 0 &&
               b_.transport->port_counters().handshakes_failed > 0;
    }));
    EXPECT_THAT(b_.transport->port_counters().last_refusal, HasSubstr("plain text refused: needed is CURVE"));
    EXPECT_THAT(a_.transport->port_counters().last_refusal, HasSubstr("wants CURVE refused"));
    EXPECT_FALSE(a_.has_event(1, PeerState::kUp) || b_.has_event(0, PeerState::kUp));
    a_ = {};
    start_with_key(a_, 0);
    ASSERT_TRUE(wait([&] { return is_up(); })) << "b tries again by itself";
}
TEST_F(ZmqCurveTest, A_wrong_key_for_the_peer_ends_in_the_handshake_with_a_hint) {
    start_with_key(b_, 1);
    const auto wrong = make_key_pair().value().public_key;
    start_with_key(a_, 0, [&](ZmqOptions& options) { options.nodes[1].public_key = wrong; });
    ASSERT_TRUE(wait([&] { return !at_a(1).handshake.empty(); }));
    EXPECT_THAT(at_a(1).handshake, HasSubstr("ends the handshake: it must own the key " + wrong));
    ASSERT_TRUE(wait([&] { return b_.transport->port_counters().handshakes_failed > 3; }));
    EXPECT_EQ(notices_with(b_, "made for another key than this node's"), 1U);
    EXPECT_FALSE(b_.has_event(0, PeerState::kUp));
}
TEST_F(ZmqCurveTest, A_known_key_that_claims_to_be_another_node_is_refused) {
    start_with_key(b_, 1);
    // c's key, and a's name: digests of node lists do not know keys.
    start(a_, 0, [&](ZmqOptions& options) {
        options.nodes[0].public_key = pairs_[2].public_key;
        options.nodes[2].public_key = pairs_[0].public_key;
        options.secret_key = pairs_[2].secret_key;
    });
    ASSERT_TRUE(wait([&] { return at_b(2).frames_refused > 0 && at_a(1).frames_refused > 0; }));
    const std::string text = "the key of node c speaks as node a: each node has to use its own";
    EXPECT_THAT(at_b(2).last_refusal, HasSubstr(text)) << "counted at the key's owner";
    EXPECT_THAT(at_a(1).last_refusal, HasSubstr("refused by b: " + text));
    EXPECT_EQ(at_b(0).frames_refused, 0U);
    EXPECT_FALSE(b_.has_event(0, PeerState::kUp) || a_.has_event(1, PeerState::kUp));
}
TEST_F(ZmqCurveTest, Another_nodes_routing_id_carries_no_frames_under_the_wrong_key) {
    start_with_key(b_, 1);
    const auto hello = hello_of(nodes_, 0, 1);
    RawDealer rightful(nodes_[1], build_routing_id(hello), keys_of(0));
    ASSERT_TRUE(wait([&] { return rightful.try_send({frame_bytes({kHelloType, 0, 0}, build_hello(hello))}); }));
    ASSERT_TRUE(wait([&] { return rightful.try_send({frame_bytes({20, 0, 1}, {})}); }));
    ASSERT_TRUE(wait([&] { return b_.inbox.frames.size() == 1; }));
    RawDealer thief(nodes_[1], build_routing_id(hello), keys_of(2));
    ASSERT_TRUE(wait([&] { return thief.try_send({frame_bytes({21, 0, 2}, {})}); }));
    ASSERT_TRUE(wait([&] { return at_b(2).frames_refused == 1; }));
    EXPECT_THAT(at_b(2).last_refusal, HasSubstr("the key of node c speaks as node a"));
    EXPECT_EQ(b_.inbox.frames.size(), 1U);
}
TEST_F(ZmqCurveTest, Damaged_handshakes_never_end_the_node) {
    start_both_with_keys();
    const auto seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Bytes greeting = bytes_of("ff00000000000000017f03004355525645");  // ZMTP 3.0, mechanism CURVE
    greeting.resize(64);
    for (int stranger = 0; stranger < 60; ++stranger) {
        auto bytes = greeting;
        // A command frame that may claim to be a HELLO, of a right or wrong length, with random content.
        const std::size_t length = stranger % 3 == 0 ? 200 : random() % 256;
        bytes.push_back(std::byte{4});
        bytes.push_back(static_cast<std::byte>(length));
        const auto name = bytes_of("0548454c4c4f");
        for (std::size_t place = 0; place < length; ++place)
            bytes.push_back(place < name.size() && stranger % 4 != 1 ? name[place] : static_cast<std::byte>(random()));
        send_raw_tcp(nodes_[1], bytes);
    }
    expect_alive();
    EXPECT_EQ(b_.last_event(0).state, PeerState::kUp);
    EXPECT_TRUE(wait([&] { return b_.transport->port_counters().handshakes_failed > 0; }));
    EXPECT_LE(b_.inbox.notices.size(), 2U) << "however many came";
}
TEST(ZmqWire, What_is_counted_is_what_travels_and_encrypted_it_cannot_be_read) {
    const std::string marker = "a gradient in clear text";
    const auto server = make_key_pair().value();
    const auto client = make_key_pair().value();
    for (const bool is_encrypted : {false, true}) {
        const PeerAddress target{"b", "127.0.0.1", find_free_port()};
        auto context = ZmqContext::make(10).value();
        ListenerOptions listening{"tcp://127.0.0.1:" + std::to_string(target.port), false, 100'000};
        TcpRelay relay(target);
        DialOptions dialing{"tcp://127.0.0.1:" + std::to_string(relay.address().port), false, bytes_of("4753"), 0, {}};
        if (is_encrypted) {
            listening.secret_key = server.secret_key;
            dialing.keys = DialKeys{server.public_key, client.public_key, client.secret_key};
        }
        auto listener = context->make_listener(listening).value();
        auto dialer = context->make_dialer(dialing).value();
        const auto gauge = std::make_shared<ByteGauge>(0);
        const auto carry = [&](const std::vector<SharedView>& parts) {
            ZmqPoller poller;
            poller.add(listener);
            poller.add(dialer);
            std::vector<SharedView> arrived;
            bool is_sent = false, is_cut = false;
            for (const auto deadline = SteadyClock().now() + kWatchdog; SteadyClock().now() < deadline;) {
                is_sent = is_sent || dialer.try_send(parts, gauge).value() == SendOutcome::kSent;
                if (listener.try_receive(100, 100'000, arrived, is_cut).value()) return arrived.size() - 1;
                EXPECT_TRUE(poller.wait(std::chrono::milliseconds(5)).is_ok());
            }
            return std::size_t{0};
        };
        ASSERT_EQ(carry({make_body("first")}), 1U);
        const auto before = relay.overheard().size();
        const std::vector<SharedView> parts = {make_body(0, 0),   make_body(222, 0), make_body(223, 0),
                                               make_body(255, 0), make_body(256, 0), make_body(50'000, 0),
                                               make_body(marker)};
        ASSERT_EQ(carry(parts), parts.size());
        const auto overheard = relay.overheard();
        EXPECT_EQ(overheard.size() - before, message_wire_bytes(parts, is_encrypted)) << is_encrypted;
        EXPECT_EQ(overheard.find(marker) == std::string::npos, is_encrypted);
    }
}

}  // namespace
}  // namespace gradsieve::transport
