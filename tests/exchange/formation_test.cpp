// How jobs form, and what keeps them from it.
#include "tests/exchange/sim.hpp"

#include <gtest/gtest.h>

namespace gradsieve::exchange {
namespace {

using namespace std::chrono_literals;

SimOptions three_nodes() { return {.ranks = {{2}, {0, 3}, {1}}, .spec = make_spec(4, 2, 1)}; }

TEST(Formation, Members_stand_in_the_order_of_their_lowest_rank) {
    Sim sim(three_nodes());
    sim.attach_all();
    for (std::size_t node = 0; node < 3; ++node) {
        const auto& members = sim.node(node).members;
        ASSERT_EQ(members.size(), 3U) << sim.text();
        EXPECT_EQ(members[0].peer, 1U);
        EXPECT_EQ(members[0].ranks, (std::vector<Rank>{0, 3}));
        EXPECT_EQ(members[1].peer, 2U);
        EXPECT_EQ(members[2].peer, 0U);
    }
    const auto epoch = sim.node(0).machine->snapshot(sim.now()).epoch;
    EXPECT_NE(epoch, 0U);
    EXPECT_EQ(sim.node(1).machine->snapshot(sim.now()).epoch, epoch);
}
TEST(Formation, Waits_for_missing_ranks_and_names_them) {
    Sim sim(three_nodes());
    ASSERT_TRUE(sim.attach(0).is_ok());
    ASSERT_TRUE(sim.attach(1).is_ok());
    sim.run_for(5s);
    const auto shot = sim.node(1).machine->snapshot(sim.now());
    EXPECT_EQ(shot.phase, "forming");
    EXPECT_EQ(shot.missing_ranks, (std::vector<Rank>{2, 3}));
    ASSERT_TRUE(sim.attach(3).is_ok());
    ASSERT_TRUE(sim.attach(2).is_ok());
    sim.run_quiet();
    EXPECT_EQ(sim.node(1).machine->snapshot(sim.now()).phase, "running");
}
TEST(Formation, Lost_start_comes_again) {
    Sim sim(three_nodes());
    int lost = 0;
    sim.filter = [&lost](std::size_t, const SendFrame& frame) {
        return frame.type != static_cast<std::uint16_t>(FrameType::kStart) || ++lost > 4;
    };
    sim.attach_all();
    EXPECT_TRUE(sim.node(0).members.empty());
    sim.run_for(2s);
    for (std::size_t node = 0; node < 3; ++node) EXPECT_EQ(sim.node(node).members.size(), 3U) << sim.text();
}
TEST(Formation, Differing_specs_end_on_every_node_naming_the_first_difference) {
    Sim sim(three_nodes());
    auto other = make_spec(4, 2, 1);
    other.tensors[1].shape = {8, 8};
    ASSERT_TRUE(sim.attach(1, 0, make_spec(4, 2, 1)).is_ok());
    ASSERT_TRUE(sim.attach(2, 1, other).is_ok());
    ASSERT_TRUE(sim.attach(0, 2, make_spec(4, 2, 1)).is_ok());
    sim.run_for(1s);
    for (std::size_t node = 0; node < 3; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kMismatch);
        EXPECT_TRUE(has(sim.node(node).end->text(), "tensor 'tb': shape [")) << sim.node(node).end->text();
        EXPECT_TRUE(has(sim.node(node).end->text(), "[8, 8] on node c")) << sim.node(node).end->text();
    }
}
TEST(Formation, Local_ranks_that_differ_are_refused_at_once) {
    Sim sim({.ranks = {{0, 1}}, .spec = make_spec(2, 2, 1)});
    ASSERT_TRUE(sim.attach(0).is_ok());
    auto other = make_spec(2, 2, 1);
    other.codec = "all | sign";
    const auto status = sim.attach(0, 1, other);
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    EXPECT_TRUE(has(status.text(), "codec: 'all | f32' on rank 0, 'all | sign' on rank 1")) << status.text();
    EXPECT_EQ(sim.attach(0).code(), StatusCode::kAlreadyExists);
    const auto beyond = sim.attach(0, 2, make_spec(2, 2, 1));
    EXPECT_EQ(beyond.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(has(beyond.text(), "rank 2: world size 2: allowed are ranks 0 to 1")) << beyond.text();
    ASSERT_TRUE(sim.attach(1).is_ok());
    EXPECT_EQ(sim.attach(1).code(), StatusCode::kFailedPrecondition);
}
TEST(Formation, Rank_on_two_nodes_is_refused_naming_both) {
    Sim sim(three_nodes());
    const auto spec = make_spec(4, 2, 1);
    ASSERT_TRUE(sim.attach(1, 0, spec).is_ok());
    ASSERT_TRUE(sim.attach(1, 3, spec).is_ok());
    ASSERT_TRUE(sim.attach(2, 3, spec).is_ok());
    sim.run_for(2s);
    for (const std::size_t node : {1U, 2U}) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kAlreadyExists);
        EXPECT_TRUE(has(sim.node(node).end->text(), "rank 3: attached on node ")) << sim.node(node).end->text();
    }
}
TEST(Formation, Rank_that_moves_to_another_node_is_no_duplicate) {
    Sim sim(three_nodes());
    const auto spec = make_spec(4, 2, 1);
    ASSERT_TRUE(sim.attach(1, 0, spec).is_ok());
    ASSERT_TRUE(sim.attach(1, 3, spec).is_ok());
    ASSERT_TRUE(sim.attach(1, 1, spec).is_ok());
    ASSERT_TRUE(sim.attach(2, 1, spec).is_ok());
    sim.run_quiet();
    sim.node(1).machine->on_rank_left(1, true, "", sim.now());
    ASSERT_TRUE(sim.attach(2).is_ok());
    sim.run_for(1s);
    EXPECT_EQ(sim.node(1).members.size(), 3U) << sim.text();
}
TEST(Formation, Second_live_run_of_the_name_is_refused_naming_node_and_run) {
    Sim sim({.ranks = {{0}, {1}}, .spec = make_spec(2, 1, 1)});
    sim.attach_all();
    JobMachine newcomer({"job", "run-2"}, 1, {{"a", "10.0.0.1"}, {"b", "10.0.0.2"}}, {}, {}, 9);
    ASSERT_TRUE(newcomer.on_rank_attached(1, make_spec(2, 1, 1), sim.now()).is_ok());
    for (const auto& action : newcomer.take_actions())
        if (const auto* frame = std::get_if<SendFrame>(&action)) {
            EXPECT_TRUE(is_for_every_job(frame->type));
            sim.node(0).machine->on_frame(1, frame->type, frame->epoch, frame->step, frame->parts[0], sim.now());
        }
    for (const auto& action : sim.node(0).machine->take_actions())
        if (const auto* frame = std::get_if<SendFrame>(&action)) {
            ASSERT_EQ(job_of_frame(frame->parts[0].bytes()), job_hash(newcomer.key()));
            newcomer.on_frame(0, frame->type, frame->epoch, frame->step, frame->parts[0], sim.now());
        }
    ASSERT_TRUE(newcomer.is_ended());
    const auto actions = newcomer.take_actions();
    const auto& end = std::get<EndJob>(actions.back());
    EXPECT_EQ(end.status.code(), StatusCode::kAlreadyExists);
    EXPECT_TRUE(has(end.status.text(), "running on node a with run id 'run-1'")) << end.status.text();
    EXPECT_FALSE(sim.node(0).end) << "the live run goes on";
}
TEST(Formation, Nodes_that_go_on_from_different_steps_are_refused) {
    Sim sim({.ranks = {{0}, {1}}, .spec = make_spec(2, 1, 1)});
    sim.kept[0].wanted = {7};
    ASSERT_TRUE(sim.attach(0).is_ok());
    const Prepared forged{.key = sim.key(),
                          .nonce = 1,
                          .sequence = 1,
                          .ranks = {1},
                          .next_steps = {42},
                          .kept_steps = {},
                          .spec = make_spec(2, 1, 1)};
    sim.node(0).machine->on_frame(1, static_cast<std::uint16_t>(FrameType::kPrepared), 0, 0,
                                  SharedView::take(build_message(job_hash(sim.key()), forged)), sim.now());
    ASSERT_TRUE(sim.node(0).machine->is_ended());
    const auto actions = sim.node(0).machine->take_actions();
    EXPECT_TRUE(has(std::get<EndJob>(actions.back()).status.text(), "named 7 on node a, 41 on node b"));
}
TEST(Formation, Leaving_before_the_start_takes_the_rank_out) {
    Sim sim(three_nodes());
    ASSERT_TRUE(sim.attach(0).is_ok());
    ASSERT_TRUE(sim.attach(1).is_ok());
    sim.run_quiet();
    sim.leave(1, false);
    sim.run_quiet();
    ASSERT_TRUE(sim.node(2).end);
    EXPECT_EQ(sim.node(2).end->code(), StatusCode::kPeerFailed);
    EXPECT_EQ(sim.node(1).machine->snapshot(sim.now()).missing_ranks, (std::vector<Rank>{1, 2, 3}));
}
TEST(Formation, Closed_link_takes_the_nodes_ranks_out) {
    Sim sim(three_nodes());
    ASSERT_TRUE(sim.attach(0).is_ok());
    ASSERT_TRUE(sim.attach(1).is_ok());
    sim.run_quiet();
    sim.kill(2);
    EXPECT_EQ(sim.node(1).machine->snapshot(sim.now()).missing_ranks, (std::vector<Rank>{1, 2, 3}));
}
TEST(Formation, Rank_that_leaves_while_the_start_is_on_its_way_ends_the_job_everywhere) {
    Sim sim({.ranks = {{0}, {1, 2}}, .spec = make_spec(3, 1, 1)});
    sim.filter = [](std::size_t, const SendFrame& frame) {
        return frame.type != static_cast<std::uint16_t>(FrameType::kStart);
    };
    sim.attach_all();
    ASSERT_EQ(sim.node(0).members.size(), 2U);
    sim.leave(2, true);
    sim.filter = nullptr;
    sim.run_for(1s);
    for (std::size_t node = 0; node < 2; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kPeerFailed);
    }
}
TEST(Formation, Submitting_before_the_start_is_refused) {
    Sim sim(three_nodes());
    ASSERT_TRUE(sim.attach(0).is_ok());
    EXPECT_EQ(sim.submit(0, 0, 1).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace gradsieve::exchange
