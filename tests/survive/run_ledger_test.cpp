#include "tests/survive/run_ledger.hpp"

#include <gtest/gtest.h>
#include <cmath>

namespace gradsieve::survive {
namespace {

constexpr std::size_t kWorld = 2;
/// Both ranks hand in 3 and 5 in both groups, in two steps; averages bring back 1 of 4 each time.
RunLedger two_steps() {
    RunLedger ledger;
    for (const std::string group : {"", "two"})
        for (const std::string step : {"1", "2"})
            for (std::size_t rank = 0; rank < kWorld; ++rank) {
                ledger.take(rank, "gives" + group + " " + step + (rank == 0 ? " 3" : " 5"), {});
                ledger.take(rank, "takes" + group + " " + step + " 1", {});
                ledger.take(rank, "average" + group + " " + step + " 0123", {});
            }
    return ledger;
}

TEST(RunLedger, What_came_back_and_what_is_kept_is_all_of_the_mass) {
    EXPECT_NEAR(two_steps().lost_mass(2, kWorld, {{"", 6.0}, {"two", 6.0}}), 0, 1e-15);
}
TEST(RunLedger, A_residual_that_is_gone_is_lost_mass_of_its_group) {
    EXPECT_NEAR(two_steps().lost_mass(2, kWorld, {{"", 6.0}, {"two", 4.0}}), 0.25, 1e-15);
}
TEST(RunLedger, Without_all_gradients_or_residuals_the_mass_is_not_known) {
    EXPECT_TRUE(std::isnan(two_steps().lost_mass(3, kWorld, {{"", 6.0}, {"two", 6.0}})));
    EXPECT_TRUE(std::isnan(two_steps().lost_mass(2, kWorld, {{"", 6.0}})));
}
TEST(RunLedger, A_step_that_nobody_read_is_unread_and_its_sum_is_lost) {
    auto ledger = two_steps();
    ledger.take(0, "givestwo 3 3", {});
    ledger.take(1, "givestwo 3 5", {});
    ledger.take(0, "average 3 0123", {});
    EXPECT_EQ(ledger.unread(3), (std::vector<RunLedger::Step>{{"two", 3}}));
    EXPECT_TRUE(ledger.unread(2).empty());
}
TEST(RunLedger, Two_digests_of_a_step_are_a_conflict_and_the_same_one_twice_is_none) {
    auto ledger = two_steps();
    ledger.take(0, "average 2 0123", {});
    EXPECT_TRUE(ledger.conflicts.empty());
    ledger.take(1, "average 2 4567", {});
    EXPECT_EQ(ledger.conflicts.size(), 1U);
}
TEST(RunLedger, What_ranks_say_of_errors_deadlines_and_lives_is_taken_down) {
    RunLedger ledger;
    ledger.take(1, "started 1", {});
    ledger.take(1, "started 7", {});
    ledger.take(1, "again unavailable: gone", {});
    ledger.take(1, "overdue wait 12000", {});
    ledger.take(1, "error no life within the time", {});
    ledger.take(1, "finished", {});
    EXPECT_EQ(ledger.beginnings[1], 1U);
    ASSERT_EQ(ledger.again.size(), 1U);
    EXPECT_EQ(ledger.again[0].text, "unavailable: gone");
    EXPECT_EQ(ledger.overdue, std::vector<std::string>{"rank 1: wait 12000 ms"});
    EXPECT_EQ(ledger.errors.size(), 1U);
    EXPECT_EQ(ledger.finished.count(1), 1U);
    EXPECT_EQ(ledger.last_step(1), 0U);
}

}  // namespace
}  // namespace gradsieve::survive
