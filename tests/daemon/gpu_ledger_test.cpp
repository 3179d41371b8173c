// What all workers hold of each GPU together: the limit is per GPU, and a claim on several is taken whole or not at
// all.
#include "daemon/gpu_ledger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradsieve::daemon {
namespace {

using testing::HasSubstr;

constexpr ByteCount kMiB = ByteCount{1} << 20U;

TEST(GpuLedger, Claim_beyond_the_limit_of_one_gpu_names_the_figures_of_all_and_takes_nothing) {
    GpuLedger ledger;
    const std::vector<GpuClaim> first = {{0, "GPU-a", 3 * kMiB}, {1, "GPU-b", 1 * kMiB}};
    ASSERT_TRUE(ledger.take_state(first, 4 * kMiB).is_ok());
    const std::vector<GpuClaim> second = {{0, "GPU-a", 2 * kMiB}, {1, "GPU-b", 1 * kMiB}};
    const auto refused = ledger.take_state(second, 4 * kMiB);
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(refused.text(), HasSubstr("state of 2 MiB on GPU GPU-a: 3 of 4 MiB are in use"));
    EXPECT_THAT(refused.text(), HasSubstr("and of 1 MiB on GPU GPU-b: 1 of 4 MiB are in use"));
    EXPECT_THAT(refused.text(), HasSubstr("raise gpu.memory_limit_mib"));
    const std::vector<GpuClaim> rest = {{0, "GPU-a", 1 * kMiB}, {1, "GPU-b", 3 * kMiB}};
    EXPECT_TRUE(ledger.take_state(rest, 4 * kMiB).is_ok()) << "nothing was taken by the refused claim";
}

TEST(GpuLedger, Workspace_counts_with_the_state_and_what_is_given_back_can_be_taken_again) {
    GpuLedger ledger;
    ledger.note_workspace(0, 0, 3 * kMiB);
    ledger.note_workspace(0, 3 * kMiB, 2 * kMiB);
    const std::vector<GpuClaim> claim = {{0, "GPU-a", 2 * kMiB}};
    ASSERT_TRUE(ledger.take_state(claim, 4 * kMiB).is_ok());
    EXPECT_FALSE(ledger.take_state(claim, 4 * kMiB).is_ok());
    ledger.give_back_state(0, 2 * kMiB);
    EXPECT_TRUE(ledger.take_state(claim, 4 * kMiB).is_ok());
    EXPECT_TRUE(ledger.take_state(claim, 0).is_ok()) << "no limit";
}

}  // namespace
}  // namespace gradsieve::daemon
