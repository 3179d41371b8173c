// What is particular to ZeroMQ: connection life, silence, ports, configurations that differ.
#include "transport/zmq_transport.hpp"

#include "base/unique_fd.hpp"
#include "transport_testing.hpp"

#include <unistd.h>

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers
using std::chrono::milliseconds;

class ZmqTransportTest : public ::testing::Test {
protected:
    /// Node `self` of `nodes_`; the test fails if it cannot be made.
    void start(Node& node, PeerIndex self, const std::function<void(ZmqOptions&)>& change = {}) {
        auto options = make_options(nodes_, self);
        if (change) change(options);
        auto made = make_zmq_transport(options, clock_);
        ASSERT_TRUE(made.is_ok()) << made.status().to_string();
        node.transport = std::move(*made);
    }
    void start_both() {
        start(a_, 0);
        start(b_, 1);
        ASSERT_TRUE(
            poll_until({&a_, &b_}, [&] { return a_.has_event(1, PeerState::kUp) && b_.has_event(0, PeerState::kUp); }));
    }

    const SteadyClock clock_;
    std::vector<PeerAddress> nodes_ = make_node_list(2);
    Node a_, b_;
};

TEST_F(ZmqTransportTest, Peers_come_up_and_exchange_frames) {
    start_both();
    ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, 3, {make_body("hello b")})).is_ok());
    ASSERT_TRUE(b_.transport->send(0, Lane::kControl, make_frame(21, 4, {make_body("hello a")})).is_ok());
    ASSERT_TRUE(poll_until({&a_, &b_}, [&] { return !a_.inbox.frames.empty() && !b_.inbox.frames.empty(); }));
    EXPECT_EQ(text_of(b_.inbox.frames.front().body), "hello b");
    EXPECT_EQ(b_.inbox.frames.front().header.step, 3U);
    EXPECT_EQ(text_of(a_.inbox.frames.front().body), "hello a");
}

}  // namespace
}  // namespace gradsieve::transport
