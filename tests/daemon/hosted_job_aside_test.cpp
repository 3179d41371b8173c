// Jobs whose tensors may step aside: two daemons in one process, a rank on each. The pipe between them has no limit, so
// what is decided follows from codecs that are slow on purpose, and from links that are told.
#include "daemon/hosted_job.hpp"
#include "daemon/plain_choice.hpp"
#include "daemon/status_document.hpp"

#include "tests/daemon/job_host.hpp"

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

namespace gradsieve::daemon::test {
namespace {

using shm::CompletionKind;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint32_t kSeed = 20261130;
constexpr std::uint64_t kRows = 200, kColumns = 1000;
constexpr std::size_t kElements = kRows * kColumns;
constexpr auto kSlow = "all | dither(levels=7) | entropy; bias: all | bf16";
constexpr auto kPlain = "all | bf16 | auto";

class Pair {
public:
    explicit Pair(const std::string& codec, const std::string& other = {}) {
        std::mt19937 random(kSeed);
        for (const Rank rank : {0U, 1U}) {
            biases[rank] = noise(300, random);
            gradients[rank] = noise(kElements, random);
            auto& host = *hosts[rank];
            const auto request =
                make_request(rank, 2, {{.name = "bias", .shape = {300}}, {.name = "w", .shape = {kRows, kColumns}}},
                             rank == 1 && !other.empty() ? other : codec);
            ranks.push_back(&host.attach(request));
        }
        EXPECT_TRUE(wait_until([&] {
            turn();
            return std::ranges::all_of(ranks, [](auto* rank) { return rank->client->last(CompletionKind::kStarted); });
        }));
    }
    void turn() {
        for (auto* host : hosts) host->turn();
    }
    /// Both ranks get the same average, bit for bit.
    void step() {
        ++last;
        for (const std::size_t node : {0U, 1U}) {
            ranks[node]->client->submit(0, last, biases[node]);
            ranks[node]->client->submit(1, last, gradients[node]);
        }
        for (auto* rank : ranks) {
            ASSERT_TRUE(wait_for(hosts, *rank, CompletionKind::kStepDone, last));
            ASSERT_THAT(text_of(rank->client->last(CompletionKind::kStepDone)), HasSubstr("ok: "));
        }
        for (const std::uint32_t index : {0U, 1U}) {
            const auto ours = ranks[0]->client->result(index);
            const auto theirs = ranks[1]->client->result(index);
            ASSERT_EQ(std::memcmp(ours.data(), theirs.data(), ours.size() * sizeof(float)), 0) << "step " << last;
        }
    }
    void steps(int count) {
        for (int at = 0; at < count; ++at) step();
    }
    [[nodiscard]] const HostedTensor& tensor(std::size_t node) const { return hosts[node]->job->tensors()[1]; }
    [[nodiscard]] PlainView view(std::size_t node) const {
        const auto& job = *hosts[node]->job;
        return job.plain().view(job.tensors(), job.steering().budget(hosts[node]->config).is_set());
    }

    PipeNetwork network{2};
    Host first{&network, 0}, second{&network, 1};
    std::vector<Host*> hosts{&first, &second};
    std::vector<MemoryRank*> ranks;
    std::array<std::vector<float>, 2> biases, gradients;  ///< of every step
    mutable LogLines log;
    Step last = 0;
};

/// Steps until the tensor goes the way that is asked for; times decide, and a busy machine may need a second look.
void step_until(Pair& pair, std::size_t node, bool is_plain, int most_steps) {
    for (int step = 0; step < most_steps && (pair.tensor(node).codec_text == kPlain) != is_plain; ++step) pair.step();
}

TEST(HostedJobAside, Nothing_steps_aside_unless_it_is_asked_for) {
    Pair pair(kSlow);
    const auto written = pair.tensor(0).codec_text;
    pair.steps(15);
    EXPECT_EQ(pair.tensor(0).codec_text, written);
    EXPECT_EQ(pair.view(0).aside, 0U);
    EXPECT_EQ(pair.view(0).coded_ms, 0) << "nothing is measured";
}
TEST(HostedJobAside, One_node_goes_plain_the_other_does_not_and_all_get_the_same_averages) {
    Pair pair(kSlow);
    const auto written = pair.tensor(1).codec_text;
    pair.first.config.step_aside = true;
    step_until(pair, 0, true, 600);
    ASSERT_EQ(pair.tensor(0).codec_text, kPlain) << pair.view(0).text;
    pair.step();
    EXPECT_EQ(pair.tensor(0).totals.payload_bytes / 1000, 2 * kElements / 1000);
    EXPECT_EQ(pair.tensor(1).codec_text, written);
    EXPECT_LT(pair.tensor(1).totals.payload_bytes, kElements);
    EXPECT_EQ(pair.view(0).eligible, 1U);
    ASSERT_EQ(pair.view(0).refusals.size(), 1U);
    EXPECT_EQ(pair.view(0).refusals[0].text, "it is plain already");
    EXPECT_GT(pair.view(0).coded_ms, 0);
    EXPECT_GT(pair.view(0).plain_ms, 0);
    for (auto* host : pair.hosts) EXPECT_EQ(host->job->snapshot(Host::now()).digests_different, 0U);
    pair.first.config.step_aside = false;
    pair.step();
    EXPECT_EQ(pair.tensor(0).codec_text, written) << "as it is written, from the next step on";
    pair.steps(3);
    for (auto* host : pair.hosts) EXPECT_EQ(host->job->snapshot(Host::now()).digests_different, 0U);
}
TEST(HostedJobAside, A_budget_decides_alone) {
    const std::string written = "topk(0.01) | pow2(bits=4); bias: all | bf16";
    Pair pair(written + "; budget_bytes_per_step = 9000");
    for (auto* host : pair.hosts) host->config.step_aside = true;
    pair.steps(12);
    EXPECT_NE(pair.tensor(0).codec_text, kPlain);
    EXPECT_EQ(pair.view(0).text, "on: a budget decides what is sent");
    EXPECT_GE(pair.tensor(0).totals.payload_bytes, 7900U) << "of 9,000 with the other tensor's 600";
}
TEST(HostedJobAside, What_may_not_says_why) {
    Pair pair("momentum(0.9) | topk(0.01) | f32; bias: all | f32");
    for (auto* host : pair.hosts) host->config.step_aside = true;
    pair.steps(3);
    const auto view = pair.view(0);
    EXPECT_EQ(view.eligible, 0U);
    EXPECT_EQ(view.text, "on: no tensor may step aside");
    ASSERT_EQ(view.refusals.size(), 2U);
    EXPECT_THAT(view.refusals[1].text, HasSubstr("momentum"));
}

/// The part of a node's status document.
nlohmann::json document_part(const Pair& pair, std::size_t node) {
    const auto& host = *pair.hosts[node];
    MemoryBudget budget;
    const std::vector<PeerView> peers(2);
    const std::deque<EndedJob> ended;
    const KeptStates kept(budget, pair.log.log());
    const std::deque<DistinctError> errors;
    const StatusFacts facts{.config = host.config,
                            .peers = peers,
                            .counters = {},
                            .bound = "",
                            .jobs = {host.job.get()},
                            .ended_jobs = ended,
                            .kept_states = kept,
                            .errors = errors};
    return nlohmann::json::parse(status_document(facts, Host::now())).at("jobs").at(0).at("step_aside");
}
TEST(HostedJobAside, The_status_document_has_a_part_of_it_where_it_is_asked_for) {
    Pair pair("topk(0.5); bias: momentum(0.9) | topk(0.5)");
    EXPECT_TRUE(document_part(pair, 0).is_null());
    pair.first.config.step_aside = true;
    EXPECT_EQ(document_part(pair, 0), nlohmann::json::parse(R"({"tensors": 2, "eligible": 1, "aside": 0, "trying": 0,
        "text": "on: the link has not been measured yet", "coded_ms": null, "plain_ms": null, "saved_ms": null, "moves": 0,
        "refusals": [{"text": "momentum keeps sums that plain steps would not go on with", "tensors": 1}]})"));
    pair.steps(14);
    const auto part = document_part(pair, 0);
    EXPECT_GT(part.at("coded_ms").get<double>(), 0);
    EXPECT_GT(part.at("plain_ms").get<double>(), 0);
    EXPECT_TRUE(part.at("saved_ms").is_number());
    pair.first.config.nodes.resize(1);
    EXPECT_TRUE(document_part(pair, 0).is_null()) << "nothing goes to another node";
}

/// Two tensors and a choice for them, without a job around: costs are told.
class PlainChoiceTest : public ::testing::Test {
protected:
    PlainChoiceTest() {
        group_.tensors = {0, 1};
        for (const auto* text : {"topk(0.01) | f32", "all | dither(feedback=none)"}) {
            HostedTensor tensor;
            tensor.number = static_cast<exchange::TensorNumber>(tensors_.size());
            tensor.elements = 1'000'000;
            tensor.written = tensor.pipeline = codec::parse_pipeline(text).value();
            tensors_.push_back(std::move(tensor));
        }
        choice_.lay_out(tensors_);
        choice_.start(group_, tensors_);
    }
    /// Each with its milliseconds of coding, over a link of so many bytes per millisecond.
    void steps(int count, std::array<double, 2> coding_ms, double link_bytes_per_ms, bool is_asked = true,
               std::size_t members = 2) {
        for (int at = 0; at < count; ++at) {
            ++step_;
            for (auto& tensor : tensors_) {
                const bool is_plain = tensor.pipeline != tensor.written;
                tensor.coding.add(step_, is_plain ? 1 : coding_ms[tensor.number], true);
                tensor.totals.payload_bytes = is_plain ? tensor.number == 0 ? 2'000'000 : 4'000'000 : 100'000;
            }
            choice_.on_committed(group_, step_, tensors_,
                                 {.members = members, .link_ms_per_byte = 1 / link_bytes_per_ms}, is_asked);
        }
    }
    [[nodiscard]] std::string text() const { return choice_.view(tensors_, false).text; }

    GroupTotals group_;
    std::vector<HostedTensor> tensors_;
    PlainChoice choice_;
    Step step_ = 0;
};

TEST_F(PlainChoiceTest, Each_tensor_goes_by_its_own_costs) {
    EXPECT_EQ(text(), "on: the link has not been measured yet");
    steps(11, {1, 50}, 1e6);  // 2 ms and 4 ms of plain bytes
    EXPECT_EQ(tensors_[0].codec_text, "");
    EXPECT_EQ(tensors_[1].codec_text, "all | f32 | auto");
    EXPECT_THAT(text(), HasSubstr("being tried plain: 1 of 2 tensors"));
    steps(11, {1, 50}, 1e6);
    EXPECT_EQ(text(), "off for 1 of 2 tensors, sent as f32: link faster than codec");
    const auto view = choice_.view(tensors_, false);
    EXPECT_NEAR(view.coded_ms, 51.2, 0.01);
    EXPECT_NEAR(view.plain_ms, 7, 0.01) << "2 ms of the one, were it plain, and 5 of the other";
    EXPECT_NEAR(view.saved_ms, 45.1, 0.01);
    EXPECT_THAT(view.refusals, IsEmpty());
    steps(22, {30, 50}, 1e6);
    EXPECT_EQ(text(), "off: link faster than codec, 2 of 2 tensors sent as bf16 or f32");
}
TEST_F(PlainChoiceTest, Slow_links_keep_their_codecs_and_say_what_that_saves) {
    steps(100, {5, 5}, 1e4);
    EXPECT_EQ(text(), "on: codecs are faster than the link would be with plain bytes");
    const auto view = choice_.view(tensors_, false);
    EXPECT_NEAR(view.plain_ms, 600, 0.01);
    EXPECT_NEAR(view.saved_ms, 570, 0.01);
    EXPECT_EQ(view.moves, 0U);
}
TEST_F(PlainChoiceTest, What_plain_might_save_is_not_worth_a_trial_unless_it_is_enough) {
    steps(30, {2.3, 4.5}, 1e6);  // 2.4 and 4.6 ms, of which plain bytes take 2 and 4
    EXPECT_EQ(text(), "on: plain bytes would not be clearly faster");
    EXPECT_NEAR(choice_.view(tensors_, false).saved_ms, -1, 0.01);
}
TEST_F(PlainChoiceTest, Nothing_is_chosen_on_a_single_node_or_where_it_is_not_asked_for) {
    steps(100, {50, 50}, 1e6, true, 1);
    EXPECT_EQ(choice_.view(tensors_, false).moves, 0U);
    steps(100, {50, 50}, 1e6, false);
    EXPECT_EQ(tensors_[0].pipeline, tensors_[0].written);
    steps(22, {50, 50}, 1e6);
    EXPECT_NE(tensors_[0].pipeline, tensors_[0].written);
    steps(1, {50, 50}, 1e6, false);
    EXPECT_EQ(tensors_[0].pipeline, tensors_[0].written);
    EXPECT_EQ(tensors_[0].codec_text, codec::canonical_text(tensors_[0].written, codec::Knobs::kKeep));
}
TEST_F(PlainChoiceTest, Tensors_on_gpus_under_the_sharded_plan_and_without_elements_stay_as_they_are) {
    tensors_.emplace_back();
    tensors_[0].on_device = true;
    tensors_[1].down = tensors_[1].written;
    tensors_[2].elements = 0;
    choice_.lay_out(tensors_);
    const auto view = choice_.view(tensors_, false);
    EXPECT_EQ(view.eligible, 0U);
    ASSERT_EQ(view.refusals.size(), 3U);
    EXPECT_THAT(view.refusals[0].text, HasSubstr("GPU"));
    EXPECT_THAT(view.refusals[1].text, HasSubstr("sharded plan"));
    EXPECT_THAT(view.refusals[2].text, HasSubstr("no elements"));
}
TEST_F(PlainChoiceTest, No_pipeline_changes_under_a_task) {
    tensors_[1].tasks_out = 1;
    steps(30, {50, 50}, 1e6);
    EXPECT_EQ(tensors_[1].pipeline, tensors_[1].written);
    EXPECT_NE(tensors_[0].pipeline, tensors_[0].written);
    tensors_[1].tasks_out = 0;
    steps(1, {50, 50}, 1e6);
    EXPECT_NE(tensors_[1].pipeline, tensors_[1].written);
}
TEST_F(PlainChoiceTest, A_step_in_which_the_own_gradient_counted_as_zero_says_nothing) {
    for (int at = 0; at < 100; ++at) {
        ++step_;
        for (auto& tensor : tensors_) tensor.coding.add(step_, 50, false);
        choice_.on_committed(group_, step_, tensors_, {.members = 2, .link_ms_per_byte = 1e-6}, true);
    }
    EXPECT_EQ(text(), "on: the link has not been measured yet");
}
TEST(CodingTime, Adds_up_a_step_and_leaves_out_what_comes_late) {
    CodingTime time;
    time.add(3, 2, true);
    time.add(3, 1, false);
    EXPECT_EQ(time.ms, 3);
    EXPECT_TRUE(time.was_encoded(3));
    time.add(4, 5, false);
    time.add(3, 100, true);
    EXPECT_EQ(time.ms, 5);
    EXPECT_FALSE(time.was_encoded(4));
    EXPECT_FALSE(time.was_encoded(3));
}

}  // namespace
}  // namespace gradsieve::daemon::test
