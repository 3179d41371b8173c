// Jobs with a budget: two daemons in one process, a rank on each, at settings of their own.
#include "daemon/hosted_job.hpp"

#include "tests/daemon/job_host.hpp"

#include <array>
#include <cstring>
#include <random>

namespace gradsieve::daemon::test {
namespace {

using shm::CompletionKind;
using ::testing::HasSubstr;
using Values = std::vector<float>;

constexpr std::uint32_t kSeed = 20261130;
constexpr std::uint64_t kRows = 100, kColumns = 400;
constexpr std::size_t kElements = kRows * kColumns;
constexpr auto kWritten = "topk(0.01) | pow2(bits=4); bias: all | bf16";

/// What outlives a daemon on one node.
struct Store {
    Store() { budget.limit_bytes = ByteCount{64} << 20U; }
    MemoryBudget budget;
    LogLines log;
    KeptStates kept{budget, log.log()};
};

class Life {
public:
    Life(std::array<Store, 2>& stores, const std::array<std::string, 2>& codecs, std::uint64_t ms = 0,
         std::uint64_t bytes = 0) {
        for (const Rank rank : {0U, 1U}) {
            auto& host = *hosts[rank];
            host.config.budget_bytes_per_step = bytes;
            host.config.budget_ms_per_step = static_cast<double>(ms);
            const auto request = make_request(
                rank, 2, {{.name = "bias", .shape = {300}}, {.name = "w", .shape = {kRows, kColumns}}}, codecs[rank]);
            auto around = host.surroundings();
            around.kept = &stores[rank].kept;
            around.budget = &stores[rank].budget;
            auto made = HostedJob::make(request, around, Host::now());
            EXPECT_TRUE(made.is_ok()) << made.status().to_string();
            host.job = std::move(*made);
            ranks.push_back(&host.attach(request));
        }
    }
    Step wait_start() {
        EXPECT_TRUE(wait_until([&] {
            turn();
            return std::ranges::all_of(ranks, [](auto* rank) { return rank->client->last(CompletionKind::kStarted); });
        }));
        return ranks[0]->client->last(CompletionKind::kStarted)->step;
    }
    void turn() {
        for (auto* host : hosts) host->turn();
    }
    void step(Step step) {
        for (const std::size_t node : {0U, 1U}) {
            std::mt19937 random(static_cast<std::uint32_t>(kSeed + 2 * step + node));
            ranks[node]->client->submit(0, step, noise(300, random));
            ranks[node]->client->submit(1, step, noise(kElements, random));
        }
        for (auto* rank : ranks) {
            ASSERT_TRUE(wait_for(hosts, *rank, CompletionKind::kStepDone, step));
            ASSERT_THAT(text_of(rank->client->last(CompletionKind::kStepDone)), HasSubstr("ok: "));
        }
        for (const std::uint32_t index : {0U, 1U}) {
            const auto ours = ranks[0]->client->result(index);
            const auto theirs = ranks[1]->client->result(index);
            ASSERT_EQ(std::memcmp(ours.data(), theirs.data(), ours.size() * sizeof(float)), 0) << "step " << step;
        }
    }
    void steps(Step begin, Step last) {
        for (Step number = begin; number <= last; ++number) step(number);
    }
    /// A rank dies, and the state of what was committed is kept on both nodes.
    void end() {
        hosts[0]->job->on_session_gone(ranks[0]->session, "it was killed", Host::now());
        EXPECT_TRUE(wait_until([&] {
            turn();
            return hosts[0]->job->is_ended() && hosts[1]->job->is_ended();
        }));
        for (auto* host : hosts) host->job->give_up_state(Host::now());
    }
    [[nodiscard]] const HostedTensor& tensor(std::size_t node, std::uint32_t index = 1) const {
        return hosts[node]->job->tensors()[index];
    }
    [[nodiscard]] std::uint64_t bytes(std::size_t node) const {
        return tensor(node, 0).totals.payload_bytes + tensor(node, 1).totals.payload_bytes;
    }
    [[nodiscard]] double ratio(std::size_t node) const { return tensor(node).pipeline.selector.ratio; }
    [[nodiscard]] BudgetView view(std::size_t node) const {
        const auto& job = *hosts[node]->job;
        return job.steering().view(0, job.tensors(), hosts[node]->config);
    }

    PipeNetwork network{2};
    Host first{&network, 0}, second{&network, 1};
    std::vector<Host*> hosts{&first, &second};
    std::vector<MemoryRank*> ranks;
};

class HostedJobBudget : public ::testing::Test {
protected:
    std::array<Store, 2> stores;
};

TEST_F(HostedJobBudget, Each_node_fits_its_own_and_all_get_the_same_averages) {
    Life life(stores, {std::string(kWritten) + "; budget_bytes_per_step = 5000", kWritten});
    ASSERT_EQ(life.wait_start(), 1U);
    life.step(1);
    const auto written_bytes = life.bytes(1);
    EXPECT_EQ(life.bytes(0), life.tensor(0).totals.payload_bytes + life.tensor(0, 0).totals.payload_bytes);
    life.steps(2, 12);
    EXPECT_LE(life.bytes(0), 5000U);
    EXPECT_GE(life.bytes(0), 4750U);
    EXPECT_GT(life.ratio(0), 0.01);
    EXPECT_EQ(life.ratio(1), 0.01) << "no budget there";
    EXPECT_NEAR(static_cast<double>(life.bytes(1)), static_cast<double>(written_bytes), 30.0);
    EXPECT_EQ(life.tensor(0, 0).codec_text, life.tensor(1, 0).codec_text) << "a small tensor has no number to move";
    EXPECT_EQ(life.view(0).verdict, "holding");
    EXPECT_THAT(life.view(0).text, HasSubstr(" in place of ratio = 0.01"));
    EXPECT_GT(life.view(0).moves, 0U);
    for (auto* host : life.hosts) EXPECT_EQ(host->job->snapshot(Host::now()).digests_different, 0U);
}
TEST_F(HostedJobBudget, Configuration_counts_for_jobs_without_one_and_from_the_next_step_when_it_changes) {
    Life life(stores, {kWritten, std::string(kWritten) + "; budget_bytes_per_step = 900"}, 0, 2000);
    ASSERT_EQ(life.wait_start(), 1U);
    life.steps(1, 10);
    EXPECT_LE(life.bytes(0), 2000U);
    EXPECT_GE(life.bytes(0), 1900U);
    EXPECT_LE(life.bytes(1), 900U) << "the job's own goes before it";
    life.first.config.budget_bytes_per_step = 6000;
    life.steps(11, 20);
    EXPECT_LE(life.bytes(0), 6000U);
    EXPECT_GE(life.bytes(0), 5700U);
    life.first.config.budget_bytes_per_step = 0;
    life.steps(21, 22);
    EXPECT_EQ(life.ratio(0), 0.01) << "as it was written";
}
TEST_F(HostedJobBudget, What_cannot_be_met_ends_at_the_least_and_says_so) {
    Life life(stores, {std::string(kWritten) + "; budget_bytes_per_step = 20", kWritten});
    ASSERT_EQ(life.wait_start(), 1U);
    life.steps(1, 3);
    EXPECT_EQ(life.tensor(0).totals.kept_elements, 1U);
    EXPECT_EQ(life.view(0).verdict, "over at least");
    EXPECT_THAT(life.view(0).text, HasSubstr("the least that these codecs send is over the budget"));
}
TEST_F(HostedJobBudget, The_next_life_goes_on_with_the_bytes_that_the_first_would_have_sent) {
    const std::string codec = "gaussian_k(0.01) | f32; budget_bytes_per_step = 7000";  // judged by four steps together
    const std::array<std::string, 2> same{codec, codec};
    std::array<Store, 2> others;
    std::vector<std::array<std::uint64_t, 2>> whole;
    {
        Life life(others, same);
        ASSERT_EQ(life.wait_start(), 1U);
        for (Step step = 1; step <= 14; ++step) {
            life.step(step);
            whole.push_back({life.bytes(0), life.bytes(1)});
        }
        life.end();
    }
    for (Step begin = 1; begin <= 14;) {  // in lives of three steps
        Life life(stores, same);
        ASSERT_EQ(life.wait_start(), begin);
        for (const auto end = std::min<Step>(begin + 3, 15); begin < end; ++begin) {
            life.step(begin);
            EXPECT_EQ(life.bytes(0), whole[begin - 1][0]) << "step " << begin;
            EXPECT_EQ(life.bytes(1), whole[begin - 1][1]) << "step " << begin;
        }
        life.end();
    }
}
TEST_F(HostedJobBudget, Kept_state_is_gone_on_from_where_a_budget_came_or_went) {
    {
        Life life(stores, {kWritten, std::string(kWritten) + "; budget_bytes_per_step = 900"});
        ASSERT_EQ(life.wait_start(), 1U);
        life.steps(1, 3);
        life.end();
    }
    Life life(stores, {std::string(kWritten) + "; budget_bytes_per_step = 900", kWritten});
    EXPECT_EQ(life.wait_start(), 4U);
    EXPECT_EQ(life.first.job->state_text(), "");
    life.steps(4, 9);
    EXPECT_LE(life.bytes(0), 900U);
    EXPECT_EQ(life.ratio(1), 0.01);
}

}  // namespace
}  // namespace gradsieve::daemon::test
