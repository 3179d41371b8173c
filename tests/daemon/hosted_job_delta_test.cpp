// Tensors whose codec sends differences: one state of all nodes, through steps that fail and lives that end.
#include "daemon/hosted_job.hpp"

#include "tests/daemon/job_host.hpp"

#include <algorithm>
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

constexpr std::uint32_t kSeed = 19;
constexpr auto kCodec = "delta | topk(0.05) | f32";
constexpr std::uint32_t kLarge = 0, kSmall = 1;
constexpr std::size_t kLargeElements = 40'000, kSmallElements = 300;
const float kNotANumber = std::numeric_limits<float>::quiet_NaN();

bool same_bits(const Values& left, const Values& right) {
    return left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0;
}

/// What outlives a daemon on one node.
struct Store {
    Store() { budget.limit_bytes = ByteCount{256} << 20U; }
    MemoryBudget budget;
    LogLines log;
    KeptStates kept{budget, log.log()};
};

/// Two daemons in one process, a rank on each, from one start of the job to its end.
class Life {
public:
    Life(std::array<Store, 2>& stores, std::uint64_t epoch_seed, const std::string& codec = kCodec,
         shm::NonFinitePolicy policy = shm::NonFinitePolicy::kFail)
        : stores_(stores) {
        for (const Rank rank : {0U, 1U}) {
            auto request =
                make_request(rank, 2, {{.name = "large", .shape = {200, 200}}, {.name = "small", .shape = {30, 10}}},
                             "all | f32; large: " + codec + "; small: " + codec);
            request.non_finite = policy;
            auto around = hosts[rank]->surroundings();
            around.kept = &stores_[rank].kept;
            around.budget = &stores_[rank].budget;
            around.epoch_seed = epoch_seed;
            auto made = HostedJob::make(request, around, Host::now());
            EXPECT_TRUE(made.is_ok()) << made.status().to_string();
            hosts[rank]->job = std::move(*made);
            ranks.push_back(&hosts[rank]->attach(request));
        }
    }
    /// Where all begin.
    Step wait_start() {
        EXPECT_TRUE(wait_until([&] {
            turn();
            return std::ranges::all_of(ranks, [](auto* rank) { return rank->client->last(CompletionKind::kStarted); });
        }));
        for (auto* rank : ranks)
            EXPECT_EQ(rank->client->last(CompletionKind::kStarted)->step,
                      ranks[0]->client->last(CompletionKind::kStarted)->step);
        return ranks[0]->client->last(CompletionKind::kStarted)->step;
    }
    void turn() {
        for (auto* host : hosts) host->turn();
    }
    void hand_in(Step step, const std::array<std::array<Values, 2>, 2>& gradients) {
        for (const std::size_t node : {0U, 1U})
            for (const auto tensor : {kLarge, kSmall})
                ranks[node]->client->submit(tensor, step, gradients[node][tensor]);
    }
    void wait_step(Step step, const std::string& text = "ok: ") {
        for (auto* rank : ranks) {
            ASSERT_TRUE(wait_for(hosts, *rank, CompletionKind::kStepDone, step));
            EXPECT_THAT(text_of(rank->client->last(CompletionKind::kStepDone)), HasSubstr(text));
        }
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
    [[nodiscard]] Values live(std::size_t node, std::uint32_t index, float* codec::StateView::*array) const {
        const auto& tensor = hosts[node]->job->tensors()[index];
        const auto committed = hosts[node]->job->groups()[0].committed;
        const float* values = tensor.generations[tensor.live_generation(committed)].arrays.*array;
        return {values, values + tensor.elements};
    }
    [[nodiscard]] Values result(std::size_t node, std::uint32_t index) const {
        return ranks[node]->client->result(index);
    }
    /// What came back is H, the same on both nodes, and the mean of what both have sent.
    void expect_one_state(Step step) const {
        for (const auto index : {kLarge, kSmall}) {
            const auto average = live(0, index, &codec::StateView::average);
            EXPECT_TRUE(same_bits(result(0, index), result(1, index))) << "step " << step << " seed " << kSeed;
            EXPECT_TRUE(same_bits(result(0, index), average)) << "step " << step;
            EXPECT_TRUE(same_bits(average, live(1, index, &codec::StateView::average))) << "step " << step;
            const auto ours = live(0, index, &codec::StateView::residual);
            const auto theirs = live(1, index, &codec::StateView::residual);
            for (std::size_t at = 0; at < average.size(); ++at)
                ASSERT_NEAR((double{ours[at]} + double{theirs[at]}) / 2, average[at], 1e-5) << "element " << at;
        }
    }

private:
    std::array<Store, 2>& stores_;
    PipeNetwork network_{2};
    Host first_{&network_, 0}, second_{&network_, 1};

public:
    std::vector<Host*> hosts{&first_, &second_};
    std::vector<MemoryRank*> ranks;
};

std::array<Values, 2> draw(std::mt19937& random) {
    return {noise(kLargeElements, random), noise(kSmallElements, random)};
}
/// Of a step of both nodes, the same whenever it is asked for.
std::array<std::array<Values, 2>, 2> gradients_of(Step step) {
    std::mt19937 random(kSeed + static_cast<std::uint32_t>(step));
    auto first = draw(random);
    return {first, draw(random)};
}

void run(Life& life, Step first, Step last) {
    for (Step step = first; step <= last; ++step) {
        life.hand_in(step, gradients_of(step));
        life.wait_step(step);
        life.expect_one_state(step);
    }
}

TEST(HostedJobDelta, Every_step_gives_the_mean_of_what_all_have_sent) {
    std::array<Store, 2> stores;
    Life life(stores, 1);
    ASSERT_EQ(life.wait_start(), 1U);
    EXPECT_EQ(life.hosts[0]->job->tensors()[kSmall].codec_text,
              "delta | topk(ratio=0.05, scope=tensor, gate=0) | f32 | auto");
    run(life, 1, 8);
    const auto snapshot = life.hosts[0]->job->snapshot(Host::now());
    EXPECT_EQ(snapshot.digests_different, 0U);
    EXPECT_GE(snapshot.digests_compared, 7U);
    EXPECT_EQ(life.hosts[0]->job->tensors()[kSmall].totals.kept_elements, 15U) << "differences are sparse";
    const auto back = life.result(0, kSmall);
    EXPECT_GT(std::ranges::count_if(back, [](float value) { return value != 0; }), 50) << "what comes back is not";
}
TEST(HostedJobDelta, Step_that_fails_leaves_what_was_sent_and_its_average_as_they_were) {
    std::array<Store, 2> stores;
    Life life(stores, 1);
    life.wait_start();
    run(life, 1, 2);
    std::array<Values, 4> before;
    for (const std::size_t node : {0U, 1U}) {
        before[2 * node] = life.live(node, kLarge, &codec::StateView::residual);
        before[2 * node + 1] = life.live(node, kLarge, &codec::StateView::average);
    }
    // The large tensor is coded, exchanged and decoded on both; then there is no step.
    auto gradients = gradients_of(3);
    for (const std::size_t node : {0U, 1U}) life.ranks[node]->client->submit(kLarge, 3, gradients[node][kLarge]);
    for (auto* rank : life.ranks) ASSERT_TRUE(wait_for(life.hosts, *rank, CompletionKind::kTensor, 3));
    gradients[1][kSmall][7] = kNotANumber;
    for (const std::size_t node : {0U, 1U}) life.ranks[node]->client->submit(kSmall, 3, gradients[node][kSmall]);
    life.wait_step(3, "NaN or infinity from rank 1");
    for (const std::size_t node : {0U, 1U}) {
        EXPECT_TRUE(same_bits(life.live(node, kLarge, &codec::StateView::residual), before[2 * node]));
        EXPECT_TRUE(same_bits(life.live(node, kLarge, &codec::StateView::average), before[2 * node + 1]));
    }
    run(life, 4, 6);
}
TEST(HostedJobDelta, Step_that_fails_while_a_payload_is_awaited_is_done_with) {
    std::array<Store, 2> stores;
    Life life(stores, 1);
    life.wait_start();
    run(life, 1, 1);
    auto gradients = gradients_of(2);
    gradients[0][kSmall][0] = kNotANumber;  // on one node at once, on the other when it hears of it
    life.hand_in(2, gradients);
    life.wait_step(2, "NaN or infinity from rank 0");
    run(life, 3, 5);
}
TEST(HostedJobDelta, Node_without_numbers_sends_nothing_and_what_it_had_sent_stays) {
    std::array<Store, 2> stores;
    Life life(stores, 1, std::string("momentum(0.5) | ") + kCodec, shm::NonFinitePolicy::kZero);
    life.wait_start();
    run(life, 1, 3);
    const auto sent = life.live(0, kSmall, &codec::StateView::residual);
    const auto momentum = life.live(0, kSmall, &codec::StateView::momentum);
    const auto average = life.live(0, kSmall, &codec::StateView::average);
    auto gradients = gradients_of(4);
    gradients[0][kSmall][5] = kNotANumber;
    life.hand_in(4, gradients);
    life.wait_step(4);
    life.expect_one_state(4);
    EXPECT_TRUE(same_bits(life.live(0, kSmall, &codec::StateView::residual), sent));
    EXPECT_TRUE(same_bits(life.live(0, kSmall, &codec::StateView::momentum), momentum));
    EXPECT_FALSE(same_bits(life.live(0, kSmall, &codec::StateView::average), average)) << "the other node has sent";
    gradients = gradients_of(5);
    for (auto& node : gradients) node[kLarge][9] = kNotANumber;  // on both: H stays
    const auto large = life.live(0, kLarge, &codec::StateView::average);
    life.hand_in(5, gradients);
    life.wait_step(5);
    life.expect_one_state(5);
    EXPECT_TRUE(same_bits(life.result(1, kLarge), large));
    run(life, 6, 8);
}
TEST(HostedJobDelta, Skipped_step_changes_nothing_on_any_node) {
    std::array<Store, 2> stores;
    Life life(stores, 1, kCodec, shm::NonFinitePolicy::kSkipStep);
    life.wait_start();
    run(life, 1, 2);
    const auto sent = life.live(0, kSmall, &codec::StateView::residual);
    const auto average = life.live(0, kSmall, &codec::StateView::average);
    auto gradients = gradients_of(3);
    gradients[1][kSmall][4] = kNotANumber;
    life.hand_in(3, gradients);
    life.wait_step(3, "NaN or infinity from rank 1");
    EXPECT_TRUE(std::isnan(life.result(0, kSmall)[0]));
    EXPECT_TRUE(same_bits(life.live(0, kSmall, &codec::StateView::residual), sent));
    EXPECT_TRUE(same_bits(life.live(0, kSmall, &codec::StateView::average), average));
    run(life, 4, 6);
}
TEST(HostedJobDelta, Another_scale_is_refused_with_words_and_loses_nothing) {
    std::array<Store, 2> stores;
    Life life(stores, 1);
    life.wait_start();
    run(life, 1, 2);
    const auto gradients = gradients_of(3);
    for (const std::size_t node : {0U, 1U})
        for (const auto tensor : {kLarge, kSmall}) {
            life.ranks[node]->client->fill(tensor, gradients[node][tensor]);
            life.ranks[node]->client->push({.kind = shm::SubmissionKind::kAverage,
                                            .tensor_index = tensor,
                                            .step = 3,
                                            .scale = node == 0 ? 2.0 : 1.0});
        }
    life.wait_step(3, "scale 2.000000 after steps of scale 1.000000: with delta");
    run(life, 4, 5);
}
TEST(HostedJobDelta, Next_life_goes_on_with_the_bits_of_one_that_never_ended) {
    std::array<Store, 2> plain_stores, stores;
    Life plain(plain_stores, 1);
    plain.wait_start();
    run(plain, 1, 7);
    {
        Life life(stores, 1);
        life.wait_start();
        run(life, 1, 3);
        life.end();
    }
    {
        Life life(stores, 2);
        ASSERT_EQ(life.wait_start(), 4U);
        run(life, 4, 5);
        life.end();
    }
    Life life(stores, 3);
    ASSERT_EQ(life.wait_start(), 6U);
    run(life, 6, 7);
    for (const auto index : {kLarge, kSmall}) {
        EXPECT_TRUE(same_bits(life.result(0, index), plain.result(0, index)));
        for (const std::size_t node : {0U, 1U})
            EXPECT_TRUE(same_bits(life.live(node, index, &codec::StateView::residual),
                                  plain.live(node, index, &codec::StateView::residual)));
    }
}
TEST(HostedJobDelta, Where_one_node_has_lost_its_state_all_begin_anew) {
    std::array<Store, 2> stores;
    {
        Life life(stores, 1);
        life.wait_start();
        run(life, 1, 3);
        life.end();
    }
    ASSERT_TRUE(stores[1].kept.drop_oldest("a test takes it away"));
    Life life(stores, 2);
    ASSERT_EQ(life.wait_start(), 1U);
    EXPECT_THAT(life.hosts[0]->job->state_text(), HasSubstr("kept it up to step 3, node b has none"));
    run(life, 1, 3);
}
// Both nodes kept step 3, and each of another run: h of one and H of the other would not belong together.
TEST(HostedJobDelta, States_of_one_step_from_two_runs_are_not_gone_on_from_together) {
    std::array<Store, 2> stores, others;
    for (auto* kept : {&stores, &others}) {
        Life life(*kept, kept == &stores ? 1 : 2);
        life.wait_start();
        run(life, 1, 3);
        life.end();
    }
    ASSERT_TRUE(stores[1].kept.drop_oldest("a test takes it away"));
    auto other = others[1].kept.take({"demo", "one"});
    ASSERT_TRUE(other);
    others[1].budget.give_back(other->segment.size_bytes());
    ASSERT_TRUE(stores[1].budget.take(other->segment.size_bytes(), "a state from elsewhere").is_ok());
    stores[1].kept.keep(std::move(*other), "it is of another run", Host::now());
    Life life(stores, 3);
    ASSERT_EQ(life.wait_start(), 1U);
    EXPECT_THAT(life.hosts[0]->job->state_text(),
                AllOf(HasSubstr("kept it up to step 3, node b up to step 3 of another run"),
                      HasSubstr("with delta all nodes must go on from one")));
    run(life, 1, 3);
}
TEST(HostedJobDelta, State_of_nodes_that_differ_is_not_gone_on_from) {
    std::array<Store, 2> stores;
    {
        Life life(stores, 1);
        life.wait_start();
        run(life, 1, 3);
        const auto& tensor = life.hosts[1]->job->tensors()[kSmall];
        tensor.generations[tensor.live_generation(3)].arrays.average[7] += 1;  // a bit of memory that fell over
        life.hand_in(4, gradients_of(4));
        ASSERT_TRUE(wait_until([&] {
            life.turn();
            return life.hosts[0]->job->is_ended() && life.hosts[1]->job->is_ended();
        }));
        for (auto* host : life.hosts) {
            EXPECT_THAT(host->job->end_status().text(), HasSubstr("the result on node a differs from that on node b"));
            host->job->give_up_state(Host::now());
        }
    }
    Life life(stores, 2);
    ASSERT_EQ(life.wait_start(), 1U) << "or the difference would end every life that follows";
    run(life, 1, 3);
}
TEST(HostedJobDelta, Without_delta_any_run_s_state_of_the_step_will_do) {
    std::array<Store, 2> stores, others;
    const std::string codec = "topk(0.05) | f32";
    for (auto* kept : {&stores, &others}) {
        Life life(*kept, kept == &stores ? 1 : 2, codec);
        life.wait_start();
        life.hand_in(1, gradients_of(1));
        life.wait_step(1);
        life.end();
    }
    ASSERT_TRUE(stores[1].kept.drop_oldest("a test takes it away"));
    auto other = others[1].kept.take({"demo", "one"});
    ASSERT_TRUE(other);
    stores[1].kept.keep(std::move(*other), "it is of another run", Host::now());
    Life life(stores, 3, codec);
    EXPECT_EQ(life.wait_start(), 2U);
}

}  // namespace
}  // namespace gradsieve::daemon::test
