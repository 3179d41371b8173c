// Tensors that are selected from together: topk(scope=model).
#include "codec/narrow_scope.hpp"
#include "daemon/hosted_job.hpp"

#include "tests/daemon/job_host.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace gradsieve::daemon::test {
namespace {

using shm::CompletionKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Values = std::vector<float>;

constexpr std::uint32_t kSeed = 9;
/// k = 6 of the 60 elements of m.a and m.b; every other tensor exact.
constexpr auto kCodec = "all | f32; m.*: topk(0.1, scope=model) | f32";
constexpr std::uint32_t kA = 0, kB = 1, kExact = 2;
constexpr std::size_t kElementsA = 40, kElementsB = 20;
const float kNotANumber = std::numeric_limits<float>::quiet_NaN();

shm::AttachRequest request_of(Rank rank = 0, std::uint32_t world_size = 1, const std::string& codec = kCodec) {
    return make_request(rank, world_size,
                        {{.name = "m.a", .shape = {kElementsA}},
                         {.name = "m.b", .shape = {kElementsB}},
                         {.name = "exact", .shape = {3}}},
                        codec);
}
std::size_t count_sent(const Values& values) {
    return static_cast<std::size_t>(
        std::count_if(values.begin(), values.end(), [](float value) { return value != 0; }));
}

/// What both tensors hand back, by a sort; the residuals go on from call to call.
class SortedScope {
public:
    SortedScope(std::size_t first, std::size_t second, std::size_t k)
        : residual_(first + second), first_(first), k_(k) {}
    void accumulate(const Values& first, const Values& second) {
        for (std::size_t place = 0; place < residual_.size(); ++place)
            residual_[place] += place < first_ ? first[place] : second[place - first_];
    }
    std::pair<Values, Values> step(const Values& first, const Values& second) {
        accumulate(first, second);
        std::vector<std::size_t> order(residual_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::ranges::stable_sort(order, std::greater<>(), [&](auto place) { return std::fabs(residual_[place]); });
        Values sent(residual_.size());
        for (std::size_t number = 0; number < k_; ++number)
            sent[order[number]] = std::exchange(residual_[order[number]], 0.0F);
        const auto middle = sent.begin() + static_cast<std::ptrdiff_t>(first_);
        return {{sent.begin(), middle}, {middle, sent.end()}};
    }

private:
    Values residual_;
    std::size_t first_, k_;
};

class HostedJobScope : public ::testing::Test {
protected:
    MemoryRank& start(const shm::AttachRequest& request) {
        auto& rank = host.attach(request);
        host.turn();
        EXPECT_TRUE(rank.client->has(CompletionKind::kStarted, 1));
        return rank;
    }
    void hand_in(MemoryRank& rank, Step step, const Values& a, const Values& b) {
        rank.client->submit(kA, step, a);
        rank.client->submit(kB, step, b);
        rank.client->submit(kExact, step, {1, 2, 3});
        host.turn();
    }
    void expect_step(MemoryRank& rank, Step step, std::mt19937& random) {
        const auto a = noise(kElementsA, random);
        const auto b = noise(kElementsB, random);
        const auto expected = sorted.step(a, b);
        hand_in(rank, step, a, b);
        ASSERT_EQ(text_of(rank.client->last(CompletionKind::kStepDone)), "ok: ");
        ASSERT_TRUE(rank.client->has(CompletionKind::kStepDone, step));
        EXPECT_EQ(rank.client->result(kA), expected.first) << "step " << step << " seed " << kSeed;
        EXPECT_EQ(rank.client->result(kB), expected.second) << "step " << step << " seed " << kSeed;
        EXPECT_EQ(rank.client->result(kExact), (Values{1, 2, 3}));
    }
    MemoryRank& start_of_two() {
        auto& first = host.attach(request_of(0, 2));
        host.attach(request_of(1, 2));
        host.turn();
        EXPECT_TRUE(first.client->has(CompletionKind::kStarted, 1));
        return first;
    }
    /// Whether the rank has the tensor's average of that step.
    static bool has_average(MemoryRank& rank, std::uint32_t index, Step step) {
        return std::ranges::any_of(rank.client->completions(), [&](const shm::Completion& completion) {
            return completion.kind == CompletionKind::kTensor && completion.index == index && completion.step == step;
        });
    }

    Host host;
    SortedScope sorted{kElementsA, kElementsB, 6};
};

TEST_F(HostedJobScope, Nothing_of_a_scope_comes_back_before_its_last_tensor_and_others_do) {
    auto& rank = start(request_of());
    std::mt19937 random(kSeed);
    const auto a = noise(kElementsA, random);
    const auto b = noise(kElementsB, random);
    rank.client->submit(kA, 1, a);
    rank.client->submit(kExact, 1, {1, 2, 3});
    host.turn();
    EXPECT_TRUE(has_average(rank, kExact, 1));
    EXPECT_FALSE(has_average(rank, kA, 1));
    rank.client->submit(kB, 1, b);
    host.turn();
    EXPECT_TRUE(has_average(rank, kA, 1));
    EXPECT_TRUE(has_average(rank, kB, 1));
    const auto expected = sorted.step(a, b);
    EXPECT_EQ(rank.client->result(kA), expected.first);
    EXPECT_EQ(rank.client->result(kB), expected.second);
    EXPECT_EQ(host.job->tensors()[1].totals.kept_elements + host.job->tensors()[2].totals.kept_elements, 6U);
}
TEST_F(HostedJobScope, Steps_go_on_from_residuals) {
    auto& rank = start(request_of());
    std::mt19937 random(kSeed);
    for (Step step = 1; step <= 20; ++step) expect_step(rank, step, random);
    EXPECT_EQ(host.job->groups()[0].committed, 20U);
}
TEST_F(HostedJobScope, Steps_that_only_accumulate_need_no_other_tensor) {
    auto& rank = start(request_of(0, 1, "all | f32; m.*: accumulate(2) | topk(0.1, scope=model) | f32"));
    std::mt19937 random(kSeed);
    for (Step step = 1; step <= 4; step += 2) {
        const Values a = noise(kElementsA, random);
        const Values b = noise(kElementsB, random);
        rank.client->submit(kA, step, a);
        host.turn();
        EXPECT_TRUE(rank.client->has(CompletionKind::kTensor, step));
        rank.client->submit(kB, step, b);
        rank.client->submit(kExact, step, {1, 2, 3});
        host.turn();
        ASSERT_TRUE(rank.client->has(CompletionKind::kStepDone, step));
        EXPECT_EQ(count_sent(rank.client->result(kA)) + count_sent(rank.client->result(kB)), 0U) << step;
        const Values next_a = noise(kElementsA, random);
        const Values next_b = noise(kElementsB, random);
        hand_in(rank, step + 1, next_a, next_b);
        ASSERT_TRUE(rank.client->has(CompletionKind::kStepDone, step + 1));
        sorted.accumulate(a, b);
        const auto expected = sorted.step(next_a, next_b);
        EXPECT_EQ(rank.client->result(kA), expected.first) << step << " seed " << kSeed;
        EXPECT_EQ(rank.client->result(kB), expected.second) << step << " seed " << kSeed;
    }
}
TEST_F(HostedJobScope, Warm_up_sends_its_ratio_of_all_tensors) {
    auto& rank = start(request_of(0, 1, "all | f32; m.*: warmup(4, from=0.5) | topk(0.05, scope=model) | f32"));
    std::mt19937 random(kSeed);
    for (Step step = 1; step <= 6; ++step) {
        hand_in(rank, step, noise(kElementsA, random), noise(kElementsB, random));
        ASSERT_TRUE(rank.client->has(CompletionKind::kStepDone, step));
        const double ratio = step <= 2 ? 0.5 : step <= 4 ? 0.125 : 0.05;
        EXPECT_EQ(count_sent(rank.client->result(kA)) + count_sent(rank.client->result(kB)),
                  static_cast<std::size_t>(ratio * (kElementsA + kElementsB)))
            << step << " seed " << kSeed;
    }
}
TEST_F(HostedJobScope, Ties_go_by_name_whatever_came_first) {
    auto& rank = start(request_of());
    rank.client->submit(kB, 1, Values(kElementsB, 1.0F));
    host.turn();
    rank.client->submit(kA, 1, Values(kElementsA, -1.0F));
    rank.client->submit(kExact, 1, {1, 2, 3});
    host.turn();
    Values expected(kElementsA);
    std::fill_n(expected.begin(), 6, -1.0F);
    EXPECT_EQ(rank.client->result(kA), expected);
    EXPECT_EQ(rank.client->result(kB), Values(kElementsB));
}
TEST_F(HostedJobScope, Groups_and_pipelines_have_scopes_of_their_own_and_measuring_makes_none) {
    auto tensors = request_of().tensors;
    tensors.push_back({.name = "m.c", .group = "other", .shape = {50}});
    tensors.push_back({.name = "n", .shape = {100}});
    auto& rank = start(make_request(0, 1, tensors,
                                    "all | f32; m.a: similarity | topk(0.1, scope=model) | f32; "
                                    "n: topk(0.02, scope=model) | f32; m.*: topk(0.1, scope=model) | f32"));
    std::mt19937 random(kSeed);
    rank.client->submit(3, 1, noise(50, random));
    rank.client->submit(4, 1, noise(100, random));
    host.turn();
    EXPECT_TRUE(has_average(rank, 3, 1));
    EXPECT_EQ(count_sent(rank.client->result(3)), 5U);
    EXPECT_TRUE(has_average(rank, 4, 1));
    EXPECT_EQ(count_sent(rank.client->result(4)), 2U);
    auto a = noise(kElementsA, random);
    for (auto& value : a) value += 100;
    hand_in(rank, 1, a, noise(kElementsB, random));
    EXPECT_EQ(count_sent(rank.client->result(kA)), 6U);
    EXPECT_EQ(count_sent(rank.client->result(kB)), 0U);
}
TEST_F(HostedJobScope, Large_tensors_go_through_codec_threads) {
    constexpr std::size_t kFirst = 200'000, kSecond = 90'000;
    auto& rank = start(make_request(0, 1, {{.name = "m.a", .shape = {kFirst}}, {.name = "m.b", .shape = {kSecond}}},
                                    "topk(0.01, scope=model) | f32"));
    SortedScope large(kFirst, kSecond, 2900);
    std::mt19937 random(kSeed);
    for (Step step = 1; step <= 4; ++step) {
        auto a = noise(kFirst, random);
        auto b = noise(kSecond, random);
        for (auto& value : b) value *= step == 3 ? 1e-3F : 2.0F;
        for (auto& value : a) value *= step == 3 ? 1e-3F : 1.0F;
        rank.client->submit(kB, step, b);
        rank.client->submit(kA, step, a);
        ASSERT_TRUE(wait_for({&host}, rank, CompletionKind::kStepDone, step));
        const auto expected = large.step(a, b);
        EXPECT_TRUE(rank.client->result(kA) == expected.first) << "step " << step;
        EXPECT_TRUE(rank.client->result(kB) == expected.second) << "step " << step;
    }
}
TEST_F(HostedJobScope, Step_that_fails_leaves_every_members_state_as_it_was) {
    auto& rank = start(request_of());
    std::mt19937 random(kSeed);
    Step step = 1;
    expect_step(rank, step++, random);
    for (const auto bad : {kA, kB, kExact}) {
        std::array<Values, 3> values = {noise(kElementsA, random), noise(kElementsB, random), {1, 2, 3}};
        values[bad][1] = kNotANumber;
        for (const auto index : {kB, kExact, kA}) rank.client->submit(index, step, values[index]);
        host.turn();
        const auto* said = rank.client->last(CompletionKind::kStepDone);
        ASSERT_TRUE(said != nullptr && said->step == step);
        EXPECT_THAT(text_of(said), HasSubstr("NaN or infinity from rank 0 at element 1"));
        ++step;
        expect_step(rank, step++, random);
    }
}
/// What the step after a failed one meets while a codec thread still works on a member for the failed one.
class HostedJobDraining : public HostedJobScope, public ::testing::WithParamInterface<bool> {
protected:
    static constexpr std::size_t kFirst = 100'000, kSecond = 90'000;
    static shm::AttachRequest large_request() {
        return make_request(
            0, 1,
            {{.name = "m.a", .shape = {kFirst}}, {.name = "m.b", .shape = {kSecond}}, {.name = "exact", .shape = {3}}},
            kCodec);
    }
    SortedScope large{kFirst, kSecond, 19'000};
};

TEST_P(HostedJobDraining, Members_of_the_next_step_wait_for_it) {
    const bool fails_as_well = GetParam();
    auto& rank = start(large_request());
    std::mt19937 random(kSeed);
    host.takes_from_pool = false;
    rank.client->submit(kA, 1, noise(kFirst, random));
    rank.client->submit(kExact, 1, {kNotANumber, 0, 0});
    host.turn();
    ASSERT_TRUE(rank.client->has(CompletionKind::kStepDone, 1)) << "it has failed, and m.a is still out";
    Step step = 2;
    auto b = noise(kSecond, random);
    rank.client->submit(kB, step, b);
    host.turn();
    if (fails_as_well) {
        rank.client->submit(kExact, step, {kNotANumber, 0, 0});
        host.turn();
        ASSERT_TRUE(rank.client->has(CompletionKind::kStepDone, step));
        b = noise(kSecond, random);
        rank.client->submit(kB, ++step, b);
    }
    host.takes_from_pool = true;
    const auto a = noise(kFirst, random);
    rank.client->submit(kExact, step, {1, 2, 3});
    ASSERT_TRUE(wait_until([&] {
        host.turn();
        return has_average(rank, kExact, step) && host.job->tensors()[1].tasks_out == 0 &&
               host.job->tensors()[2].tasks_out == 0;
    }));
    rank.client->submit(kA, step, a);
    ASSERT_TRUE(wait_for({&host}, rank, CompletionKind::kStepDone, step));
    EXPECT_EQ(text_of(rank.client->last(CompletionKind::kStepDone)), "ok: ");
    const auto expected = large.step(a, b);
    EXPECT_TRUE(rank.client->result(kA) == expected.first);
    EXPECT_TRUE(rank.client->result(kB) == expected.second);
}
INSTANTIATE_TEST_SUITE_P(OneOrTwoFailures, HostedJobDraining, ::testing::Bool());

TEST_F(HostedJobScope, Member_without_numbers_counts_as_zeros_and_the_others_share_out_its_share) {
    auto request = request_of();
    request.non_finite = shm::NonFinitePolicy::kZero;
    auto& rank = start(request);
    std::mt19937 random(kSeed);
    auto a = noise(kElementsA, random);
    a[3] = kNotANumber;
    hand_in(rank, 1, a, noise(kElementsB, random));
    ASSERT_EQ(text_of(rank.client->last(CompletionKind::kStepDone)), "ok: ");
    EXPECT_EQ(rank.client->result(kA), Values(kElementsA));
    EXPECT_EQ(count_sent(rank.client->result(kB)), 6U);
    hand_in(rank, 2, noise(kElementsA, random), noise(kElementsB, random));
    EXPECT_EQ(count_sent(rank.client->result(kA)) + count_sent(rank.client->result(kB)), 6U);
}
TEST_F(HostedJobScope, Scales_that_differ_fail_the_step_and_not_the_next_one) {
    auto& first = start_of_two();
    auto& second = *host.ranks[1];
    std::mt19937 random(kSeed);
    const auto a = noise(kElementsA, random);
    const auto b = noise(kElementsB, random);
    for (Step step = 1; step <= 2; ++step) {
        for (auto* rank : {&first, &second}) {
            rank->client->submit(kB, step, b);
            rank->client->fill(kA, a);
            rank->client->push({.kind = shm::SubmissionKind::kAverage,
                                .tensor_index = kA,
                                .step = step,
                                .scale = step == 1 && rank == &second ? 2.0 : 1.0});
            rank->client->submit(kExact, step, {1, 2, 3});
        }
        host.turn();
        ASSERT_TRUE(first.client->has(CompletionKind::kStepDone, step));
        const auto text = text_of(first.client->last(CompletionKind::kStepDone));
        EXPECT_THAT(text, step == 1 ? HasSubstr("hand in one scale on all ranks") : HasSubstr("ok: "));
    }
    const auto expected = sorted.step(a, b);
    EXPECT_EQ(second.client->result(kA), expected.first);
    EXPECT_EQ(second.client->result(kB), expected.second);
}
TEST_F(HostedJobScope, Rank_that_waits_tensor_by_tensor_is_told_so) {
    auto& rank = start(request_of());
    std::mt19937 random(kSeed);
    expect_step(rank, 1, random);
    const auto handed_in = Host::now();
    rank.client->submit(kA, 2, noise(kElementsA, random));
    host.turn();
    host.job->on_time(handed_in + host.config.round_deadline - std::chrono::seconds(1));
    host.turn();
    EXPECT_FALSE(rank.client->has(CompletionKind::kStepDone, 2));
    host.job->on_time(Host::now() + host.config.round_deadline);
    host.turn();
    ASSERT_TRUE(rank.client->has(CompletionKind::kStepDone, 2));
    EXPECT_THAT(text_of(rank.client->last(CompletionKind::kStepDone)),
                AllOf(HasSubstr("step-failed: "), HasSubstr("rank 0 handed in 1 of the 2 tensors"),
                      HasSubstr("'m.b' not within round_deadline_s (60 s)"), HasSubstr("or use scope=tensor")));
    expect_step(rank, 3, random);
}
TEST_F(HostedJobScope, Rank_that_is_late_with_all_of_a_scope_is_waited_for) {
    auto& first = start_of_two();
    auto& second = *host.ranks[1];
    std::mt19937 random(kSeed);
    const auto a = noise(kElementsA, random);
    const auto b = noise(kElementsB, random);
    hand_in(first, 1, a, b);
    second.client->submit(kExact, 1, {1, 2, 3});
    host.turn();
    host.job->on_time(Host::now() + 10 * host.config.round_deadline);
    host.turn();
    EXPECT_FALSE(first.client->has(CompletionKind::kStepDone, 1));
    hand_in(second, 1, a, b);
    EXPECT_EQ(text_of(first.client->last(CompletionKind::kStepDone)), "ok: ");
    EXPECT_EQ(first.client->result(kA), sorted.step(a, b).first);
}
TEST_F(HostedJobScope, Candidates_count_against_the_budget_until_the_job_ends) {
    start(request_of());
    Host plain;
    plain.attach(request_of(0, 1, "all | f32; m.*: topk(0.1) | f32"));
    EXPECT_EQ(host.budget.used_bytes - plain.budget.used_bytes,
              codec::scope_bytes(*codec::parse_pipeline("topk(0.1, scope=model) | f32"), 2, 60));
    host.job->release_memory();
    plain.job->release_memory();
    EXPECT_EQ(host.budget.used_bytes, plain.budget.used_bytes);
}
TEST_F(HostedJobScope, Tensors_on_devices_and_in_host_memory_are_no_scope_and_those_on_devices_list_nothing) {
    auto request = request_of();
    request.tensors[kA].on_device = true;
    const auto mixed = HostedJob::make(request, host.surroundings(), Host::now());
    EXPECT_EQ(mixed.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(mixed.status().text(), AllOf(HasSubstr("tensor 'm.b': is in host memory"), HasSubstr("use scope=")));
    EXPECT_EQ(host.budget.used_bytes, 0U);
    request.tensors[kB].on_device = true;
    Host plain;
    const auto job = HostedJob::make(request, host.surroundings(), Host::now());
    request.codec = "all | f32; m.*: topk(0.1) | f32";
    const auto without = HostedJob::make(request, plain.surroundings(), Host::now());
    ASSERT_TRUE(job.is_ok() && without.is_ok());
    EXPECT_EQ(host.budget.used_bytes - plain.budget.used_bytes, codec::narrow_scope_bytes(2));
}

}  // namespace
}  // namespace gradsieve::daemon::test
