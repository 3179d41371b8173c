// How alike a job's gradients are from step to step, where its codec asks for that.
#include "daemon/hosted_job.hpp"

#include "tests/daemon/job_host.hpp"

#include <limits>

namespace gradsieve::daemon::test {
namespace {

using shm::CompletionKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Values = std::vector<float>;

constexpr auto kCodec = "similarity | all | f32";

class HostedJobSimilarity : public ::testing::Test {
protected:
    void SetUp() override {
        host.attach(make_request(0, 1, {{.name = "w", .shape = {4}}}, kCodec));
        host.turn();
        ASSERT_TRUE(host.ranks[0]->client->has(CompletionKind::kStarted, 1));
    }
    [[nodiscard]] const TensorTotals& totals() const { return host.job->tensors()[0].totals; }
    void step(Step step, const Values& gradient) {
        host.ranks[0]->client->submit(0, step, gradient);
        ASSERT_TRUE(wait_for({&host}, *host.ranks[0], CompletionKind::kStepDone, step));
    }

    Host host;
};

TEST_F(HostedJobSimilarity, First_step_has_nothing_to_be_like) {
    step(1, {1, 2, 3, 4});
    EXPECT_EQ(totals().similarity, std::nullopt);
    EXPECT_EQ(totals().bits_differ, std::nullopt);
}
TEST_F(HostedJobSimilarity, Each_step_is_compared_with_the_one_before) {
    step(1, {1, 2, 3, 4});
    step(2, {2, 4, 6, 8});
    EXPECT_NEAR(totals().similarity.value_or(0), 1, 1e-12);
    EXPECT_EQ(totals().bits_differ, 0U);
    step(3, {-1, -2, -3, -4});
    EXPECT_NEAR(totals().similarity.value_or(0), -1, 1e-12);
    EXPECT_EQ(totals().bits_differ, 4U);
    step(4, {-2, 1, 4, -3});
    EXPECT_NEAR(totals().similarity.value_or(1), 0, 1e-12) << "one element a bucket: exact";
}
TEST_F(HostedJobSimilarity, Step_without_a_result_is_not_compared_with) {
    step(1, {1, 2, 3, 4});
    step(2, {1, std::numeric_limits<float>::quiet_NaN(), 3, 4});
    EXPECT_EQ(host.job->groups()[0].committed, 1U);
    step(3, {-1, -2, -3, -4});
    EXPECT_EQ(host.job->groups()[0].committed, 3U);
    EXPECT_NEAR(totals().similarity.value_or(0), -1, 1e-12);
}
TEST_F(HostedJobSimilarity, Signatures_count_against_the_budget_until_the_job_ends) {
    Host plain;
    plain.attach(make_request(0, 1, {{.name = "w", .shape = {4}}}, "all | f32"));
    EXPECT_EQ(host.budget.used_bytes - plain.budget.used_bytes, 2 * codec::kSignatureBytes);
    host.job->release_memory();
    plain.job->release_memory();
    EXPECT_EQ(host.budget.used_bytes, plain.budget.used_bytes);
}

}  // namespace
}  // namespace gradsieve::daemon::test
