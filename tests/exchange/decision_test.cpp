// What the nodes decide together when one of them fails.
#include "tests/exchange/sim.hpp"

#include <gtest/gtest.h>

namespace gradsieve::exchange {
namespace {

using namespace std::chrono_literals;

SimOptions nodes(std::size_t count) {
    SimOptions options{.ranks = {}, .spec = make_spec(static_cast<std::uint32_t>(count), 2, 1)};
    for (Rank rank = 0; rank < count; ++rank) options.ranks.push_back({rank});
    return options;
}

TEST(Decision, Dead_node_fails_the_open_step_everywhere_after_the_timeout) {
    Sim sim(nodes(3));
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    for (const Rank rank : {0U, 1U}) ASSERT_TRUE(sim.submit(rank, 0, 2).is_ok());
    sim.kill(2);
    sim.run_for(2500ms);
    EXPECT_FALSE(sim.node(0).end) << "named, not failed yet";
    sim.run_for(1s);
    for (std::size_t node = 0; node < 2; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kPeerFailed);
        EXPECT_TRUE(has(sim.node(node).end->text(), "node c (10.0.0.3) failed")) << sim.node(node).end->text();
        EXPECT_EQ(sim.node(node).results.at({0, 2}).code(), StatusCode::kPeerFailed);
        EXPECT_EQ(sim.node(node).committed[0], 1U);
    }
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(Decision, Others_complete_a_step_that_one_live_node_has_completed) {
    Sim sim(nodes(3));
    sim.attach_all();
    sim.filter = [](std::size_t from, const SendFrame& frame) {  // node c's payload reaches node b alone
        return from != 2 || frame.to != 0 || !is_type(frame, FrameType::kRecords);
    };
    sim.submit_all(1);
    sim.run_quiet();
    ASSERT_EQ(sim.node(1).committed[0], 1U);
    ASSERT_EQ(sim.node(0).committed[0], 0U);
    sim.kill(2);
    sim.run_for(5s);
    EXPECT_EQ(sim.node(0).committed[0], 1U) << sim.text();
    EXPECT_TRUE(sim.node(0).results.at({0, 1}).is_ok());
    for (std::size_t node = 0; node < 2; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kPeerFailed);
    }
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(Decision, Next_node_leads_when_the_coordinator_failed) {
    Sim sim(nodes(4));
    sim.attach_all();
    sim.filter = [](std::size_t from, const SendFrame& frame) {  // node a's payload reaches node d alone
        return from != 0 || frame.to == 3 || !is_type(frame, FrameType::kRecords);
    };
    sim.submit_all(1);
    sim.run_quiet();
    ASSERT_EQ(sim.node(3).committed[0], 1U);
    sim.kill(0);
    sim.run_for(5s);
    for (std::size_t node = 1; node < 4; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).committed[0], 1U) << sim.text();
    }
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(Decision, One_broken_link_gives_all_three_nodes_one_verdict) {
    Sim sim(nodes(3));
    sim.attach_all();
    sim.filter = [](std::size_t from, const SendFrame& frame) {  // nobody completes step 1
        return from == 2 || !is_type(frame, FrameType::kRecords);
    };
    sim.submit_all(1);
    sim.run_quiet();
    sim.set_link(0, 2, LinkState::kClosed);
    sim.run_for(20s);
    for (std::size_t node = 0; node < 3; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kPeerFailed) << sim.text();
        EXPECT_EQ(sim.node(node).results.at({0, 1}).code(), StatusCode::kPeerFailed);
        EXPECT_EQ(sim.node(node).committed[0], 0U);
    }
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(Decision, Node_that_cannot_reach_the_coordinator_gets_unavailable_and_no_result) {
    Sim sim(nodes(4));
    sim.attach_all();
    sim.filter = [](std::size_t, const SendFrame& frame) {  // nobody completes step 1, and no verdict reaches d
        return !is_type(frame, FrameType::kRecords) && (!is_type(frame, FrameType::kVerdict) || frame.to != 3);
    };
    sim.submit_all(1);
    sim.run_quiet();
    sim.set_link(0, 3, LinkState::kClosed);
    sim.set_link(1, 3, LinkState::kClosed);
    sim.run_for(30s);
    ASSERT_TRUE(sim.node(3).end) << sim.text();
    EXPECT_EQ(sim.node(3).end->code(), StatusCode::kUnavailable) << sim.text();
    EXPECT_EQ(sim.node(3).committed[0], 0U);
    EXPECT_EQ(sim.node(3).results.at({0, 1}).code(), StatusCode::kUnavailable);
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(Decision, Link_that_comes_back_in_time_loses_nothing) {
    Sim sim(nodes(3));
    sim.attach_all();
    sim.set_link(0, 2, LinkState::kSilent);
    sim.submit_all(1);
    sim.run_for(2500ms);
    EXPECT_FALSE(sim.node(0).end);
    sim.set_link(0, 2, LinkState::kUp);
    sim.run_quiet();
    for (std::size_t node = 0; node < 3; ++node) EXPECT_EQ(sim.node(node).committed[0], 1U) << sim.text();
}
TEST(Decision, Restarted_daemon_ends_the_job_naming_the_node) {
    Sim sim(nodes(3));
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    sim.restart(1);
    sim.run_for(1s);
    for (const std::size_t node : {0U, 2U}) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kPeerFailed);
        EXPECT_TRUE(has(sim.node(node).end->text(), "daemon on node b restarted in the middle of job 'job'"));
        EXPECT_TRUE(has(sim.node(node).end->text(), "start the job again: it goes on from the last step"));
    }
}
TEST(Decision, Verdict_reaches_all_although_the_coordinator_dies_while_sending_it) {
    for (const bool completes : {false, true}) {
        Sim sim(nodes(4));
        sim.attach_all();
        sim.filter = [completes](std::size_t from, const SendFrame& frame) {
            if (is_type(frame, FrameType::kRecords) && from == 3) return completes && frame.to == 0;
            return !(is_type(frame, FrameType::kVerdict) && from == 0 && frame.to == 2);  // node a tells node b alone
        };
        sim.submit_all(1);
        sim.run_quiet();
        sim.kill(3);
        bool is_dead = false;
        for (int i = 0; i < 2000 && !is_dead; ++i) {
            sim.run_for(10ms);
            is_dead = sim.node(1).end.has_value() || sim.node(0).end.has_value() ||
                      sim.node(1).machine->snapshot(sim.now()).phase == "deciding";
        }
        sim.run_for(300us);
        sim.kill(0);
        sim.run_for(20s);
        for (const std::size_t node : {1U, 2U}) {
            ASSERT_TRUE(sim.node(node).end) << sim.text();
            EXPECT_EQ(sim.node(node).committed[0], sim.node(1).committed[0]) << sim.text();
        }
        EXPECT_TRUE(sim.violations().empty()) << sim.text();
    }
}
TEST(Decision, Member_that_forgot_the_job_is_noticed_although_its_daemon_is_up) {
    Sim sim(nodes(2));
    sim.attach_all();
    sim.node(1).machine.reset();
    ASSERT_TRUE(sim.submit(0, 0, 1).is_ok());
    sim.run_for(5s);
    ASSERT_TRUE(sim.node(0).end) << sim.text();
    EXPECT_EQ(sim.node(0).end->code(), StatusCode::kPeerFailed);
    EXPECT_TRUE(has(sim.node(0).end->text(), "node b has not answered for job 'job' for 3 s"))
        << sim.node(0).end->text();
}
TEST(Decision, Submitting_after_the_verdict_says_why_the_job_ended) {
    Sim sim(nodes(2));
    sim.attach_all();
    sim.kill(1);
    sim.run_for(5s);
    ASSERT_TRUE(sim.node(0).end);
    const auto status = sim.submit(0, 0, 1);
    EXPECT_EQ(status.code(), StatusCode::kPeerFailed);
    EXPECT_TRUE(has(status.text(), "node b")) << status.text();
}

}  // namespace
}  // namespace gradsieve::exchange
