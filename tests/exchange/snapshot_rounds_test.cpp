// Snapshots on request: who is asked, who answers, and what whoever asked is told.
#include "exchange/snapshot_rounds.hpp"

#include "tests/exchange/sim.hpp"

#include <gtest/gtest.h>

namespace gradsieve::exchange {
namespace {

using namespace std::chrono_literals;
using Asked = std::pair<GroupNumber, Step>;

SimOptions three_nodes() { return {.ranks = {{0, 1}, {2}, {3}}, .spec = make_spec(4, 4, 2)}; }
void request(Sim& sim, std::size_t node, GroupNumber group, Step step) {
    ASSERT_TRUE(sim.node(node).machine->on_snapshot_requested(group, step, sim.now()).is_ok()) << sim.text();
    sim.deliver_actions(node);
}
std::size_t saves(Sim& sim, std::size_t node) {
    std::size_t count = 0;
    for (const auto& action : sim.node(node).log) count += std::holds_alternative<SaveSnapshot>(action) ? 1 : 0;
    return count;
}
const DeliverSnapshot* only(Sim& sim, std::size_t node, Asked asked) {
    const auto& all = sim.node(node).snapshots[asked];
    return all.size() == 1 ? &all.front() : nullptr;
}

TEST(SnapshotRounds, One_node_asks_and_every_node_keeps_one) {
    Sim sim(three_nodes());
    sim.attach_all();
    request(sim, 1, 1, 7);
    sim.run_quiet();
    const auto* told = only(sim, 1, {1, 7});
    ASSERT_NE(told, nullptr) << sim.text();
    EXPECT_TRUE(told->status.is_ok()) << told->status.to_string();
    ASSERT_EQ(told->parts.size(), 3U);
    for (std::size_t node = 0; node < 3; ++node) {
        EXPECT_EQ(told->parts[node].digest, node + 1);
        EXPECT_EQ(saves(sim, node), 1U);
        EXPECT_EQ(sim.node(node).kept_everywhere, (std::vector<Asked>{{1, 7}})) << "older ones may go, on every node";
    }
    EXPECT_TRUE(sim.node(0).snapshots.empty()) << "who did not ask is not told";
}
TEST(SnapshotRounds, All_nodes_may_ask_for_the_same_one_at_once) {
    Sim sim(three_nodes());
    sim.attach_all();
    for (std::size_t node = 0; node < 3; ++node) request(sim, node, 0, 5);
    sim.run_quiet();
    for (std::size_t node = 0; node < 3; ++node) {
        const auto* told = only(sim, node, {0, 5});
        ASSERT_NE(told, nullptr) << sim.text();
        EXPECT_TRUE(told->status.is_ok()) << told->status.to_string();
    }
}
TEST(SnapshotRounds, A_node_that_cannot_is_named_and_nothing_older_goes) {
    Sim sim(three_nodes());
    sim.node(2).saved[{0, 5}] = {.status = {StatusCode::kResourceExhausted, "disk full"}, .digest = 0, .bytes = 0};
    sim.attach_all();
    request(sim, 0, 0, 5);
    sim.run_quiet();
    const auto* told = only(sim, 0, {0, 5});
    ASSERT_NE(told, nullptr) << sim.text();
    EXPECT_EQ(told->status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(told->status.text(), "node c: disk full");
    for (std::size_t node = 0; node < 3; ++node) EXPECT_TRUE(sim.node(node).kept_everywhere.empty());
    sim.node(2).saved.clear();
    sim.run_for(1s);
    request(sim, 0, 0, 5);
    sim.run_quiet();
    EXPECT_TRUE(sim.node(0).snapshots[Asked(0, 5)].back().status.is_ok()) << "it can be asked for again";
}
TEST(SnapshotRounds, Lost_questions_and_answers_are_repeated) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        auto options = three_nodes();
        options.seed = seed;
        Sim sim(options);
        sim.attach_all();
        std::mt19937_64 random(seed);
        sim.filter = [&](std::size_t, const SendFrame& frame) {
            const auto type = static_cast<FrameType>(frame.type);
            return (type != FrameType::kSnapshotAsk && type != FrameType::kSnapshotAnswer) || random() % 2 == 0;
        };
        request(sim, 0, 0, 9);
        sim.run_for(10s);
        const auto* told = only(sim, 0, {0, 9});
        ASSERT_NE(told, nullptr) << "seed " << seed;
        EXPECT_TRUE(told->status.is_ok()) << "seed " << seed;
    }
}
TEST(SnapshotRounds, A_job_that_ends_tells_whoever_waits) {
    Sim sim(three_nodes());
    sim.attach_all();
    sim.filter = [](std::size_t, const SendFrame& frame) {
        return static_cast<FrameType>(frame.type) != FrameType::kSnapshotAnswer;
    };
    request(sim, 0, 0, 3);
    sim.run_quiet();
    sim.leave(3, false);
    sim.run_quiet();
    const auto* told = only(sim, 0, {0, 3});
    ASSERT_NE(told, nullptr) << sim.text();
    EXPECT_EQ(told->status.code(), StatusCode::kPeerFailed);
    EXPECT_TRUE(sim.violations().empty());
}
TEST(SnapshotRounds, Without_a_running_job_or_for_a_group_that_is_not_there_it_is_refused) {
    Sim sim(three_nodes());
    ASSERT_TRUE(sim.attach(0).is_ok());
    EXPECT_EQ(sim.node(0).machine->on_snapshot_requested(0, 1, sim.now()).code(), StatusCode::kFailedPrecondition);
    Sim running(three_nodes());
    running.attach_all();
    EXPECT_EQ(running.node(0).machine->on_snapshot_requested(2, 1, running.now()).code(), StatusCode::kInvalidArgument);
}
TEST(SnapshotRounds, Too_many_at_once_are_refused_and_room_comes_back) {
    Sim sim(three_nodes());
    sim.attach_all();
    for (Step step = 1; step <= kSnapshotRoundsLimit; ++step)
        ASSERT_TRUE(sim.node(0).machine->on_snapshot_requested(0, step, sim.now()).is_ok());
    EXPECT_EQ(sim.node(0).machine->on_snapshot_requested(0, 99, sim.now()).code(), StatusCode::kBusy);
    sim.deliver_actions(0);
    sim.run_quiet();
    EXPECT_TRUE(sim.node(0).machine->on_snapshot_requested(0, 99, sim.now()).is_ok());
}
TEST(SnapshotRounds, Nonsense_from_a_peer_is_counted_and_nothing_is_saved) {
    Sim sim(three_nodes());
    sim.attach_all();
    const auto forge = [&](FrameType type, Step step, const SnapshotAsk& ask) {
        SendFrame frame{
            .to = 0, .is_bulk = false, .type = static_cast<std::uint16_t>(type), .epoch = 0, .step = step, .parts = {}};
        for (const auto& action : sim.node(0).log)
            if (const auto* start = std::get_if<StartJob>(&action)) frame.epoch = start->epoch;
        frame.parts.push_back(SharedView::take(build_message(job_hash(sim.key()), ask)));
        sim.deliver(1, 0, frame);
    };
    forge(FrameType::kSnapshotAsk, 5, {.group = 9});
    forge(FrameType::kSnapshotAsk, 0, {.group = 0});
    forge(FrameType::kSnapshotKept, 5, {.group = 9});
    EXPECT_EQ(sim.node(0).machine->snapshot(sim.now()).frames_refused, 3U);
    EXPECT_EQ(saves(sim, 0), 0U);
    EXPECT_TRUE(has(sim.node(0).machine->snapshot(sim.now()).last_refusal, "snapshot-kept"));
}

}  // namespace
}  // namespace gradsieve::exchange
