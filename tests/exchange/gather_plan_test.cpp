// Rounds of the gather plan between machines: hand-in, coding, decoding, commit, acknowledgements.
#include "tests/exchange/sim.hpp"

#include <gtest/gtest.h>

namespace gradsieve::exchange {
namespace {

using namespace std::chrono_literals;

TEST(GatherPlan, Single_node_steps_without_frames) {
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
        EXPECT_EQ(shot.digests_compared, 20U * (sim.size() - 1));
        EXPECT_EQ(shot.digests_different, 0U);
    }
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
INSTANTIATE_TEST_SUITE_P(GatherPlan, Nodes, testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace gradsieve::exchange
