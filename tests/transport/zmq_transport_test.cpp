// What is particular to ZeroMQ: connections that come and go, silence, limits, ports.
#include "transport/zmq_transport.hpp"

#include "zmq_fixture.hpp"

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers
using std::chrono::milliseconds;

class ZmqTransportTest : public ZmqPair {};

TEST_F(ZmqTransportTest, The_bound_address_says_where_and_why) {
    start(a_, 0);
    EXPECT_EQ(a_.transport->bound_address(),
              "127.0.0.1:" + std::to_string(nodes_[0].port) + " (lo has this node's address)");
    EXPECT_EQ(at_a(1).address, "127.0.0.1:" + std::to_string(nodes_[1].port));
}
TEST_F(ZmqTransportTest, A_port_in_use_names_its_holder) {
    start(a_, 0);
    std::string program;
    std::getline(std::ifstream("/proc/self/comm"), program);
    const auto second = make_zmq_transport(make_options(nodes_, 0), clock_);
    const auto port = std::to_string(nodes_[0].port);
    EXPECT_EQ(second.status().to_string(), "already-exists: listening on 127.0.0.1:" + port + ": port " + port +
                                               " is held by pid " + std::to_string(getpid()) + " (" + program +
                                               "); end it, or give this node another port");
}
TEST_F(ZmqTransportTest, Wrong_options_are_refused_before_anything_is_bound) {
    auto options = make_options(nodes_, 0);
    options.lanes = 0;
    EXPECT_EQ(make_zmq_transport(options, clock_).status().code(), StatusCode::kInvalidArgument);
    options = make_options(nodes_, 0);
    options.bind_interface = "no-such-interface";
    EXPECT_EQ(make_zmq_transport(options, clock_).status().code(), StatusCode::kInvalidArgument);
}
TEST_F(ZmqTransportTest, A_single_node_binds_nothing_and_its_poll_waits_for_a_wake) {
    for (const std::size_t nodes : {0U, 1U}) {
        ZmqOptions options;
        options.nodes.assign(nodes_.begin(), nodes_.begin() + static_cast<std::ptrdiff_t>(nodes));
        auto made = make_zmq_transport(options, clock_);
        ASSERT_TRUE(made.is_ok()) << made.status().to_string();
        auto& transport = **made;
        EXPECT_EQ(transport.bound_address(), "none (single node)");
        EXPECT_EQ(transport.counters().size(), nodes);
        EXPECT_FALSE(transport.send(0, Lane::kControl, make_frame(20, 1)).is_ok());
        std::thread waker([&] { transport.wake(); });
        Inbox inbox;
        EXPECT_TRUE(transport.poll(Duration::max(), inbox).is_ok());
        waker.join();
        EXPECT_TRUE(inbox.frames.empty() && inbox.events.empty());
    }
    start(a_, 0);  // the port is free
}
TEST_F(ZmqTransportTest, Nodes_reach_each_other_by_name_and_by_ipv6) {
    for (const std::string host : {"localhost", "::1"}) {
        a_ = Node();
        b_ = Node();
        for (auto& node : nodes_) node.host = host;
        if (make_zmq_transport(make_options(nodes_, 0), clock_).status().code() == StatusCode::kInvalidArgument) {
            GTEST_SKIP() << "this host has no loopback address for " << host;
        }
        start_both();
        expect_alive();
    }
}
TEST_F(ZmqTransportTest, Several_lanes_carry_data_and_count_together) {
    constexpr std::size_t kFrames = 200;
    start_both([](ZmqOptions& options) { options.lanes = 3; });
    for (std::size_t number = 0; number < kFrames; ++number) {
        ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, number, {make_body(2000, number)})).is_ok());
    }
    ASSERT_TRUE(
        wait([&] { return b_.inbox.frames.size() == kFrames && at_a(1).bytes_sent == at_b(0).bytes_received; }));
    std::vector<bool> seen(kFrames);
    for (const auto& frame : b_.inbox.frames) {
        seen[frame.header.step] = std::ranges::equal(frame.body.bytes(), make_body(2000, frame.header.step).bytes());
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<std::ptrdiff_t>(kFrames));
}
TEST_F(ZmqTransportTest, A_poll_that_ends_among_frames_for_somebody_who_wants_to_send_loses_none) {
    constexpr std::size_t kFrames = 3000;
    start_both();
    for (std::size_t number = 0; number < kFrames; ++number)
        ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, number, {make_body(2000, number)})).is_ok());
    std::atomic<bool> is_over{false};
    std::thread sender([&] {
        while (!is_over.load(std::memory_order_relaxed)) b_.transport->wake();
    });
    EXPECT_TRUE(wait([&] { return b_.inbox.frames.size() == kFrames; }));
    is_over.store(true, std::memory_order_relaxed);
    sender.join();
    for (std::size_t number = 0; number < b_.inbox.frames.size(); ++number) {
        ASSERT_EQ(b_.inbox.frames[number].header.step, number);
        ASSERT_TRUE(std::ranges::equal(b_.inbox.frames[number].body.bytes(), make_body(2000, number).bytes()));
    }
    expect_alive();
}
TEST_F(ZmqTransportTest, Sent_bytes_are_let_go_when_the_network_has_them) {
    start_both();
    auto body = make_body(100000, 1);
    const std::weak_ptr<const void> owner = body.owner();
    OutFrame frame = make_frame(20, 1, {std::move(body)});
    body = {};
    ASSERT_TRUE(a_.transport->send(1, Lane::kData, std::move(frame)).is_ok());
    EXPECT_TRUE(wait([&] { return owner.expired() && at_a(1).queued_bytes == 0; }));
    EXPECT_TRUE(wait([&] { return b_.inbox.frames.size() == 1; }));
}
TEST_F(ZmqTransportTest, A_received_body_outlives_the_transport) {
    start_both();
    ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, 1, {make_body(100000, 3)})).is_ok());
    ASSERT_TRUE(wait([&] { return b_.inbox.frames.size() == 1; }));
    b_.transport.reset();
    EXPECT_TRUE(std::ranges::equal(b_.inbox.frames[0].body.bytes(), make_body(100000, 3).bytes()));
}
TEST_F(ZmqTransportTest, The_queue_limit_holds_until_the_peer_takes_what_waits) {
    start(a_, 0, [](ZmqOptions& options) { options.queue_limit_bytes = 10000; });
    const auto body = make_body(4000, 1);
    ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, 1, {body})).is_ok());
    ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, 2, {body})).is_ok());
    const auto third = a_.transport->send(1, Lane::kData, make_frame(20, 3, {body}));
    EXPECT_EQ(third.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(third.text().find("4000 more would pass the limit of 10000; wait until it drains"), std::string::npos)
        << third.text();
    start(b_, 1);
    ASSERT_TRUE(wait([&] { return b_.inbox.frames.size() == 2 && at_a(1).queued_bytes == 0; }));
    EXPECT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, 3, {body})).is_ok());
    EXPECT_TRUE(wait([&] { return b_.inbox.frames.size() == 3; }));
}
TEST_F(ZmqTransportTest, A_frame_over_the_peers_limit_costs_the_connection_which_comes_back) {
    start(a_, 0);
    start(b_, 1, [](ZmqOptions& options) { options.frame_limit_bytes = 10000; });
    ASSERT_TRUE(wait([&] { return is_up(); }));
    ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, 1, {make_body(20000, 1)})).is_ok());
    ASSERT_TRUE(wait([&] { return a_.has_event(1, PeerState::kClosed); }));
    ASSERT_TRUE(wait([&] { return a_.last_event(1).state == PeerState::kUp; }));
    EXPECT_EQ(a_.last_event(1).instance, a_.inbox.events.front().instance) << "the same life of b";
    EXPECT_TRUE(b_.inbox.frames.empty());
    expect_alive();
}
TEST_F(ZmqTransportTest, A_frame_over_the_peers_limit_in_small_parts_is_refused_and_counted) {
    start(a_, 0);
    start(b_, 1, [](ZmqOptions& options) { options.frame_limit_bytes = 10000; });
    ASSERT_TRUE(wait([&] { return is_up(); }));
    const auto part = make_body(5000, 1);
    ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, 1, {part, part, part})).is_ok());
    ASSERT_TRUE(wait([&] { return at_b(0).frames_refused == 1; }));
    EXPECT_EQ(at_b(0).last_refusal,
              "message of too many bytes or parts: the limits are 10000 bytes and 1024 parts; send smaller frames");
    EXPECT_TRUE(b_.inbox.frames.empty());
    expect_alive();
}
TEST_F(ZmqTransportTest, A_restart_under_load_loses_no_frame_to_a_missing_hello) {
    start_both();
    for (int restart = 0; restart < 3; ++restart) {
        b_.transport.reset();
        b_.inbox.clear();
        std::uint64_t number = 0;
        const auto flood = [&] {
            for (const auto lane : {Lane::kControl, Lane::kData}) {
                EXPECT_TRUE(
                    a_.transport->send(1, lane, make_frame(20, ++number, {make_body(number % 3000, number)})).is_ok());
            }
        };
        for (int round = 0; round < 20; ++round) flood();
        start(b_, 1);
        ASSERT_TRUE(wait([&] {
            flood();
            return !b_.inbox.frames.empty() && is_up();
        }));
        EXPECT_EQ(at_b(0).frames_refused + at_b(1).frames_refused, 0U) << at_b(1).last_refusal;
    }
}
TEST_F(ZmqTransportTest, Closing_with_frames_still_queued_does_not_hang) {
    start_both();
    for (int number = 0; number < 50; ++number) {
        ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, 1, {make_body(1U << 20U, 1)})).is_ok());
    }
    a_.transport.reset();
    EXPECT_TRUE(wait([&] { return b_.has_event(0, PeerState::kClosed); }));
}

/// Node a judges by a clock turned by hand.
class ZmqSilenceTest : public ZmqPair {
protected:
    void SetUp() override {
        auto made = make_zmq_transport(make_options(nodes_, 0), manual_);
        ASSERT_TRUE(made.is_ok()) << made.status().to_string();
        a_.transport = std::move(*made);
        start(b_, 1);
        ASSERT_TRUE(wait([&] { return is_up(); }));
    }
    /// Lets a's time pass in steps while b is not polled, as if it were stopped; true once a names b silent.
    [[nodiscard]] bool pass(Duration time) {
        for (auto left = time; left > Duration::zero(); left -= milliseconds(50)) {
            manual_.advance(milliseconds(50));
            EXPECT_TRUE(a_.transport->poll(Duration::zero(), a_.inbox).is_ok());
        }
        return a_.last_event(1).state == PeerState::kSilent;
    }
    /// Reads what b sent before it stopped.
    void settle() { EXPECT_TRUE(a_.transport->poll(milliseconds(20), a_.inbox).is_ok()); }
    ManualClock manual_;
};

TEST_F(ZmqSilenceTest, A_peer_that_stops_is_named_in_time_and_comes_up_again) {
    settle();
    EXPECT_FALSE(pass(milliseconds(1900)));
    EXPECT_TRUE(pass(milliseconds(150)));
    EXPECT_NE(a_.last_event(1).text.find("nothing arrived from b (127.0.0.1:"), std::string::npos)
        << a_.last_event(1).text;
    EXPECT_EQ(at_a(1).state, PeerState::kSilent);
    ASSERT_TRUE(wait([&] { return is_up(); }));
    expect_alive();
}
TEST_F(ZmqSilenceTest, A_peer_is_not_blamed_for_our_own_pause) {
    settle();
    manual_.advance(std::chrono::seconds(60));
    EXPECT_TRUE(a_.transport->poll(Duration::zero(), a_.inbox).is_ok());
    EXPECT_EQ(a_.last_event(1).state, PeerState::kUp);
    EXPECT_TRUE(pass(milliseconds(2050))) << "but real silence is named after that";
}

}  // namespace
}  // namespace gradsieve::transport
