// Broadcasts and checks.
#include "tests/exchange/sim.hpp"

#include <gtest/gtest.h>

namespace gradsieve::exchange {
namespace {

using namespace std::chrono_literals;

class Sides : public testing::Test {
protected:
    explicit Sides(SimOptions options = {.ranks = {{0, 2}, {1}, {3}}, .spec = make_spec(4, 2, 1)})
        : sim(std::move(options)) {
        sim.attach_all();
    }
    Status ask(Rank rank, TensorNumber tensor, Step number, Rank root) {
        auto status = sim.machine_of(rank).on_broadcast_requested(rank, tensor, number, root, sim.now());
        sim.deliver_actions(sim.node_of(rank));
        return status;
    }
    Status check(Rank rank, Step number, std::uint64_t digest) {
        auto status = sim.machine_of(rank).on_check_requested(rank, number, digest, sim.now());
        sim.deliver_actions(sim.node_of(rank));
        return status;
    }
    Sim sim;
};

TEST_F(Sides, Broadcast_brings_the_roots_bytes_to_every_node) {
    for (Rank rank = 0; rank < 4; ++rank) ASSERT_TRUE(ask(rank, 1, 1, 1).is_ok());
    sim.run_quiet();
    const auto count = make_spec(4, 2, 1).tensors[1].elements() * 4;
    for (std::size_t node = 0; node < 3; ++node) {
        ASSERT_TRUE(sim.node(node).broadcasts.contains(1)) << sim.text();
        EXPECT_TRUE(sim.node(node).broadcasts[1].is_ok());
        const auto& bytes = sim.node(node).broadcast_bytes[1];
        ASSERT_EQ(bytes.size(), count);
        for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(bytes[i], static_cast<std::byte>((i * 7 + 1 + 1) & 0xFFU)) << i;
    }
    EXPECT_EQ(ask(0, 1, 1, 1).code(), StatusCode::kInvalidArgument) << "the number is over";
}
TEST_F(Sides, Broadcast_reads_only_after_all_ranks_of_the_roots_node_asked) {
    ASSERT_TRUE(ask(0, 0, 1, 0).is_ok());
    sim.run_quiet();
    for (const auto& action : sim.node(0).log) EXPECT_FALSE(std::holds_alternative<ReadBroadcast>(action));
    EXPECT_EQ(ask(0, 0, 1, 0).code(), StatusCode::kBusy);
    ASSERT_TRUE(ask(2, 0, 1, 0).is_ok());
    sim.run_quiet();
    EXPECT_TRUE(sim.node(0).broadcasts.contains(1));
    EXPECT_FALSE(sim.node(1).broadcasts.contains(1)) << "its rank has not asked";
    ASSERT_TRUE(ask(1, 0, 1, 0).is_ok());
    EXPECT_TRUE(sim.node(1).broadcasts.contains(1)) << "the bytes were here already";
}
TEST_F(Sides, Broadcast_with_different_roots_ends_everywhere_naming_both) {
    ASSERT_TRUE(ask(1, 0, 1, 3).is_ok());
    ASSERT_TRUE(ask(3, 0, 1, 1).is_ok());
    sim.run_quiet();
    for (std::size_t node = 0; node < 3; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kMismatch);
        EXPECT_TRUE(has(sim.node(node).end->text(), "from rank 1") && has(sim.node(node).end->text(), "from rank 3"));
    }
    EXPECT_EQ(sim.node(1).broadcasts[1].code(), StatusCode::kMismatch);
    EXPECT_EQ(sim.node(2).broadcasts[1].code(), StatusCode::kMismatch);
}
TEST_F(Sides, Broadcast_with_different_tensors_on_one_node_ends_with_mismatch) {
    ASSERT_TRUE(ask(0, 0, 1, 0).is_ok());
    (void)ask(2, 1, 1, 0);
    ASSERT_TRUE(sim.node(0).end);
    EXPECT_EQ(sim.node(0).end->code(), StatusCode::kMismatch);
    EXPECT_EQ(sim.node(0).broadcasts[1].code(), StatusCode::kMismatch);
}
TEST_F(Sides, Broadcast_survives_a_cut_link) {
    for (Rank rank = 0; rank < 3; ++rank) ASSERT_TRUE(ask(rank, 1, 1, 0).is_ok());
    sim.set_link(0, 2, LinkState::kClosed);
    sim.run_for(1s);
    ASSERT_TRUE(ask(3, 1, 1, 0).is_ok());
    EXPECT_FALSE(sim.node(2).broadcasts.contains(1));
    sim.set_link(0, 2, LinkState::kUp);
    sim.run_quiet();
    ASSERT_TRUE(sim.node(2).broadcasts.contains(1)) << sim.text();
    EXPECT_TRUE(sim.node(2).broadcasts[1].is_ok());
}
TEST_F(Sides, Lost_broadcast_goes_again_after_the_deadline) {
    int lost = 0;
    sim.filter = [&lost](std::size_t, const SendFrame& frame) {
        return frame.type != static_cast<std::uint16_t>(FrameType::kBroadcast) || ++lost > 2;
    };
    for (Rank rank = 0; rank < 4; ++rank) ASSERT_TRUE(ask(rank, 1, 1, 0).is_ok());
    sim.run_for(1s);
    EXPECT_FALSE(sim.node(1).broadcasts.contains(1));
    sim.run_for(2s);
    EXPECT_TRUE(sim.node(1).broadcasts.contains(1)) << sim.text();
    EXPECT_FALSE(sim.node(1).end);
}
TEST_F(Sides, Check_of_equal_digests_is_ok_everywhere) {
    for (Rank rank = 0; rank < 4; ++rank) ASSERT_TRUE(check(rank, 1, 77).is_ok());
    sim.run_quiet();
    for (std::size_t node = 0; node < 3; ++node) {
        ASSERT_TRUE(sim.node(node).checks.contains(1));
        EXPECT_TRUE(sim.node(node).checks[1].is_ok());
    }
}
TEST_F(Sides, Check_names_the_ranks_that_differ_and_their_digests) {
    for (Rank rank = 0; rank < 4; ++rank) ASSERT_TRUE(check(rank, 1, rank < 2 ? 77 : 100 + rank).is_ok());
    sim.run_quiet();
    for (std::size_t node = 0; node < 3; ++node) {
        ASSERT_TRUE(sim.node(node).checks.contains(1));
        const auto& status = sim.node(node).checks[1];
        EXPECT_EQ(status.code(), StatusCode::kMismatch);
        EXPECT_TRUE(has(status.text(),
                        "check 1: rank 2 on node a has 0000000000000066, rank 3 on node c has 0000000000000067; 2 of 4 "
                        "ranks (first rank 0 on node a) have 000000000000004d: all ranks must be equal here; "))
            << status.text();
        EXPECT_FALSE(sim.node(node).end) << "a check that fails is the ranks' to judge";
    }
}
TEST_F(Sides, Check_blames_a_single_rank_0_and_not_all_the_others) {
    for (Rank rank = 0; rank < 4; ++rank) ASSERT_TRUE(check(rank, 1, rank == 0 ? 1 : 2).is_ok());
    sim.run_quiet();
    for (std::size_t node = 0; node < 3; ++node) {
        const auto& text = sim.node(node).checks[1].text();
        EXPECT_TRUE(has(text, "check 1: rank 0 on node a has 0000000000000001; 3 of 4 ranks (first rank 1 ")) << text;
        EXPECT_FALSE(has(text, "rank 3")) << text;
    }
}
TEST_F(Sides, Check_with_a_tie_takes_the_lowest_ranks_digest_for_right) {
    for (Rank rank = 0; rank < 4; ++rank) ASSERT_TRUE(check(rank, 1, rank < 2 ? 9 : 3).is_ok());
    sim.run_quiet();
    const auto& text = sim.node(0).checks[1].text();
    EXPECT_TRUE(has(text, "check 1: rank 2 ") && has(text, "rank 3 ") && has(text, "2 of 4 ranks (first rank 0 "))
        << text;
}
TEST_F(Sides, Lost_check_goes_again) {
    int lost = 0;
    sim.filter = [&lost](std::size_t, const SendFrame& frame) {
        return frame.type != static_cast<std::uint16_t>(FrameType::kCheck) || ++lost > 3;
    };
    for (Rank rank = 0; rank < 4; ++rank) ASSERT_TRUE(check(rank, 1, 5).is_ok());
    sim.run_for(1s);
    for (std::size_t node = 0; node < 3; ++node) EXPECT_TRUE(sim.node(node).checks.contains(1)) << sim.text();
}
TEST_F(Sides, Checks_and_broadcasts_interleave_with_steps) {
    for (Step number = 1; number <= 3; ++number) {
        for (Rank rank = 0; rank < 4; ++rank) ASSERT_TRUE(check(rank, number, number).is_ok());
        sim.submit_all(number);
        for (Rank rank = 0; rank < 4; ++rank) ASSERT_TRUE(ask(rank, 0, number, static_cast<Rank>(number)).is_ok());
        sim.run_quiet();
        EXPECT_TRUE(sim.node(1).checks[number].is_ok());
        EXPECT_TRUE(sim.node(1).broadcasts[number].is_ok());
        EXPECT_EQ(sim.node(1).committed[0], number);
    }
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST_F(Sides, Detached_rank_fails_the_checks_it_did_not_ask_for) {
    ASSERT_TRUE(check(0, 1, 5).is_ok());
    sim.leave(3, true);
    sim.run_quiet();
    ASSERT_TRUE(sim.node(0).checks.contains(1)) << sim.text();
    EXPECT_EQ(sim.node(0).checks[1].code(), StatusCode::kPeerFailed);
    EXPECT_TRUE(has(sim.node(0).checks[1].text(), "rank 3 on node c has detached"));
    EXPECT_EQ(check(2, 1, 5).code(), StatusCode::kPeerFailed);
    EXPECT_EQ(ask(2, 0, 1, 0).code(), StatusCode::kPeerFailed);
}
TEST_F(Sides, Numbers_far_ahead_and_roots_beyond_the_world_are_refused) {
    EXPECT_EQ(check(0, 5000, 1).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(check(0, 0, 1).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(ask(0, 0, 1, 4).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(ask(0, 9, 1, 0).code(), StatusCode::kInvalidArgument);
}

class LargeBroadcast : public Sides {
protected:
    static SimOptions options() {
        SimOptions made{.ranks = {{0}, {1}}, .spec = make_spec(2, 1, 1)};
        made.spec.tensors[0].shape = {(1U << 18U) * 3 + 5};  // three pieces and a bit
        made.limits.credit_bytes = 1 << 20;
        made.is_bulk_ordered = false;
        made.delay_most = std::chrono::milliseconds(5);
        return made;
    }
    LargeBroadcast() : Sides(options()) {}
};
TEST_F(LargeBroadcast, Arrives_in_pieces_in_any_order) {
    ASSERT_TRUE(ask(0, 0, 1, 0).is_ok());
    ASSERT_TRUE(ask(1, 0, 1, 0).is_ok());
    sim.run_for(1s);
    ASSERT_TRUE(sim.node(1).broadcasts.contains(1)) << sim.text();
    EXPECT_EQ(sim.node(1).broadcast_bytes[1], sim.node(0).broadcast_bytes[1]);
    EXPECT_EQ(sim.node(1).broadcast_bytes[1].size(), ((1U << 18U) * 3 + 5) * 4U);
}

}  // namespace
}  // namespace gradsieve::exchange
