#include "exchange/cost_model.hpp"

#include <gtest/gtest.h>

namespace gradsieve::exchange {
namespace {

constexpr double kGigabit = 1e9;

TEST(CostModel, Ring_without_overlap_takes_its_bytes_over_the_link) {
    // 100 M parameters on 4 nodes: 600 MB sent by each, 4.8 s at 1 Gbit/s.
    const auto cost = ring_cost({100'000'000, 4, 0.3, 0}, {kGigabit, 0}, 4);
    EXPECT_DOUBLE_EQ(cost.sent_bytes, 600e6);
    EXPECT_DOUBLE_EQ(cost.link_seconds, 4.8);
    EXPECT_NEAR(cost.exposed_seconds, 4.8, 1e-9);
    EXPECT_NEAR(cost.step_seconds, 5.1, 1e-9);
}
TEST(CostModel, Backward_pass_hides_all_but_the_last_piece_of_a_fast_exchange) {
    const auto cost = ring_cost({1'000'000, 2, 1.0, 0.5}, {kGigabit, 0}, 4);  // 32 ms within 500
    EXPECT_NEAR(cost.exposed_seconds, 0.032 / 16, 1e-9);
    EXPECT_NEAR(cost.exchange_seconds, 0.032, 1e-9);
}
TEST(CostModel, Slow_exchange_begins_with_the_first_piece) {
    // 16 pieces of 1 s each; the first is ready 1/16 into the backward pass of 0.5 s.
    const auto cost = ring_cost({2'000'000'000, 2, 1.0, 0.5}, {4 * kGigabit, 0}, 4);
    EXPECT_NEAR(cost.exchange_seconds, 16, 1e-9);
    EXPECT_NEAR(cost.exposed_seconds, 0.5 + 0.5 / 16 + 16 - 1.0, 1e-9);
}
TEST(CostModel, Latency_counts_for_every_message_of_the_ring_and_once_for_the_gather) {
    const StepFacts step{16, 5, 1.0, 0};
    EXPECT_NEAR(ring_cost(step, {1e15, 0.001}, 4).exposed_seconds, 16 * 8 * 0.001, 1e-9);
    EXPECT_NEAR(gather_cost(step, {1e15, 0.001}, {4, 0, 0}).exposed_seconds, 0.001, 1e-9);
}
TEST(CostModel, Gather_grows_with_the_nodes_and_the_slowest_stage_decides) {
    const LinkFacts link{kGigabit, 0};
    const CodecFacts codec{0.05, 1e-9, 1e-10};
    const auto two = gather_cost({100'000'000, 2, 0.3, 0}, link, codec);
    EXPECT_DOUBLE_EQ(two.sent_bytes, 5e6);
    EXPECT_DOUBLE_EQ(two.exchange_seconds, 0.1 + 0.04 + 0.02);
    EXPECT_NEAR(two.exposed_seconds, 0.1 + 0.02, 1e-9);  // coding takes longest, and both kinds the same workers
    const auto eight = gather_cost({100'000'000, 8, 0.3, 0}, link, codec);
    EXPECT_DOUBLE_EQ(eight.sent_bytes, 35e6);
    EXPECT_NEAR(eight.exposed_seconds, 0.28 + (0.1 + 0.08) / 16, 1e-9);  // now the link is
}
TEST(CostModel, Headers_take_their_share_of_the_link_and_hosts_their_time_beside_it) {
    const LinkFacts link{kGigabit, 0, 1.25, 1e-9};
    const auto ring = ring_cost({100'000'000, 2, 0.3, 0}, link, 4, 2e-10);
    EXPECT_DOUBLE_EQ(ring.sent_bytes, 400e6) << "headers are no payload";
    EXPECT_DOUBLE_EQ(ring.link_seconds, 4.0);
    EXPECT_NEAR(ring.exchange_seconds, 4.0 + 0.4 + 0.2e9 * 2e-10, 1e-9);
    EXPECT_NEAR(ring.exposed_seconds, 4.0 + 0.44 / 16, 1e-9) << "while the link is busy with a piece";
    const CodecFacts codec{0.5, 0, 0};
    const auto gather = gather_cost({100'000'000, 3, 0.3, 0}, link, codec);
    EXPECT_NEAR(gather.exchange_seconds, 1.0 + 0.1, 1e-9);
    EXPECT_NEAR(gather.exposed_seconds, 1.0 + 0.1 / 16, 1e-9);
    const ElementCount chunks = 3 * kChunkElements;
    const auto sharded = sharded_cost({chunks, 3, 0.3, 0}, link, codec, codec);
    const double bytes = 4.0 / 3 * 0.5 * static_cast<double>(chunks);
    EXPECT_NEAR(sharded.exchange_seconds, bytes * (1e-8 + 1e-9), 1e-9);
}
constexpr ElementCount kNinetySixChunks = 96 * kChunkElements;
constexpr double kElements = static_cast<double>(kNinetySixChunks);

TEST(CostModel, Sharded_sends_as_much_whatever_the_nodes_and_waits_twice) {
    const CodecFacts codec{0.04, 0, 0};
    for (const std::uint32_t nodes : {2U, 3U, 8U, 32U}) {
        const auto cost = sharded_cost({kNinetySixChunks, nodes, 0.3, 0}, {kGigabit, 0.001}, codec, {0.01, 0, 0});
        EXPECT_NEAR(cost.sent_bytes, 0.05 * kElements * (nodes - 1) / nodes, 1e-3) << nodes;
        EXPECT_NEAR(cost.exposed_seconds, 0.4e-9 * kElements * (nodes - 1) / nodes + 0.002, 1e-9) << nodes;
    }
    const auto two = sharded_cost({kNinetySixChunks, 2, 0.3, 0}, {kGigabit, 0}, codec, codec);
    EXPECT_NEAR(two.sent_bytes, gather_cost({kNinetySixChunks, 2, 0.3, 0}, {kGigabit, 0}, codec).sent_bytes, 1e-3);
}
TEST(CostModel, Sharded_decodes_every_element_twice_and_encodes_a_share_of_them_again) {
    const auto cost = sharded_cost({kNinetySixChunks, 4, 0.3, 0}, {1e15, 0}, {0.04, 1e-9, 2e-10}, {0.01, 4e-9, 1e-10});
    const double seconds = kElements * (1e-9 + 2e-10 + 4e-9 / 4 + 1e-10);
    EXPECT_NEAR(cost.exchange_seconds, seconds, 1e-6);
    EXPECT_NEAR(cost.exposed_seconds, seconds, 1e-6);  // by the same workers
}
TEST(CostModel, Sharded_waits_for_the_nodes_that_own_chunks_where_there_are_fewer_of_them) {
    const CodecFacts codec{0.04, 0, 0};
    const auto cost = [&](std::uint32_t nodes) {
        return sharded_cost({kNinetySixChunks, nodes, 0.3, 0}, {kGigabit, 0}, codec, codec);
    };
    // An owner gets and sends its one chunk 383 times.
    EXPECT_NEAR(cost(384).link_seconds, 2 * 8e-9 * 0.04 * kElements / 96 * 383, 1e-9);
    EXPECT_NEAR(cost(384).sent_bytes, 0.08 * kElements * 383 / 384, 1e-3) << "in the mean they send as much";
    EXPECT_GT(cost(384).step_seconds, 1.5 * cost(96).step_seconds);
    // Of 96 chunks some of 64 nodes own two, and others one.
    EXPECT_NEAR(cost(64).link_seconds, 2 * 8e-9 * 0.04 * kElements * 2 / 96 * 63, 1e-9);
}
TEST(CostModel, A_node_alone_sends_nothing_and_still_codes) {
    const auto cost = gather_cost({1'000'000, 1, 0.1, 0}, {kGigabit, 0.001}, {0.05, 1e-9, 1e-9});
    EXPECT_EQ(cost.sent_bytes, 0);
    EXPECT_NEAR(cost.exposed_seconds, 0.002, 1e-9);
    EXPECT_EQ(ring_cost({1'000'000, 1, 0.1, 0}, {kGigabit, 0.001}, 4).exposed_seconds, 0);
}

}  // namespace
}  // namespace gradsieve::exchange
