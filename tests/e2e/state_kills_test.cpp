// Kills at many random moments of a run: one daemon, the other, both, a rank, and all of them together, several times
// in one run. Minutes; labelled slow.
#include "tests/e2e/training.hpp"

namespace gradsieve::e2e {
namespace {

constexpr unsigned kRuns = 25;
constexpr std::uint64_t kKillSteps[] = {15, 45, 75};

TEST(StateKills, Runs_that_are_killed_three_times_at_random_moments_give_the_bits_of_one_that_was_not) {
    const auto seed = std::random_device()();
    std::printf("seed %u\n", seed);
    std::mt19937 random(seed);
    for (unsigned round = 0; round < kRuns && !::testing::Test::HasFailure(); ++round) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed << ", run " << round);
        Training run;
        run.start_ranks();
        bool has_killed_rank = false;
        for (const auto step : kKillSteps) {
            const auto victims = 1 + random() % 7;
            has_killed_rank = has_killed_rank || (victims & 4U) != 0;
            kill_and_revive(run, victims, step + random() % 10, random);
            ASSERT_FALSE(::testing::Test::HasFailure());
        }
        run.finish();
        if (has_killed_rank) {
            for (const auto& rank : run.ranks)
                for (const auto& [step, digest] : averages_of(rank))
                    EXPECT_EQ(digest, uninterrupted().at(step)) << step << run.text();
        } else {
            expect_as_uninterrupted(run, 3);
        }
        for (std::size_t node = 0; node < 2; ++node) EXPECT_TRUE(run.cluster.manager(node).parked().empty());
    }
}

}  // namespace
}  // namespace gradsieve::e2e
