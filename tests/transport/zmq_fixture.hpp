// Two ZeroMQ nodes, a and b, on free loopback ports.
#pragma once

#include "transport_testing.hpp"

namespace gradsieve::transport::testing {

class ZmqPair : public ::testing::Test {
protected:
    /// Node `self` of `nodes_`; the test fails if it cannot be made.
    void start(Node& node, PeerIndex self, const std::function<void(ZmqOptions&)>& change = {}) {
        auto options = make_options(nodes_, self);
        if (change) change(options);
        auto made = make_zmq_transport(options, clock_);
        ASSERT_TRUE(made.is_ok()) << made.status().to_string();
        node.transport = std::move(*made);
    }
    [[nodiscard]] bool wait(const std::function<bool()>& is_done) { return poll_until({&a_, &b_}, is_done); }
    [[nodiscard]] bool is_up() const {
        return a_.last_event(1).state == PeerState::kUp && b_.last_event(0).state == PeerState::kUp;
    }
    void start_both(const std::function<void(ZmqOptions&)>& change = {}) {
        start(a_, 0, change);
        start(b_, 1, change);
        ASSERT_TRUE(wait([&] { return is_up(); }));
    }
    [[nodiscard]] PeerCounters at_a(PeerIndex peer) const { return a_.transport->counters().at(peer); }
    [[nodiscard]] PeerCounters at_b(PeerIndex peer) const { return b_.transport->counters().at(peer); }
    /// The nodes still exchange frames.
    void expect_alive() {
        const auto before = b_.inbox.frames.size();
        ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(99, 1)).is_ok());
        EXPECT_TRUE(wait([&] { return b_.inbox.frames.size() > before && b_.inbox.frames.back().header.type == 99; }));
    }

    const SteadyClock clock_;
    std::vector<PeerAddress> nodes_ = make_node_list(2);
    Node a_, b_;
};

}  // namespace gradsieve::transport::testing
