#include "transport/zmq_peer.hpp"

#include "transport/frame.hpp"
#include "transport_testing.hpp"

#include <algorithm>
#include <map>

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers

/// Node a's view of peer b, with a bare listener where b would be.
class ZmqPeerTest : public ::testing::Test {
protected:
    void SetUp() override {
        options_ = make_options(make_node_list(2), 0);
        options_.lanes = 2;
        auto context = ZmqContext::make(100);
        ASSERT_TRUE(context.is_ok()) << context.status().to_string();
        context_ = std::move(*context);
        auto listener = context_->make_listener({"tcp://" + address_text(options_.nodes[1]), false, 5000});
        ASSERT_TRUE(listener.is_ok()) << listener.status().to_string();
        listener_.emplace(std::move(*listener));
        poller_.add(*listener_);
        peer_.emplace(options_, 1);
        ASSERT_TRUE(peer_->dial(*context_, options_, 77, poller_).is_ok());
    }
    /// Runs the peer until the listener has got `count` frames; them, with the connection each came on.
    std::vector<std::pair<std::string, Bytes>> receive(std::size_t count) {
        std::vector<std::pair<std::string, Bytes>> frames;
        const auto deadline = SteadyClock().now() + kWatchdog;
        while (frames.size() < count && SteadyClock().now() < deadline) {
            EXPECT_TRUE(poller_.wait(std::chrono::milliseconds(5)).is_ok());
            EXPECT_TRUE(peer_->take_changes(events_).is_ok());
            EXPECT_TRUE(peer_->take_answers(events_).is_ok());
            std::vector<SharedView> parts;
            bool is_cut = false;
            while (listener_->try_receive(9, 5000, parts, is_cut).value()) {
                const auto bytes = parts.at(1).bytes();
                frames.emplace_back(text_of(parts.at(0)), Bytes(bytes.begin(), bytes.end()));
            }
        }
        EXPECT_EQ(frames.size(), count);
        return frames;
    }

    ZmqOptions options_;
    std::unique_ptr<ZmqContext> context_;
    ZmqPoller poller_;
    std::optional<ZmqSocket> listener_;
    std::optional<ZmqPeer> peer_;
    std::vector<PeerEvent> events_;
    ManualClock clock_;
};

TEST_F(ZmqPeerTest, Every_connection_says_what_it_is_for) {
    std::vector<std::pair<ConnectionKind, int>> kinds;
    for (const auto& [id, bytes] : receive(4)) {
        const auto hello = parse_hello(ByteView(bytes).subspan(kFrameHeaderBytes));
        ASSERT_TRUE(hello.is_ok()) << hello.status().to_string();
        EXPECT_TRUE(check_hello(*hello, options_.nodes, 1).is_ok());
        EXPECT_EQ(hello->instance, 77U);
        EXPECT_EQ(hello->lanes, 2U);
        kinds.emplace_back(hello->kind, hello->lane);
    }
    std::sort(kinds.begin(), kinds.end());
    using enum ConnectionKind;
    EXPECT_EQ(kinds,
              (std::vector<std::pair<ConnectionKind, int>>{{kControl, 0}, {kHeartbeat, 0}, {kData, 0}, {kData, 1}}));
}
TEST_F(ZmqPeerTest, Data_takes_the_lanes_in_turn_and_control_has_its_own_connection) {
    receive(4);
    for (int frame = 0; frame < 4; ++frame) {
        ASSERT_TRUE(peer_->send(Lane::kData, make_frame(20, 1), 10000, events_).is_ok());
        ASSERT_TRUE(peer_->send(Lane::kControl, make_frame(21, 1), 10000, events_).is_ok());
    }
    std::map<std::string, std::vector<int>> types;
    for (const auto& [id, bytes] : receive(8)) types[id].push_back(static_cast<int>(bytes.at(4)));
    std::vector<std::vector<int>> seen;
    for (const auto& [id, list] : types) seen.push_back(list);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, (std::vector<std::vector<int>>{{20, 20}, {20, 20}, {21, 21, 21, 21}}));
    EXPECT_EQ(peer_->counters().frames_sent, 12U) << "hellos included";
}
TEST_F(ZmqPeerTest, The_peer_is_up_when_its_hello_has_arrived_and_all_connections_stand) {
    receive(4);
    EXPECT_TRUE(events_.empty());
    Arrival hello;
    hello.from = 1;
    hello.instance = 99;
    hello.is_hello = true;
    hello.wire_bytes = 80;
    peer_->on_arrival(hello, clock_.now(), events_);
    ASSERT_EQ(events_.size(), 1U);
    EXPECT_EQ(events_[0].state, PeerState::kUp);
    EXPECT_EQ(events_[0].instance, 99U);
    EXPECT_EQ(events_[0].text, "b (" + address_text(options_.nodes[1]) + ") answers");
    EXPECT_EQ(peer_->counters().bytes_received, 80U);
    EXPECT_EQ(peer_->counters().last_heard, clock_.now());
}
TEST_F(ZmqPeerTest, A_refusal_that_comes_back_is_told_and_ends_what_we_say) {
    const auto hellos = receive(4);
    const auto body = SharedView::take(build_refusal("node list differs"));
    const auto head = build_frame_header({kRefusalType, 0, 0}, {&body, 1});
    Bytes frame;
    ByteWriter writer(frame);
    writer.write_bytes(head);
    writer.write_bytes(body.bytes());
    const auto gauge = std::make_shared<ByteGauge>(0);
    for (const auto& [id, bytes] : hellos) {
        const std::vector<SharedView> answer{make_body(id), SharedView::take(frame)};
        ASSERT_EQ(listener_->try_send(answer, gauge).value(), SendOutcome::kSent);
    }
    const auto deadline = SteadyClock().now() + kWatchdog;
    while (peer_->counters().frames_refused < 4 && SteadyClock().now() < deadline) {
        ASSERT_TRUE(poller_.wait(std::chrono::milliseconds(5)).is_ok());
        ASSERT_TRUE(peer_->take_answers(events_).is_ok());
    }
    EXPECT_EQ(peer_->counters().last_refusal, "refused by b: node list differs");
    ASSERT_TRUE(peer_->send_heartbeat(make_body("heartbeat")).is_ok());
    ASSERT_TRUE(peer_->send(Lane::kData, make_frame(20, 1), 10000, events_).is_ok());
    EXPECT_EQ(peer_->counters().frames_sent, 4U) << "the hellos only";
}

}  // namespace
}  // namespace gradsieve::transport
