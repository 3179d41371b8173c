#include "transport/peer_life.hpp"

#include <gtest/gtest.h>

namespace gradsieve::transport {
namespace {

using std::chrono::milliseconds;

class PeerLifeTest : public ::testing::Test {
protected:
    void bring_up() {
        life_.on_connected(0, events_);
        life_.on_connected(1, events_);
        life_.on_hello(11, clock_.now(), events_);
        ASSERT_EQ(take(), (std::vector{PeerState::kUp}));
    }
    std::vector<PeerState> take() {
        std::vector<PeerState> states;
        for (const auto& event : events_) states.push_back(event.state);
        if (!events_.empty()) last_ = events_.back();
        events_.clear();
        return states;
    }

    ManualClock clock_;
    PeerLife life_{4, "b (10.0.0.2:7077)", milliseconds(200), 2};
    std::vector<PeerEvent> events_;
    PeerEvent last_;
};

using States = std::vector<PeerState>;

TEST_F(PeerLifeTest, Up_needs_all_connections_and_a_hello_in_any_order) {
    life_.on_hello(11, clock_.now(), events_);
    life_.on_connected(1, events_);
    EXPECT_EQ(take(), States{});
    life_.on_connected(0, events_);
    EXPECT_EQ(take(), States{PeerState::kUp});
    EXPECT_EQ(last_.peer, 4U);
    EXPECT_EQ(last_.instance, 11U);
    EXPECT_EQ(life_.state(), PeerState::kUp);
}
TEST_F(PeerLifeTest, A_peer_never_heard_of_is_neither_silent_nor_closed) {
    life_.on_connected(0, events_);
    clock_.advance(std::chrono::hours(1));
    life_.on_time(clock_.now(), events_);
    life_.on_disconnected(0, events_);
    EXPECT_EQ(take(), States{});
    EXPECT_EQ(life_.state(), PeerState::kConnecting);
    EXPECT_EQ(life_.silent_at(), TimePoint::max());
}
TEST_F(PeerLifeTest, Silence_is_named_when_it_has_lasted_and_ends_with_a_frame) {
    bring_up();
    clock_.advance(milliseconds(199));
    life_.on_time(clock_.now(), events_);
    EXPECT_EQ(take(), States{});
    EXPECT_EQ(life_.silent_at(), clock_.now() + milliseconds(1));
    clock_.advance(milliseconds(1));
    life_.on_time(clock_.now(), events_);
    life_.on_time(clock_.now(), events_);
    EXPECT_EQ(take(), States{PeerState::kSilent}) << "once";
    EXPECT_EQ(last_.text, "nothing arrived from b (10.0.0.2:7077) for 0.2 s");
    life_.on_heard(clock_.now(), events_);
    EXPECT_EQ(take(), States{PeerState::kUp});
}
TEST_F(PeerLifeTest, Any_frame_holds_silence_off) {
    bring_up();
    for (int round = 0; round < 10; ++round) {
        clock_.advance(milliseconds(150));
        life_.on_heard(clock_.now(), events_);
        life_.on_time(clock_.now(), events_);
    }
    EXPECT_EQ(take(), States{});
}
TEST_F(PeerLifeTest, One_closed_connection_closes_the_peer_once_and_its_last_words_do_not_raise_it) {
    bring_up();
    life_.on_disconnected(1, events_);
    life_.on_disconnected(0, events_);
    EXPECT_EQ(take(), States{PeerState::kClosed});
    EXPECT_EQ(last_.text, "connection closed by b (10.0.0.2:7077)");
    EXPECT_EQ(last_.instance, 11U);
    life_.on_heard(clock_.now(), events_);
    life_.on_connected(0, events_);
    life_.on_connected(1, events_);
    EXPECT_EQ(take(), States{}) << "connected again, but nothing heard since";
    life_.on_heard(clock_.now(), events_);
    EXPECT_EQ(take(), States{PeerState::kUp});
}
TEST_F(PeerLifeTest, A_restart_is_told_by_the_hello_even_before_our_connections_close) {
    bring_up();
    life_.on_hello(12, clock_.now(), events_);
    EXPECT_EQ(events_.at(0).instance, 11U);
    EXPECT_EQ(events_.at(0).text, "b (10.0.0.2:7077) was restarted");
    EXPECT_EQ(events_.at(1).instance, 12U);
    EXPECT_EQ(take(), (States{PeerState::kClosed, PeerState::kUp}));
}
TEST_F(PeerLifeTest, A_restart_after_the_close_comes_up_with_the_new_instance) {
    bring_up();
    life_.on_disconnected(0, events_);
    life_.on_disconnected(1, events_);
    life_.on_hello(12, clock_.now(), events_);
    life_.on_connected(1, events_);
    life_.on_connected(0, events_);
    EXPECT_EQ(take(), (States{PeerState::kClosed, PeerState::kUp}));
    EXPECT_EQ(last_.instance, 12U);
}
TEST_F(PeerLifeTest, A_refusal_closes_and_keeps_the_peer_down_until_the_next_connection) {
    bring_up();
    life_.on_refused("node list differs", events_);
    EXPECT_EQ(take(), States{PeerState::kClosed});
    EXPECT_EQ(last_.text, "refused by b (10.0.0.2:7077): node list differs");
    life_.on_heard(clock_.now(), events_);
    EXPECT_EQ(take(), States{});
    life_.on_disconnected(0, events_);
    life_.on_connected(0, events_);
    life_.on_heard(clock_.now(), events_);
    EXPECT_EQ(take(), States{PeerState::kUp});
}
TEST_F(PeerLifeTest, A_silent_peer_whose_connection_closes_is_closed) {
    bring_up();
    clock_.advance(milliseconds(500));
    life_.on_time(clock_.now(), events_);
    life_.on_disconnected(0, events_);
    EXPECT_EQ(take(), (States{PeerState::kSilent, PeerState::kClosed}));
}
TEST_F(PeerLifeTest, Forgiven_silence_counts_from_then) {
    bring_up();
    clock_.advance(milliseconds(1000));
    life_.forgive(clock_.now());
    life_.on_time(clock_.now(), events_);
    EXPECT_EQ(take(), States{});
    clock_.advance(milliseconds(200));
    life_.on_time(clock_.now(), events_);
    EXPECT_EQ(take(), States{PeerState::kSilent});
    EXPECT_EQ(last_.text, "nothing arrived from b (10.0.0.2:7077) for 1.2 s") << "the text tells the whole time";
}

}  // namespace
}  // namespace gradsieve::transport
