// Jobs of two nodes under the sharded plan.
#include "daemon/hosted_job.hpp"

#include "tests/daemon/job_host.hpp"

#include <cmath>
#include <limits>

namespace gradsieve::daemon::test {
namespace {

using shm::CompletionKind;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Values = std::vector<float>;

constexpr std::uint32_t kSeed = 12;
constexpr auto kCodec = "topk(0.01) | pow2(bits=4) | auto";
/// Two chunks, so one for each node; the bias goes to one of them.
constexpr ElementCount kLargeElements = kChunkElements + 30000, kBiasElements = 500;
constexpr std::uint32_t kLarge = 0, kBias = 1;

class HostedJobShards : public ::testing::Test {
protected:
    HostedJobShards() {
        for (auto* host : hosts) {
            host->config.plan = "sharded";
            host->budget.limit_bytes = ByteCount{256} << 20U;
        }
    }
    static shm::AttachRequest request_of(Rank rank, const std::string& codec = kCodec) {
        return make_request(rank, 2,
                            {{.name = "large", .shape = {kLargeElements}}, {.name = "zbias", .shape = {kBiasElements}}},
                            codec);
    }
    void start(const std::string& codec = kCodec, shm::NonFinitePolicy policy = shm::NonFinitePolicy::kFail) {
        for (const Rank rank : {0U, 1U}) {
            auto request = request_of(rank, codec);
            request.non_finite = policy;
            ranks.push_back(&hosts[rank]->attach(request));
        }
        for (auto* rank : ranks) ASSERT_TRUE(wait_for(hosts, *rank, CompletionKind::kStarted, 1));
    }
    using Gradients = std::array<std::array<Values, 2>, 2>;  ///< by node and tensor
    static Gradients draw(std::mt19937& random) {
        Gradients gradients;
        for (auto& node : gradients) node = {noise(kLargeElements, random), noise(kBiasElements, random)};
        return gradients;
    }
    void step(Step number, const Gradients& gradients, const std::string& text = "ok: ") {
        for (const std::size_t node : {0U, 1U})
            for (const auto tensor : {kLarge, kBias})
                ranks[node]->client->submit(tensor, number, gradients[node][tensor]);
        for (auto* rank : ranks) {
            ASSERT_TRUE(wait_for(hosts, *rank, CompletionKind::kStepDone, number));
            EXPECT_THAT(text_of(rank->client->last(CompletionKind::kStepDone)), HasSubstr(text));
        }
        for (const auto tensor : {kLarge, kBias})
            EXPECT_TRUE(std::ranges::equal(ranks[0]->client->result(tensor), ranks[1]->client->result(tensor),
                                           [](float left, float right) {
                                               return std::bit_cast<std::uint32_t>(left) ==
                                                      std::bit_cast<std::uint32_t>(right);
                                           }))
                << "step " << number << ", tensor " << tensor << ", seed " << kSeed;
    }
    const HostedTensor& tensor(std::size_t node, std::uint32_t index) const {
        return hosts[node]->job->tensors()[index];
    }
    const codec::StateView& live(std::size_t node, std::uint32_t index) const {
        const auto& hosted = tensor(node, index);
        return hosted.generations[hosted.live_generation(hosts[node]->job->groups()[0].committed)].arrays;
    }
    /// What the mean is still owed of an element.
    double owed(std::uint32_t index, ElementCount element) const {
        double sum = 0;
        for (const std::size_t node : {0U, 1U}) {
            const auto& state = live(node, index);
            sum += double{state.residual[element]} / 2;
            if (tensor(node, index).shard->owns(static_cast<std::uint32_t>(element / kChunkElements)))
                sum += double{state.down[element]};
        }
        return sum;
    }

    PipeNetwork network{2};
    Host first{&network, 0}, second{&network, 1};
    std::vector<Host*> hosts{&first, &second};
    std::vector<MemoryRank*> ranks;
};

TEST_F(HostedJobShards, Every_step_ends_with_the_same_bits_and_loses_nothing) {
    start();
    EXPECT_TRUE(tensor(0, kLarge).shard->owns(0));
    EXPECT_TRUE(tensor(1, kLarge).shard->owns(1));
    EXPECT_FALSE(tensor(0, kLarge).shard->owns(1) || tensor(1, kLarge).shard->owns(0));
    EXPECT_EQ(codec::canonical_text(*tensor(0, kBias).down, codec::Knobs::kKeep), "all | bf16 | auto");
    std::mt19937 random(kSeed);
    std::array<std::vector<double>, 2> balance{std::vector<double>(kLargeElements), std::vector<double>(kBiasElements)};
    for (Step number = 1; number <= 4; ++number) {
        const auto gradients = draw(random);
        step(number, gradients);
        for (const auto index : {kLarge, kBias}) {
            const auto average = ranks[0]->client->result(index);
            double worst = 0;
            for (std::size_t at = 0; at < average.size(); ++at) {
                balance[index][at] +=
                    (double{gradients[0][index][at]} + double{gradients[1][index][at]}) / 2 - double{average[at]};
                worst = std::max(worst, std::fabs(balance[index][at] - owed(index, at)));
            }
            EXPECT_LT(worst, 1e-4) << "step " << number << ", seed " << kSeed;
        }
    }
    const auto average = ranks[0]->client->result(kLarge);
    EXPECT_EQ(std::ranges::count_if(average, [](float value) { return value != 0; }),
              static_cast<std::ptrdiff_t>(kChunkElements / 100 + 30000 / 100))
        << "what owners send on is a share of each chunk";
}
TEST_F(HostedJobShards, Averages_that_are_sent_whole_are_those_of_the_other_plan) {
    start("all | f32");
    std::mt19937 random(kSeed);
    const auto gradients = draw(random);
    step(1, gradients);
    for (const auto index : {kLarge, kBias}) {
        const auto average = ranks[1]->client->result(index);
        for (std::size_t at = 0; at < average.size(); ++at)
            ASSERT_EQ(average[at], 0.5F * gradients[0][index][at] + 0.5F * gradients[1][index][at]) << at;
    }
}
TEST_F(HostedJobShards, Nodes_that_do_not_agree_on_the_plan_are_named) {
    second.config.plan = "gather";
    for (const Rank rank : {0U, 1U}) ranks.push_back(&hosts[rank]->attach(request_of(rank)));
    for (auto* rank : ranks) {
        ASSERT_TRUE(wait_for(hosts, *rank, CompletionKind::kJobEnded, 0));
        EXPECT_THAT(text_of(rank->client->last(CompletionKind::kJobEnded)),
                    AllOf(HasSubstr("mismatch"), HasSubstr("tensor 'large'"), HasSubstr("averages: topk(")));
    }
}
TEST_F(HostedJobShards, Non_finite_gradients_of_a_node_count_as_zero_if_the_policy_says_so) {
    start(kCodec, shm::NonFinitePolicy::kZero);
    std::mt19937 random(kSeed);
    auto gradients = draw(random);
    gradients[1][kLarge][7] = std::numeric_limits<float>::infinity();
    step(1, gradients);
    const auto average = ranks[0]->client->result(kLarge);
    const auto largest = static_cast<std::size_t>(
        std::ranges::max_element(average, {}, [](float value) { return std::fabs(value); }) - average.begin());
    EXPECT_GT(average[largest] * gradients[0][kLarge][largest], 0) << "of the first node alone";
    step(2, draw(random));
}
TEST_F(HostedJobShards, Non_finite_gradients_fail_the_step_and_change_nothing) {
    start();
    std::mt19937 random(kSeed);
    auto gradients = draw(random);
    gradients[0][kLarge][kChunkElements + 1] = std::numeric_limits<float>::quiet_NaN();
    step(1, gradients, "non-finite: ");
    for (const std::size_t node : {0U, 1U})
        for (ElementCount at = 0; at < kLargeElements; ++at) {
            ASSERT_EQ(live(node, kLarge).residual[at], 0);
            ASSERT_EQ(live(node, kLarge).down[at], 0);
        }
    step(2, draw(random));
}
TEST_F(HostedJobShards, Codecs_with_phases_or_votes_go_to_all_nodes) {
    start("lowrank(1, columns=square); z*: all | sign(scale=none)");
    for (const auto index : {kLarge, kBias}) EXPECT_FALSE(tensor(0, index).down.has_value());
    std::mt19937 random(kSeed);
    step(1, draw(random));
}

}  // namespace
}  // namespace gradsieve::daemon::test
