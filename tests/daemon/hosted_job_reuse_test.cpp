// Tensors whose codec may skip steps: two daemons in one process, a rank on each.
#include "codec/reuse.hpp"
#include "daemon/hosted_job.hpp"

#include "tests/daemon/job_host.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace gradsieve::daemon::test {
namespace {

using shm::CompletionKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Values = std::vector<float>;

constexpr std::uint32_t kSeed = 20261129;
constexpr auto kCodec = "similarity(skip=0.5, most=3) | all | dither(levels=7)";
constexpr std::size_t kElements = 5'000;

class HostedJobReuse : public ::testing::Test {
protected:
    void start(const std::array<std::string, 2>& codecs = {kCodec, kCodec},
               shm::NonFinitePolicy policy = shm::NonFinitePolicy::kFail) {
        for (const Rank rank : {0U, 1U}) {
            auto request = make_request(rank, 2, {{.name = "w", .shape = {5, 1'000}}}, codecs[rank]);
            request.non_finite = policy;
            ranks.push_back(&hosts[rank]->attach(request));
        }
    }
    void wait_started() {
        for (auto* rank : ranks) ASSERT_TRUE(wait_for(hosts, *rank, CompletionKind::kStarted, 1));
    }
    void step(Step step, const std::array<Values, 2>& gradients, const std::string& text = "ok: ") {
        for (const std::size_t node : {0U, 1U}) ranks[node]->client->submit(0, step, gradients[node]);
        for (auto* rank : ranks) {
            ASSERT_TRUE(wait_for(hosts, *rank, CompletionKind::kStepDone, step));
            EXPECT_THAT(text_of(rank->client->last(CompletionKind::kStepDone)), HasSubstr(text));
        }
        const auto ours = ranks[0]->client->result(0);
        const auto theirs = ranks[1]->client->result(0);
        EXPECT_EQ(std::memcmp(ours.data(), theirs.data(), kElements * sizeof(float)), 0) << "step " << step;
    }
    const HostedTensor& tensor(std::size_t node) const { return hosts[node]->job->tensors()[0]; }
    std::uint64_t reused(std::size_t node) const { return tensor(node).totals.reused_steps; }
    Values residual(std::size_t node) const {
        const auto live = tensor(node).live_generation(hosts[node]->job->groups()[0].committed);
        const float* values = tensor(node).generations[live].arrays.residual;
        return {values, values + kElements};
    }

    PipeNetwork network{2};
    Host first{&network, 0}, second{&network, 1};
    std::vector<Host*> hosts{&first, &second};
    std::vector<MemoryRank*> ranks;
    std::mt19937 random{kSeed};
};

TEST_F(HostedJobReuse, Alike_gradients_are_skipped_on_each_node_by_itself_and_nothing_is_lost) {
    start();
    wait_started();
    const auto steady = noise(kElements, random);
    std::vector<double> balance(kElements);
    for (Step number = 1; number <= 9; ++number) {
        const std::array<Values, 2> gradients{steady, noise(kElements, random)};
        step(number, gradients);
        const auto average = ranks[0]->client->result(0);
        for (std::size_t at = 0; at < kElements; ++at)
            balance[at] += double{gradients[0][at]} + double{gradients[1][at]} - 2 * double{average[at]};
    }
    EXPECT_GE(reused(0), 4U) << "of nine, at most three in a row";
    EXPECT_LE(reused(0), 6U);
    EXPECT_EQ(reused(1), 0U) << "gradients of chance are not alike";
    const auto full_bytes = tensor(1).totals.payload_bytes;
    EXPECT_EQ(tensor(0).totals.reuse_saved_bytes, reused(0) * (full_bytes - codec::kReuseBytes));
    EXPECT_EQ(tensor(0).totals.payload_bytes_all, 9 * full_bytes - tensor(0).totals.reuse_saved_bytes);
    EXPECT_GT(tensor(0).totals.reuse_share.value_or(0), 0.5);
    EXPECT_LT(tensor(1).totals.reuse_share.value_or(1), 0.3);
    EXPECT_GT(tensor(0).totals.similarity.value_or(0), 0.99);
    const auto ours = residual(0);
    const auto theirs = residual(1);
    for (std::size_t at = 0; at < kElements; ++at)
        ASSERT_NEAR(double{ours[at]} + double{theirs[at]}, balance[at], 1e-4) << at << ", seed " << kSeed;
    for (auto* host : hosts) EXPECT_EQ(host->job->snapshot(Host::now()).digests_different, 0U);
}
TEST_F(HostedJobReuse, A_step_that_fails_changes_nothing_that_is_held) {
    start();
    wait_started();
    const auto steady = noise(kElements, random);
    auto broken = noise(kElements, random);
    broken[kElements - 1] = std::numeric_limits<float>::quiet_NaN();
    step(1, {steady, steady});
    const auto kept = residual(0);
    step(2, {broken, noise(kElements, random)}, "NaN or infinity from rank 0");
    step(3, {noise(kElements, random), broken}, "NaN or infinity from rank 1");
    EXPECT_EQ(residual(0), kept);
    step(4, {steady, steady});
    EXPECT_EQ(reused(0), 1U) << "the payload of step 1";
    EXPECT_EQ(reused(1), 1U);
}
TEST_F(HostedJobReuse, A_step_whose_result_is_no_number_changes_nothing_that_is_held) {
    start({kCodec, kCodec}, shm::NonFinitePolicy::kSkipStep);
    wait_started();
    const auto steady = noise(kElements, random);
    auto broken = steady;
    broken[0] = std::numeric_limits<float>::infinity();
    step(1, {steady, steady});
    step(2, {broken, noise(kElements, random)}, "NaN or infinity from rank 0");
    step(3, {steady, steady});
    EXPECT_EQ(reused(0), 1U);
    EXPECT_EQ(reused(1), 1U);
}
TEST_F(HostedJobReuse, A_node_that_counts_as_zero_in_a_step_is_held_at_the_one_before) {
    start({kCodec, kCodec}, shm::NonFinitePolicy::kZero);
    wait_started();
    const auto steady = noise(kElements, random);
    auto broken = steady;
    broken[0] = std::numeric_limits<float>::infinity();
    step(1, {steady, steady});
    step(2, {broken, steady});
    EXPECT_EQ(reused(0), 0U);
    EXPECT_EQ(reused(1), 1U);
    step(3, {steady, steady});
    EXPECT_EQ(reused(0), 1U) << "the payload of step 1";
    EXPECT_EQ(reused(1), 2U);
}
TEST_F(HostedJobReuse, Knobs_may_differ_and_whether_steps_are_skipped_may_not) {
    start({kCodec, "similarity(skip=0.999) | all | dither(levels=7)"});
    wait_started();
    const auto steady = noise(kElements, random);
    for (Step number = 1; number <= 3; ++number) step(number, {steady, steady});
    EXPECT_EQ(reused(0), 2U);
    EXPECT_EQ(reused(1), 0U) << "never alike enough";
}
TEST_F(HostedJobReuse, A_node_that_knows_of_no_skipped_steps_is_refused_at_the_start) {
    start({kCodec, "similarity | all | dither(levels=7)"});
    for (std::size_t node : {0U, 1U}) {
        ASSERT_TRUE(wait_for(hosts, *ranks[node], CompletionKind::kJobEnded, 0));
        EXPECT_THAT(text_of(ranks[node]->client->last(CompletionKind::kJobEnded)),
                    AllOf(HasSubstr("mismatch"), HasSubstr("similarity(skip=*, most=*)")));
    }
}
TEST_F(HostedJobReuse, Payloads_of_all_nodes_count_against_the_budget_until_the_job_ends) {
    start();
    Host plain(&network, 0);
    plain.attach(make_request(0, 2, {{.name = "w", .shape = {5, 1'000}}}, "similarity | all | dither(levels=7)"));
    const auto sent_bytes = 2 * sizeof(float) * codec::sent_floats(tensor(0).pipeline, kElements);
    const auto more = first.budget.used_bytes - plain.budget.used_bytes;
    EXPECT_GE(more, codec::reuse_bytes(tensor(0).pipeline, kElements, 2) + sent_bytes);
    EXPECT_LE(more, codec::reuse_bytes(tensor(0).pipeline, kElements, 2) + sent_bytes + 4 * 4096);
    first.job->release_memory();
    plain.job->release_memory();
    EXPECT_EQ(first.budget.used_bytes, plain.budget.used_bytes);
    first.budget.limit_bytes = first.budget.used_bytes + 20'000;
    EXPECT_THAT(first.make_job(make_request(0, 2, {{.name = "w", .shape = {5, 1'000}}}, kCodec)).to_string(),
                AllOf(HasSubstr("resource-exhausted"), HasSubstr("for steps that are skipped")));
}

}  // namespace
}  // namespace gradsieve::daemon::test
