// Steps of tensors that have two phases: their order, what goes over the wire, and what becomes of failures in either.
#include "exchange/record.hpp"
#include "exchange/round_watcher.hpp"
#include "tests/exchange/sim.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace gradsieve::exchange {
namespace {

using namespace std::chrono_literals;

constexpr TensorNumber kPlain = 0, kPhased = 1;
/// Behind the three tensors, of which one has a second phase.
constexpr std::uint32_t kSecondPhase = 3;

SimOptions two_nodes(std::uint8_t policy = 0) {
    return {.ranks = {{0}, {1, 2}}, .spec = make_phased_spec(3, 3, 1, policy)};
}

std::vector<std::uint32_t> numbers_in(const SendFrame& frame) {
    std::vector<std::uint32_t> numbers;
    if (!is_type(frame, FrameType::kRecords)) return numbers;
    const auto prefix = parse_data_prefix(frame.parts[0].bytes(), false);
    RecordReader reader(frame.parts[0], prefix->first_byte);
    while (const auto record = reader.next()) numbers.push_back(record->header.tensor);
    return numbers;
}
bool has_second_phase(const SendFrame& frame) { return std::ranges::count(numbers_in(frame), kSecondPhase) > 0; }

template <typename T>
std::vector<std::uint8_t> phases_of(const Sim::Node& node, TensorNumber tensor, Step step) {
    std::vector<std::uint8_t> phases;
    for (const auto& action : node.log)
        if (const auto* value = std::get_if<T>(&action); value && value->tensor == tensor && value->step == step)
            phases.push_back(value->phase);
    return phases;
}

TEST(Phases, Second_payloads_follow_the_first_ones_and_give_the_one_result) {
    Sim sim(two_nodes());
    std::vector<std::uint32_t> numbers;
    sim.filter = [&](std::size_t from, const SendFrame& frame) {
        if (from == 0)
            for (const auto number : numbers_in(frame)) numbers.push_back(number);
        return true;
    };
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    for (std::size_t node = 0; node < 2; ++node) {
        ASSERT_EQ(sim.node(node).committed[0], 1U) << sim.text();
        EXPECT_EQ(phases_of<EncodeTensor>(sim.node(node), kPhased, 1), (std::vector<std::uint8_t>{0, 1}));
        EXPECT_EQ(phases_of<DecodeTensor>(sim.node(node), kPhased, 1), (std::vector<std::uint8_t>{0, 1}));
        EXPECT_EQ(phases_of<EncodeTensor>(sim.node(node), kPlain, 1), (std::vector<std::uint8_t>{0}));
        EXPECT_EQ(sim.node(node).results.size(), 3U);
        EXPECT_EQ(sim.node(node).areas.at({kPhased, 1}), sim.expected_bits(kPhased, 1));
    }
    EXPECT_EQ(std::ranges::count(numbers, kPhased), 1);
    EXPECT_EQ(std::ranges::count(numbers, kSecondPhase), 1);
    EXPECT_EQ(numbers.back(), kSecondPhase);
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(Phases, Single_node_goes_through_both_without_frames) {
    Sim sim({.ranks = {{0, 1}}, .spec = make_phased_spec(2, 4, 2)});
    sim.train(5);
    ASSERT_TRUE(sim.run_until_done(20s)) << sim.text();
    EXPECT_EQ(sim.node(0).committed[0], 5U);
    EXPECT_EQ(sim.node(0).committed[1], 5U);
    EXPECT_EQ(sim.node(0).frames, 0U);
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(Phases, Any_number_of_nodes_trains_to_the_end_with_equal_bits) {
    for (const std::size_t nodes : {2U, 3U, 5U}) {
        std::vector<std::vector<Rank>> ranks(nodes);
        for (Rank rank = 0; rank < 2 * nodes; ++rank) ranks[rank % nodes].push_back(rank);
        Sim sim({.ranks = ranks, .spec = make_phased_spec(static_cast<std::uint32_t>(2 * nodes), 6, 2)});
        sim.train(10);
        ASSERT_TRUE(sim.run_until_done(20s)) << sim.text();
        for (std::size_t node = 0; node < sim.size(); ++node) {
            EXPECT_EQ(sim.node(node).committed[0], 10U) << sim.text();
            EXPECT_EQ(sim.node(node).committed[1], 10U) << sim.text();
            const auto shot = sim.node(node).machine->snapshot(sim.now());
            EXPECT_EQ(shot.frames_refused, 0U) << shot.last_refusal;
            EXPECT_EQ(shot.digests_compared, 20U * (nodes - 1));
            EXPECT_EQ(shot.digests_different, 0U);
            EXPECT_EQ(shot.payload_bytes_retained, 0U);
        }
        EXPECT_TRUE(sim.violations().empty()) << sim.text();
    }
}
TEST(Phases, Failed_second_phase_fails_the_step_everywhere_and_the_job_goes_on) {
    Sim sim(two_nodes());
    sim.fail_encode = [](std::size_t node, const EncodeTensor& encode) {
        return node == 1 && encode.step == 1 && encode.phase == 1 ? Status(StatusCode::kResourceExhausted, "no memory")
                                                                  : Status{};
    };
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    for (std::size_t node = 0; node < 2; ++node) {
        const auto& status = sim.node(node).results.at({kPhased, 1});
        EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
        EXPECT_TRUE(has(status.text(), "the second phase of tensor 'tb' on node b: no memory")) << status.text();
        EXPECT_EQ(sim.node(node).committed[0], 0U);
    }
    sim.submit_all(2);
    sim.run_quiet();
    EXPECT_EQ(sim.node(0).committed[0], 2U) << sim.text();
    EXPECT_EQ(sim.node(1).committed[0], 2U) << sim.text();
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(Phases, Failed_decoding_of_a_first_phase_ends_the_job_everywhere) {
    Sim sim(two_nodes());
    sim.fail_decode = [](std::size_t node, TensorNumber tensor, Step) {
        return node == 1 && tensor == kPhased ? Status(StatusCode::kCorrupt, "bad coder") : Status{};
    };
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    for (std::size_t node = 0; node < 2; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_TRUE(has(sim.node(node).end->text(), "tensor 'tb', step 1: decoding failed on node b: bad coder"));
        EXPECT_EQ(sim.node(node).results.at({kPhased, 1}).code(), StatusCode::kCorrupt);
    }
}
TEST(Phases, Different_bits_after_a_second_phase_are_found) {
    Sim sim(two_nodes());
    sim.tamper = [](std::size_t node, TensorNumber tensor, Step, std::uint64_t bits) {
        return node == 1 && tensor == kPhased ? bits + 1 : bits;
    };
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    for (std::size_t node = 0; node < 2; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kMismatch);
    }
}

class PhasesNonFinite : public testing::TestWithParam<std::uint8_t> {};
TEST_P(PhasesNonFinite, follow_the_policy_in_both_phases) {
    Sim sim(two_nodes(GetParam()));
    sim.make_non_finite(2, kPhased, 1);
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    for (std::size_t node = 0; node < 2; ++node) {
        const auto& status = sim.node(node).results.at({kPhased, 1});
        EXPECT_EQ(status.code(), GetParam() == 0 ? StatusCode::kNonFinite : StatusCode::kOk) << status.text();
        EXPECT_EQ(sim.node(node).nan_results.at({kPhased, 1}), GetParam() == 1);
        EXPECT_EQ(sim.node(node).committed[0], GetParam() == 2 ? 1U : 0U) << sim.text();
    }
    EXPECT_EQ(phases_of<EncodeTensor>(sim.node(1), kPhased, 1), (std::vector<std::uint8_t>{0}))
        << "a node that failed has nothing to code in the second phase";
    EXPECT_EQ(phases_of<EncodeTensor>(sim.node(0), kPhased, 1).size(), GetParam() == 2 ? 2U : 1U);
    sim.submit_all(2);
    sim.run_quiet();
    EXPECT_EQ(sim.node(0).committed[0], 2U) << sim.text();
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
INSTANTIATE_TEST_SUITE_P(Phases, PhasesNonFinite, testing::Values<std::uint8_t>(0, 1, 2));

TEST(Phases, Lost_payload_of_a_second_phase_is_fetched_after_the_deadline) {
    Sim sim(two_nodes());
    sim.attach_all();
    int lost = 0;
    sim.filter = [&lost](std::size_t, const SendFrame& frame) { return !has_second_phase(frame) || ++lost > 1; };
    sim.submit_all(1);
    sim.run_for(1500ms);
    EXPECT_EQ(sim.node(0).committed[0] + sim.node(1).committed[0], 1U) << "one of the two lacks a payload";
    sim.run_for(1500ms);
    EXPECT_EQ(sim.node(0).committed[0], 1U) << sim.text();
    EXPECT_EQ(sim.node(1).committed[0], 1U) << sim.text();
}
TEST(Phases, Second_payload_that_never_arrives_is_named) {
    Sim sim(two_nodes());
    sim.attach_all();
    sim.filter = [](std::size_t from, const SendFrame& frame) { return from != 0 || !has_second_phase(frame); };
    sim.submit_all(1);
    sim.run_for(10s);
    for (std::size_t node = 0; node < 2; ++node) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_TRUE(has(sim.node(node).end->text(),
                        "the second phase of tensor 'tb' of node a has not arrived on node b after 4 s"))
            << sim.node(node).end->text();
    }
    EXPECT_EQ(sim.node(1).committed[0], 0U);
}
TEST(Phases, Peer_that_dies_between_them_leaves_one_verdict) {
    Sim sim({.ranks = {{0}, {1}, {2}}, .spec = make_phased_spec(3, 3, 1)});
    sim.attach_all();
    sim.filter = [&sim](std::size_t from, const SendFrame& frame) {
        if (from != 2 || !has_second_phase(frame)) return true;
        sim.at(0ms, [&sim] { sim.kill(2); });
        return false;
    };
    sim.submit_all(1);
    sim.run_for(10s);
    for (const std::size_t node : {0U, 1U}) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).committed[0], 0U);
        EXPECT_FALSE(sim.node(node).results.at({kPhased, 1}).is_ok());
    }
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}

struct Watcher final : RoundWatcher {
    void on_record_in(std::uint32_t tensor, Step, PeerIndex, bool is_first, bool is_last) override {
        if (tensor != kPhased) return;
        firsts += is_first ? 1 : 0;
        lasts += is_last ? 1 : 0;
    }
    void on_record_out(std::uint32_t tensor, Step, PeerIndex, std::uint64_t) override { out.push_back(tensor); }
    int firsts = 0, lasts = 0;
    std::vector<std::uint32_t> out;
};
TEST(Phases, Watcher_hears_of_the_tensor_and_of_one_beginning_and_end) {
    Sim sim(two_nodes());
    sim.attach_all();
    Watcher watcher;
    sim.node(0).machine->set_watcher(&watcher);
    sim.submit_all(1);
    sim.run_quiet();
    sim.node(0).machine->set_watcher(nullptr);
    EXPECT_EQ(watcher.firsts, 1);
    EXPECT_EQ(watcher.lasts, 1);
    EXPECT_EQ(std::ranges::count(watcher.out, kPhased), 2);
    EXPECT_TRUE(std::ranges::all_of(watcher.out, [](std::uint32_t tensor) { return tensor < 3; }));
}
TEST(Phases, Payload_numbers_behind_the_last_second_phase_are_refused) {
    Sim sim(two_nodes());
    sim.attach_all();
    Bytes body = build_data_prefix(job_hash(sim.key()), 0);
    build_record_header(body, {.tensor = kSecondPhase + 1, .kind = RecordKind::kMark});
    SendFrame frame{.to = 0,
                    .is_bulk = true,
                    .type = static_cast<std::uint16_t>(FrameType::kRecords),
                    .epoch = sim.node(0).machine->snapshot(sim.now()).epoch,
                    .step = 1,
                    .parts = {}};
    frame.parts.push_back(SharedView::take(std::move(body)));
    sim.deliver(1, 0, frame);
    EXPECT_EQ(sim.node(0).machine->snapshot(sim.now()).frames_refused, 1U);
    sim.submit_all(1);
    sim.run_quiet();
    EXPECT_EQ(sim.node(0).committed[0], 1U) << sim.text();
}

}  // namespace
}  // namespace gradsieve::exchange
