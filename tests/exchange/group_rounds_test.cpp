// Rounds of the gather plan between machines: hand-in, coding, decoding, commit, acknowledgements, non-finite values.
#include "exchange/record.hpp"
#include "exchange/round_watcher.hpp"
#include "tests/exchange/sim.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace gradsieve::exchange {
namespace {

using namespace std::chrono_literals;

SimOptions two_nodes(std::uint8_t policy = 0) { return {.ranks = {{0}, {1, 2}}, .spec = make_spec(3, 3, 1, policy)}; }

template <typename T>
std::size_t count(const Sim::Node& node) {
    return static_cast<std::size_t>(
        std::ranges::count_if(node.log, [](const Action& action) { return std::holds_alternative<T>(action); }));
}

TEST(GroupRounds, Single_node_steps_without_frames) {
    Sim sim({.ranks = {{0, 1}}, .spec = make_spec(2, 3, 1)});
    sim.attach_all();
    ASSERT_EQ(sim.node(0).members.size(), 1U);
    sim.submit_all(1);
    sim.run_quiet();
    EXPECT_EQ(sim.node(0).committed[0], 1U);
    for (TensorNumber tensor = 0; tensor < 3; ++tensor) EXPECT_TRUE(sim.node(0).results.at({tensor, 1}).is_ok());
    EXPECT_EQ(sim.node(0).frames, 0U);
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}

struct Watcher final : RoundWatcher {
    struct In {
        TensorNumber tensor = 0;
        Step step = 0;
        PeerIndex origin = 0;
        bool is_first = false, is_last = false;
    };
    struct Out {
        TensorNumber tensor = 0;
        Step step = 0;
        PeerIndex to = 0;
        std::uint64_t frame = 0;
    };
    void on_record_in(std::uint32_t tensor, Step step, PeerIndex origin, bool is_first, bool is_last) override {
        in.push_back({tensor, step, origin, is_first, is_last});
    }
    void on_record_out(std::uint32_t tensor, Step step, PeerIndex to, std::uint64_t frame) override {
        out.push_back({tensor, step, to, frame});
    }
    std::vector<In> in;
    std::vector<Out> out;
};

TEST(GroupRounds, Watcher_is_told_of_each_payload_once_and_in_which_frame_it_left) {
    Sim sim(two_nodes());
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    Watcher watcher;
    sim.node(0).machine->set_watcher(&watcher);
    sim.submit_all(2);
    sim.run_quiet();
    sim.node(0).machine->set_watcher(nullptr);
    sim.submit_all(3);
    sim.run_quiet();
    EXPECT_EQ(sim.node(0).committed[0], 3U) << sim.text();
    for (TensorNumber tensor = 0; tensor < 3; ++tensor) {
        const auto is_of = [tensor](const auto& one) { return one.tensor == tensor; };
        EXPECT_EQ(std::ranges::count_if(watcher.in, [&](const auto& in) { return is_of(in) && in.is_first; }), 1);
        EXPECT_EQ(std::ranges::count_if(watcher.in, [&](const auto& in) { return is_of(in) && in.is_last; }), 1);
        EXPECT_GE(std::ranges::count_if(watcher.out, is_of), 1) << tensor;
    }
    for (const auto& in : watcher.in) EXPECT_TRUE(in.step == 2 && in.origin == 1) << in.step << " " << in.origin;
    std::uint64_t frame = 0;
    for (const auto& out : watcher.out) {
        EXPECT_TRUE(out.step == 2 && out.to == 1) << out.step << " " << out.to;
        EXPECT_GE(out.frame, std::max<std::uint64_t>(frame, 1)) << "frames leave in the order of their numbers";
        frame = out.frame;
    }
}

class Nodes : public testing::TestWithParam<std::size_t> {};
TEST_P(Nodes, train_to_the_end_with_equal_bits) {
    std::vector<std::vector<Rank>> ranks(GetParam());
    for (Rank rank = 0; rank < 2 * ranks.size(); ++rank) ranks[rank % ranks.size()].push_back(rank);
    Sim sim({.ranks = ranks, .spec = make_spec(static_cast<std::uint32_t>(2 * ranks.size()), 6, 2)});
    sim.train(10);
    ASSERT_TRUE(sim.run_until_done(20s)) << sim.text();
    for (std::size_t node = 0; node < sim.size(); ++node) {
        EXPECT_EQ(sim.node(node).committed[0], 10U) << sim.text();
        EXPECT_EQ(sim.node(node).committed[1], 10U) << sim.text();
        ASSERT_TRUE(sim.node(node).end);
        EXPECT_TRUE(sim.node(node).end->is_ok()) << sim.node(node).end->text();
        const auto shot = sim.node(node).machine->snapshot(sim.now());
        EXPECT_EQ(shot.frames_refused, 0U) << shot.last_refusal;
        EXPECT_EQ(shot.digests_compared, 20U * (sim.size() - 1))
            << "every node's digest of every step, the last included";
        EXPECT_EQ(shot.digests_different, 0U);
        EXPECT_EQ(shot.payload_bytes_retained, 0U);
    }
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
INSTANTIATE_TEST_SUITE_P(GroupRounds, Nodes, testing::Values(1, 2, 3, 5));

TEST(GroupRounds, Opposite_orders_and_tiny_windows_do_not_deadlock) {
    SimOptions options{.ranks = {{0}, {1}, {2}}, .spec = make_spec(3, 6, 1)};
    options.limits = {.credit_bytes = 1, .frame_target_bytes = 1};
    Sim sim(options);
    sim.attach_all();
    for (Step step = 1; step <= 5; ++step) {
        for (TensorNumber i = 0; i < 6; ++i) {
            ASSERT_TRUE(sim.submit(0, i, step).is_ok());
            ASSERT_TRUE(sim.submit(1, 5 - i, step).is_ok());
            ASSERT_TRUE(sim.submit(2, (i + 3) % 6, step).is_ok());
        }
        sim.run_quiet(1s);
        for (std::size_t node = 0; node < 3; ++node) ASSERT_EQ(sim.node(node).committed[0], step) << sim.text();
    }
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(GroupRounds, Overhead_per_step_and_peer_is_below_sixty_bytes) {
    Sim sim({.ranks = {{0}, {1}}, .spec = make_spec(2, 6, 1)});
    sim.attach_all();
    std::size_t body_bytes = 0, frames = 0, payload_bytes = 0;
    sim.filter = [&](std::size_t from, const SendFrame& frame) {
        if (from != 0) return true;
        ++frames;
        for (const auto& part : frame.parts) body_bytes += part.bytes().size();
        if (!is_type(frame, FrameType::kRecords)) return true;
        const auto prefix = parse_data_prefix(frame.parts[0].bytes(), false);
        RecordReader reader(frame.parts[0], prefix->first_byte);
        while (const auto record = reader.next()) payload_bytes += record->payload.bytes().size();
        return true;
    };
    sim.submit_all(1);
    sim.run_for(20ms);
    ASSERT_EQ(sim.node(0).committed[0], 1U);
    EXPECT_GT(payload_bytes, 0U);
    EXPECT_LT(body_bytes - payload_bytes, 60U + 9U * (frames - 2))
        << "beyond the hash and flags of further data frames";
}
TEST(GroupRounds, Encoding_waits_for_all_local_ranks_and_for_acknowledgements) {
    Sim sim(two_nodes());
    sim.attach_all();
    ASSERT_TRUE(sim.submit(1, 0, 1).is_ok());
    sim.run_quiet();
    EXPECT_EQ(count<EncodeTensor>(sim.node(1)), 0U);
    ASSERT_TRUE(sim.submit(2, 0, 1).is_ok());
    EXPECT_EQ(count<EncodeTensor>(sim.node(1)), 1U);
    for (TensorNumber tensor = 0; tensor < 3; ++tensor) {
        ASSERT_TRUE(sim.submit(0, tensor, 1).is_ok());
        for (const Rank rank : {1U, 2U})
            if (tensor > 0) {
                ASSERT_TRUE(sim.submit(rank, tensor, 1).is_ok());
            }
    }
    sim.filter = [](std::size_t, const SendFrame& frame) { return !is_type(frame, FrameType::kAck); };
    sim.run_quiet();
    ASSERT_EQ(sim.node(0).committed[0], 1U);
    ASSERT_TRUE(sim.submit(0, 0, 2).is_ok());
    EXPECT_EQ(count<EncodeTensor>(sim.node(0)), 3U) << "the others have not acknowledged step 1";
    sim.set_link(0, 1, LinkState::kClosed);
    sim.filter = nullptr;
    sim.set_link(0, 1, LinkState::kUp);
    sim.run_quiet();
    EXPECT_EQ(count<EncodeTensor>(sim.node(0)), 4U) << "acknowledgements go again when the link is back";
}
TEST(GroupRounds, Lost_acknowledgement_is_inferred_from_what_the_peer_does_next) {
    Sim sim(two_nodes());
    sim.attach_all();
    sim.filter = [](std::size_t from, const SendFrame& frame) { return from != 1 || !is_type(frame, FrameType::kAck); };
    sim.submit_all(1);
    sim.run_quiet();
    sim.submit_all(2);
    sim.run_for(100ms);
    EXPECT_EQ(sim.node(0).committed[0], 2U) << sim.text();
    EXPECT_EQ(sim.node(1).committed[0], 2U) << sim.text();
}
TEST(GroupRounds, Wrong_hand_ins_say_what_is_next) {
    Sim sim(two_nodes());
    sim.attach_all();
    EXPECT_EQ(sim.submit(0, 3, 1).code(), StatusCode::kInvalidArgument);
    const auto ahead = sim.submit(0, 0, 7);
    EXPECT_EQ(ahead.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(has(ahead.text(), "tensor 'ta', step 7: the next step is 1")) << ahead.text();
    ASSERT_TRUE(sim.submit(0, 0, 1).is_ok());
    EXPECT_EQ(sim.submit(0, 0, 1).code(), StatusCode::kBusy);
    const auto early = sim.submit(0, 0, 2);
    EXPECT_EQ(early.code(), StatusCode::kBusy);
    EXPECT_TRUE(has(early.text(), "step 1 is still open")) << early.text();
    EXPECT_EQ(sim.node(0).machine->on_submitted(1, 0, 1, sim.now()).code(), StatusCode::kFailedPrecondition);
}
TEST(GroupRounds, Groups_step_on_their_own) {
    Sim sim({.ranks = {{0}, {1}}, .spec = make_spec(2, 4, 2)});
    sim.attach_all();
    for (Step step = 1; step <= 3; ++step) {
        for (const Rank rank : {0U, 1U})
            for (const TensorNumber tensor : {0U, 2U}) ASSERT_TRUE(sim.submit(rank, tensor, step).is_ok());
        sim.run_quiet();
    }
    EXPECT_EQ(sim.node(0).committed[0], 3U);
    EXPECT_EQ(sim.node(0).committed[1], 0U);
    EXPECT_EQ(sim.node(0).machine->snapshot(sim.now()).committed_steps, (std::vector<Step>{3, 0}));
}
TEST(GroupRounds, Different_digests_end_the_job_everywhere_naming_step_and_nodes) {
    Sim sim({.ranks = {{0}, {1}, {2}}, .spec = make_spec(3, 2, 1)});
    sim.tamper = [](std::size_t node, TensorNumber, Step step, std::uint64_t bits) {
        return node == 1 && step == 2 ? bits + 1 : bits;
    };
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    EXPECT_FALSE(sim.node(0).end);
    sim.submit_all(2);
    sim.run_quiet();
    for (std::size_t node = 0; node < 3; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kMismatch);
        EXPECT_TRUE(has(sim.node(node).end->text(), "step 2: the result on node ")) << sim.node(node).end->text();
        EXPECT_TRUE(has(sim.node(node).end->text(), "node b")) << sim.node(node).end->text();
    }
    EXPECT_EQ(sim.node(1).machine->snapshot(sim.now()).digests_different, 1U);
}
TEST(GroupRounds, Failed_decoding_ends_the_job_everywhere) {
    Sim sim(two_nodes());
    sim.fail_decode = [](std::size_t node, TensorNumber tensor, Step) {
        return node == 1 && tensor == 2 ? Status(StatusCode::kCorrupt, "bad coder") : Status{};
    };
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    for (std::size_t node = 0; node < 2; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kCorrupt);
        EXPECT_TRUE(has(sim.node(node).end->text(), "tensor 'tc', step 1: decoding failed on node b: bad coder"));
    }
    EXPECT_EQ(sim.node(1).committed[0], 0U);
    EXPECT_EQ(sim.node(1).results.at({2, 1}).code(), StatusCode::kCorrupt);
}
TEST(GroupRounds, Snapshot_names_who_is_waited_for) {
    Sim sim(two_nodes());
    sim.attach_all();
    for (TensorNumber tensor = 0; tensor < 3; ++tensor) ASSERT_TRUE(sim.submit(0, tensor, 1).is_ok());
    ASSERT_TRUE(sim.submit(1, 0, 1).is_ok());
    sim.run_for(1s);
    const auto shot = sim.node(0).machine->snapshot(sim.now());
    ASSERT_EQ(shot.open_rounds.size(), 1U);
    EXPECT_EQ(shot.open_rounds[0].step, 1U);
    EXPECT_EQ(shot.open_rounds[0].ranks_not_submitted, (std::vector<Rank>{1, 2}))
        << "rank 1 owes two tensors, rank 2 all";
    EXPECT_EQ(shot.open_rounds[0].peers_waited_for, (std::vector<PeerIndex>{1}));
    EXPECT_EQ(shot.open_rounds[0].first_missing_tensor, 0U);
    EXPECT_GE(shot.open_rounds[0].open_for, 900ms);
}

// ---- non-finite values ----

TEST(NonFinite, Policy_fail_gives_all_ranks_the_status_and_the_job_goes_on) {
    Sim sim(two_nodes(0));
    sim.make_non_finite(2, 1, 1);
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    for (std::size_t node = 0; node < 2; ++node) {
        const auto& status = sim.node(node).results.at({1, 1});
        EXPECT_EQ(status.code(), StatusCode::kNonFinite);
        EXPECT_TRUE(has(status.text(), "tensor 'tb' on node b: NaN from rank 2")) << status.text();
        EXPECT_EQ(sim.node(node).committed[0], 0U);
        EXPECT_EQ(count<AbortStep>(sim.node(node)), 1U);
    }
    sim.submit_all(2);
    sim.run_quiet();
    EXPECT_EQ(sim.node(0).committed[0], 2U) << sim.text();
    EXPECT_EQ(sim.node(0).machine->snapshot(sim.now()).steps_aborted, 1U);
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(NonFinite, Rank_that_hands_in_after_the_abort_gets_the_same_status) {
    Sim sim(two_nodes(0));
    sim.make_non_finite(0, 0, 1);
    sim.attach_all();
    ASSERT_TRUE(sim.submit(0, 0, 1).is_ok());
    sim.run_quiet();
    const auto late = sim.submit(1, 0, 1);
    EXPECT_EQ(late.code(), StatusCode::kNonFinite);
    EXPECT_TRUE(has(late.text(), "NaN from rank 0")) << late.text();
    sim.submit_all(2);
    sim.run_quiet();
    EXPECT_EQ(sim.node(1).committed[0], 2U) << sim.text();
}
TEST(NonFinite, Policy_skip_step_delivers_nan_in_the_marked_tensor_and_commits_nothing) {
    Sim sim(two_nodes(1));
    sim.make_non_finite(2, 1, 1);
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    for (std::size_t node = 0; node < 2; ++node) {
        for (TensorNumber tensor = 0; tensor < 3; ++tensor) {
            EXPECT_TRUE(sim.node(node).results.at({tensor, 1}).is_ok());
            EXPECT_EQ(sim.node(node).nan_results.at({tensor, 1}), tensor == 1);
        }
        EXPECT_EQ(count<CommitStep>(sim.node(node)), 0U);
        EXPECT_EQ(count<AbortStep>(sim.node(node)), 1U);
    }
    sim.submit_all(2);
    sim.run_quiet();
    EXPECT_EQ(sim.node(0).committed[0], 2U) << sim.text();
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(NonFinite, Policy_zero_counts_the_node_as_nothing_and_commits) {
    Sim sim(two_nodes(2));
    sim.make_non_finite(2, 1, 1);
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    for (std::size_t node = 0; node < 2; ++node) {
        EXPECT_EQ(sim.node(node).committed[0], 1U) << sim.text();
        EXPECT_TRUE(sim.node(node).results.at({1, 1}).is_ok());
    }
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}

// ---- links and deadlines ----

TEST(GroupRounds, Lost_payload_is_fetched_after_the_deadline) {
    Sim sim(two_nodes());
    sim.attach_all();
    int lost = 0;
    sim.filter = [&lost](std::size_t, const SendFrame& frame) {
        return !is_type(frame, FrameType::kRecords) || ++lost > 1;
    };
    sim.submit_all(1);
    sim.run_for(1500ms);
    EXPECT_EQ(sim.node(0).committed[0] + sim.node(1).committed[0], 1U) << "one of the two lacks a payload";
    sim.run_for(1500ms);
    EXPECT_EQ(sim.node(0).committed[0], 1U) << sim.text();
    EXPECT_EQ(sim.node(1).committed[0], 1U) << sim.text();
    EXPECT_FALSE(sim.node(0).end);
}
TEST(GroupRounds, Payload_that_never_arrives_ends_the_job_naming_tensor_and_nodes) {
    Sim sim(two_nodes());
    sim.attach_all();
    sim.filter = [](std::size_t from, const SendFrame& frame) {
        return from != 0 || !is_type(frame, FrameType::kRecords);
    };
    sim.submit_all(1);
    sim.run_for(10s);
    for (std::size_t node = 0; node < 2; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kTimeout);
        EXPECT_TRUE(has(sim.node(node).end->text(), "of node a has not arrived on node b after 4 s"))
            << sim.node(node).end->text();
    }
}
TEST(GroupRounds, Late_rank_is_waited_for_without_limit_unless_one_is_set) {
    Sim sim(two_nodes());
    sim.attach_all();
    for (TensorNumber tensor = 0; tensor < 3; ++tensor)
        for (const Rank rank : {0U, 1U}) ASSERT_TRUE(sim.submit(rank, tensor, 1).is_ok());
    sim.run_for(60s);
    EXPECT_FALSE(sim.node(0).end) << "late is not lost";
    for (TensorNumber tensor = 0; tensor < 3; ++tensor) ASSERT_TRUE(sim.submit(2, tensor, 1).is_ok());
    sim.run_quiet();
    EXPECT_EQ(sim.node(0).committed[0], 1U);

    auto options = two_nodes();
    options.times.max_late = 5s;
    Sim strict(options);
    strict.attach_all();
    ASSERT_TRUE(strict.submit(0, 0, 1).is_ok());
    strict.run_for(8s);
    ASSERT_TRUE(strict.node(0).end) << strict.text();
    EXPECT_EQ(strict.node(0).end->code(), StatusCode::kTimeout);
    EXPECT_TRUE(has(strict.node(0).end->text(), "is late by more than max_late_s (5 s)")) << strict.node(0).end->text();
}

}  // namespace
}  // namespace gradsieve::exchange
