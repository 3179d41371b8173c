// What is particular to the in-process network: a clock turned by hand, links that stop, nodes that die.
#include "transport/loopback_transport.hpp"

#include "transport_testing.hpp"

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers
using std::chrono::milliseconds;
using std::chrono::seconds;

class LoopbackTest : public ::testing::Test {
protected:
    void SetUp() override {
        a_.transport = network_.make_endpoint(0);
        b_.transport = network_.make_endpoint(1);
        poll();
        ASSERT_TRUE(a_.has_event(1, PeerState::kUp) && b_.has_event(0, PeerState::kUp));
        a_.inbox.clear();
        b_.inbox.clear();
    }
    /// With a manual clock a poll must not wait, however long its timeout.
    void poll() {
        ASSERT_TRUE(a_.transport->poll(std::chrono::hours(1), a_.inbox).is_ok());
        ASSERT_TRUE(b_.transport->poll(Duration::max(), b_.inbox).is_ok());
    }

    ManualClock clock_;
    LoopbackNetwork network_{2, clock_};
    Node a_, b_;
};

TEST_F(LoopbackTest, Control_frames_overtake_data_that_waits) {
    ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, 1)).is_ok());
    ASSERT_TRUE(a_.transport->send(1, Lane::kControl, make_frame(20, 2)).is_ok());
    poll();
    ASSERT_EQ(b_.inbox.frames.size(), 2U);
    EXPECT_EQ(b_.inbox.frames[0].header.step, 2U);
    EXPECT_EQ(b_.inbox.frames[1].header.step, 1U);
}
TEST_F(LoopbackTest, A_stopped_link_keeps_frames_and_its_silence_is_named_on_time) {
    network_.set_link(0, 1, false);
    ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, 1, {make_body("later")})).is_ok());
    clock_.advance(seconds(3) - milliseconds(1));
    poll();
    EXPECT_TRUE(b_.inbox.events.empty() && b_.inbox.frames.empty());
    EXPECT_EQ(a_.transport->counters()[1].queued_bytes, 5U);
    clock_.advance(milliseconds(1));
    poll();
    ASSERT_EQ(b_.inbox.events.size(), 1U);
    EXPECT_EQ(b_.inbox.events[0].state, PeerState::kSilent);
    EXPECT_EQ(b_.inbox.events[0].text, "nothing arrived from node 0 for 3.0 s");
    EXPECT_TRUE(a_.inbox.events.empty()) << "the other direction is open";
    network_.set_link(0, 1, true);
    poll();
    EXPECT_EQ(b_.last_event(0).state, PeerState::kUp);
    ASSERT_EQ(b_.inbox.frames.size(), 1U);
    EXPECT_EQ(text_of(b_.inbox.frames[0].body), "later");
}
TEST_F(LoopbackTest, Silence_counts_from_when_the_link_stopped_not_from_the_last_poll) {
    clock_.advance(seconds(2));  // nobody polled meanwhile
    network_.set_link(0, 1, false);
    clock_.advance(milliseconds(2900));
    poll();
    EXPECT_TRUE(b_.inbox.events.empty());
    clock_.advance(milliseconds(100));
    poll();
    EXPECT_EQ(b_.last_event(0).state, PeerState::kSilent);
}
TEST_F(LoopbackTest, A_killed_node_loses_its_frames_and_its_endpoint_says_so) {
    ASSERT_TRUE(a_.transport->send(1, Lane::kData, make_frame(20, 1)).is_ok());
    ASSERT_TRUE(b_.transport->send(0, Lane::kData, make_frame(20, 2)).is_ok());
    network_.kill(1);
    ASSERT_TRUE(a_.transport->poll(Duration::zero(), a_.inbox).is_ok());
    EXPECT_EQ(a_.last_event(1).state, PeerState::kClosed);
    EXPECT_EQ(a_.last_event(1).text, "connection closed by node 1");
    EXPECT_TRUE(a_.inbox.frames.empty());
    const auto polled = b_.transport->poll(Duration::zero(), b_.inbox);
    EXPECT_EQ(polled.code(), StatusCode::kUnavailable);
    EXPECT_EQ(polled.text(), "node 1 was killed: only a new endpoint can use the network again");
    EXPECT_EQ(b_.transport->send(0, Lane::kData, make_frame(20, 3)).code(), StatusCode::kUnavailable);
}
TEST_F(LoopbackTest, A_new_endpoint_after_the_kill_is_another_instance_and_the_old_ones_end_harms_nothing) {
    network_.kill(1);
    const auto old = std::move(b_.transport);
    b_.transport = network_.make_endpoint(1);
    poll();
    ASSERT_EQ(a_.inbox.events.size(), 2U);
    EXPECT_EQ(a_.inbox.events[0].state, PeerState::kClosed);
    EXPECT_EQ(a_.inbox.events[1].state, PeerState::kUp);
    EXPECT_NE(a_.inbox.events[0].instance, a_.inbox.events[1].instance);
    a_.inbox.clear();
    old->wake();
    old->set_tick(9);
    poll();
    EXPECT_TRUE(a_.inbox.events.empty());
    EXPECT_EQ(a_.transport->counters()[1].peer_tick, 0U);
}
TEST_F(LoopbackTest, A_death_behind_a_stopped_link_shows_as_silence) {
    network_.set_link(1, 0, false);
    network_.kill(1);
    ASSERT_TRUE(a_.transport->poll(Duration::zero(), a_.inbox).is_ok());
    EXPECT_TRUE(a_.inbox.events.empty());
    clock_.advance(seconds(3));
    ASSERT_TRUE(a_.transport->poll(Duration::zero(), a_.inbox).is_ok());
    EXPECT_EQ(a_.last_event(1).state, PeerState::kSilent);
}

}  // namespace
}  // namespace gradsieve::transport
