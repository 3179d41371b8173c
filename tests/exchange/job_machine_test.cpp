// Ranks that leave or die, and the end of jobs.
#include "tests/exchange/sim.hpp"

#include <gtest/gtest.h>

namespace gradsieve::exchange {
namespace {

using namespace std::chrono_literals;

SimOptions three_nodes() { return {.ranks = {{0}, {1, 3}, {2}}, .spec = make_spec(4, 2, 1)}; }

TEST(JobMachine, Dead_rank_fails_the_open_step_everywhere_within_one_message_time) {
    Sim sim(three_nodes());
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    ASSERT_TRUE(sim.submit(0, 0, 2).is_ok());
    sim.leave(3, false, "killed by signal 9");
    sim.run_for(150us);
    for (std::size_t node = 0; node < 3; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kPeerFailed);
        EXPECT_TRUE(has(sim.node(node).end->text(), "rank 3 on node b died: killed by signal 9"))
            << sim.node(node).end->text();
    }
    EXPECT_EQ(sim.node(0).results.at({0, 2}).code(), StatusCode::kPeerFailed);
    EXPECT_EQ(sim.submit(0, 1, 2).code(), StatusCode::kPeerFailed);
}
TEST(JobMachine, News_of_a_death_that_was_lost_is_learned_from_the_ended_machine) {
    Sim sim(three_nodes());
    sim.attach_all();
    sim.filter = [](std::size_t, const SendFrame& frame) { return !is_type(frame, FrameType::kRankDied); };
    sim.leave(3, false);
    ASSERT_TRUE(sim.node(1).end);
    ASSERT_TRUE(sim.submit(0, 0, 1).is_ok());
    sim.run_for(500ms);
    ASSERT_TRUE(sim.node(0).end) << sim.text();
    EXPECT_EQ(sim.node(0).end->code(), StatusCode::kPeerFailed);
}
TEST(JobMachine, Ended_machine_that_nobody_reads_holds_few_answers) {
    Sim sim(three_nodes());
    sim.attach_all();
    sim.leave(3, false);
    auto& machine = *sim.node(1).machine;
    ASSERT_TRUE(machine.is_ended());
    const auto epoch = machine.snapshot(sim.now()).epoch;
    const auto body = SharedView::take(build_message(job_hash(sim.key()), Progress{.stream = 2, .late_ranks = {}}));
    for (int frame = 0; frame < 1000; ++frame)
        machine.on_frame(0, static_cast<std::uint16_t>(FrameType::kProgress), epoch, 1, body, sim.now());
    const auto answers = machine.take_actions();
    EXPECT_GT(answers.size(), 0U);
    EXPECT_LE(answers.size(), 64U);
}
TEST(JobMachine, All_ranks_detached_ends_ok_everywhere) {
    Sim sim(three_nodes());
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    for (Rank rank = 0; rank < 4; ++rank) sim.leave(rank, true);
    sim.run_quiet();
    for (std::size_t node = 0; node < 3; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_TRUE(sim.node(node).end->is_ok());
    }
}
TEST(JobMachine, Node_that_begins_the_next_run_early_harms_nobody_who_is_still_leaving) {
    for (const std::size_t early : {0U, 1U}) {
        Sim sim({.ranks = {{0}, {1}}, .spec = make_spec(2, 2, 1)});
        const auto begin_again = [&](std::size_t node) {
            ASSERT_TRUE(sim.node(node).end && sim.node(node).end->is_ok()) << sim.text();
            sim.node(node).machine.reset();
            sim.node(node).end.reset();
            ++sim.node(node).instance;  // of the machine alone: another nonce
            ASSERT_TRUE(sim.attach(static_cast<Rank>(node)).is_ok());
        };
        sim.attach_all();
        sim.submit_all(1);
        sim.run_quiet();
        sim.leave(static_cast<Rank>(early), true);
        sim.run_quiet();
        begin_again(early);
        sim.run_for(1s);
        const auto late = 1 - early;
        EXPECT_FALSE(sim.node(late).end) << sim.text();
        sim.leave(static_cast<Rank>(late), true);
        sim.run_quiet();
        begin_again(late);
        sim.run_for(1s);
        for (const std::size_t node : {0U, 1U})
            EXPECT_EQ(sim.node(node).machine->snapshot(sim.now()).phase, "running") << sim.text();
        EXPECT_TRUE(sim.violations().empty()) << sim.violations().front();
    }
}
TEST(JobMachine, Detached_rank_fails_the_steps_that_need_it_and_no_earlier_one) {
    Sim sim(three_nodes());
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    ASSERT_TRUE(sim.submit(0, 0, 2).is_ok());
    sim.leave(3, true);
    sim.run_quiet();
    EXPECT_EQ(sim.node(0).results.at({0, 2}).code(), StatusCode::kPeerFailed);
    EXPECT_TRUE(has(sim.node(0).results.at({0, 2}).text(), "rank 3 on node b has detached: its last step is 1"));
    EXPECT_EQ(sim.submit(1, 0, 2).code(), StatusCode::kPeerFailed);
    EXPECT_EQ(sim.submit(0, 0, 3).code(), StatusCode::kPeerFailed);
    EXPECT_FALSE(sim.node(0).end) << "the others may still detach in order";
    for (const Rank rank : {0U, 1U, 2U}) sim.leave(rank, true);
    sim.run_quiet();
    for (std::size_t node = 0; node < 3; ++node)
        EXPECT_TRUE(sim.node(node).end && sim.node(node).end->is_ok()) << sim.text();
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(JobMachine, Rank_that_detaches_after_its_last_hand_in_was_coded_harms_nobody) {
    Sim sim(three_nodes());
    sim.attach_all();
    for (const Rank rank : {1U, 3U})
        for (const TensorNumber tensor : {0U, 1U}) ASSERT_TRUE(sim.submit(rank, tensor, 1).is_ok());
    sim.run_quiet();
    sim.leave(3, true);
    sim.leave(1, true);
    sim.run_quiet();
    for (const Rank rank : {0U, 2U})
        for (const TensorNumber tensor : {0U, 1U}) ASSERT_TRUE(sim.submit(rank, tensor, 1).is_ok());
    sim.run_quiet();
    EXPECT_EQ(sim.node(0).committed[0], 1U) << sim.text();
    EXPECT_EQ(sim.node(2).committed[0], 1U) << sim.text();
}
TEST(JobMachine, Leaving_node_hands_over_its_last_step_before_it_ends) {
    Sim sim({.ranks = {{0}, {1}}, .spec = make_spec(2, 1, 1)});
    sim.attach_all();
    sim.filter = [](std::size_t from, const SendFrame& frame) {
        return from != 1 || !is_type(frame, FrameType::kRecords);
    };
    sim.submit_all(1);
    sim.run_quiet();
    ASSERT_EQ(sim.node(1).committed[0], 1U);
    sim.leave(1, true);
    sim.run_for(1s);
    EXPECT_EQ(sim.node(1).machine->snapshot(sim.now()).phase, "leaving");
    EXPECT_EQ(sim.attach(1).code(), StatusCode::kBusy);
    sim.filter = nullptr;
    sim.set_link(0, 1, LinkState::kClosed);
    sim.run_for(2500ms);
    EXPECT_FALSE(sim.node(1).end) << "the link may come back";
    sim.set_link(0, 1, LinkState::kUp);
    sim.run_quiet();
    EXPECT_EQ(sim.node(0).committed[0], 1U) << sim.text();
    sim.run_for(100ms);
    ASSERT_TRUE(sim.node(1).end);
    EXPECT_TRUE(sim.node(1).end->is_ok());
}
TEST(JobMachine, Leaving_node_does_not_wait_for_ever_for_a_silent_one) {
    Sim sim({.ranks = {{0}, {1}}, .spec = make_spec(2, 1, 1)});
    sim.attach_all();
    sim.submit_all(1);
    sim.filter = [](std::size_t from, const SendFrame&) { return from != 0; };
    sim.run_for(3s);
    sim.leave(1, true);
    sim.run_for(4s);
    EXPECT_TRUE(sim.node(1).end) << sim.text();
}
TEST(JobMachine, Events_for_ranks_and_tensors_that_are_not_there_change_nothing) {
    Sim sim(three_nodes());
    sim.attach_all();
    auto& machine = *sim.node(0).machine;
    machine.on_rank_left(3, false, "not ours", sim.now());
    machine.on_rank_left(99, true, "", sim.now());
    machine.on_encoded(0, 1, {}, sim.now());
    machine.on_encode_failed(1, 5, {StatusCode::kInternal, "x"}, sim.now());
    machine.on_decoded(0, 1, 1, {}, sim.now());
    machine.on_broadcast_bytes(0, 1, {}, sim.now());
    machine.on_link(0, LinkState::kClosed, 0, "", sim.now());
    machine.on_link(77, LinkState::kClosed, 0, "", sim.now());
    EXPECT_TRUE(machine.take_actions().empty());
    EXPECT_FALSE(machine.is_ended());
    sim.submit_all(1);
    sim.run_quiet();
    EXPECT_EQ(sim.node(0).committed[0], 1U) << sim.text();
}
TEST(JobMachine, Moves_with_its_state) {
    Sim sim(three_nodes());
    sim.attach_all();
    JobMachine moved = std::move(*sim.node(0).machine);
    sim.node(0).machine = std::move(moved);
    sim.submit_all(1);
    sim.run_quiet();
    EXPECT_EQ(sim.node(0).committed[0], 1U) << sim.text();
}

}  // namespace
}  // namespace gradsieve::exchange
