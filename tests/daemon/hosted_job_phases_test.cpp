// Tensors whose steps have two phases: lowrank.
#include "tests/daemon/phases_fixture.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::daemon::test {
namespace {

constexpr auto kCodec = "lowrank(2)";
using HostedJobPhases = PhasesFixture;

/// Outer product: a matrix of rank 1.
Values product(std::size_t rows, std::size_t columns, std::mt19937& random) {
    const auto left = noise(rows, random);
    const auto right = noise(columns, random);
    Values values;
    for (const float x : left)
        for (const float y : right) values.push_back(x * y);
    return values;
}
double distance(const Values& left, const Values& right) {
    double square = 0;
    for (std::size_t at = 0; at < left.size(); ++at) square += std::pow(double{left[at]} - double{right[at]}, 2);
    return std::sqrt(square);
}

TEST_F(HostedJobPhases, Every_step_ends_with_the_same_bits_and_loses_nothing) {
    start(kCodec);
    EXPECT_EQ(tensor(0, kLarge).codec_text, "lowrank(rank=2, columns=200)");
    EXPECT_EQ(tensor(0, kSmall).codec_text, "lowrank(rank=2, columns=30)");
    EXPECT_EQ(tensor(0, kBias).codec_text, "all | bf16 | auto");
    std::mt19937 random(kSeed);
    std::vector<double> balance(kSmallElements);
    for (Step step = 1; step <= 12; ++step) {
        const std::array<std::array<Values, 3>, 2> gradients{draw(random), draw(random)};
        hand_in(step, gradients);
        wait_step(step);
        expect_same_results(step);
        const auto average = ranks[0]->client->result(kSmall);
        for (std::size_t at = 0; at < kSmallElements; ++at)
            balance[at] +=
                (double{gradients[0][kSmall][at]} + double{gradients[1][kSmall][at]}) / 2 - double{average[at]};
    }
    const auto ours = live(0, kSmall, &codec::StateView::residual, kSmallElements);
    const auto theirs = live(1, kSmall, &codec::StateView::residual, kSmallElements);
    for (std::size_t at = 0; at < kSmallElements; ++at)
        ASSERT_NEAR((double{ours[at]} + double{theirs[at]}) / 2, balance[at], 1e-4) << at;
    EXPECT_TRUE(
        same_bits(live(0, kSmall, &codec::StateView::factor, 60), live(1, kSmall, &codec::StateView::factor, 60)));
    const auto& totals = tensor(0, kSmall).totals;
    EXPECT_EQ(totals.kept_elements, 2 * (40U + 30U));
    EXPECT_EQ(totals.payload_bytes, 2 * 2 + 4 * 2 * (40U + 30U));
    EXPECT_EQ(totals.payload_bytes_all, 12 * totals.payload_bytes);
    EXPECT_EQ(totals.steps, 12U);
}
TEST_F(HostedJobPhases, Matrices_of_low_rank_come_back_whole) {
    start(kCodec);
    std::mt19937 random(kSeed);
    for (Step step = 1; step <= 3; ++step) {
        const Values large = product(300, 200, random);
        const Values small = product(40, 30, random);
        hand_in(step, {{{large, small, {1, 2, 3, 4, 5}}, {large, small, {1, 2, 3, 4, 5}}}});
        wait_step(step);
        expect_same_results(step);
        EXPECT_LT(distance(ranks[0]->client->result(kLarge), large), 1e-4 * distance(large, Values(large.size())));
        EXPECT_LT(distance(ranks[1]->client->result(kSmall), small), 1e-4 * distance(small, Values(small.size())));
    }
}
TEST_F(HostedJobPhases, Step_that_fails_between_them_leaves_the_state_as_it_was) {
    start(kCodec);
    std::mt19937 random(kSeed);
    hand_in(1, {draw(random), draw(random)});
    wait_step(1);
    const auto residual = live(0, kSmall, &codec::StateView::residual, kSmallElements);
    const auto factor = live(0, kSmall, &codec::StateView::factor, 60);
    // Both matrices pass the first phase and code the second, and then there is a step without numbers.
    for (auto* rank : ranks) {
        rank->client->submit(kLarge, 2, noise(kLargeElements, random));
        rank->client->submit(kSmall, 2, noise(kSmallElements, random));
    }
    for (auto* rank : ranks) ASSERT_TRUE(wait_for(hosts, *rank, CompletionKind::kTensor, 2));
    ranks[0]->client->submit(kBias, 2, Values(kBiasElements, 1.0F));
    ranks[1]->client->submit(kBias, 2, Values(kBiasElements, kNotANumber));
    wait_step(2, "NaN or infinity from rank 1");
    EXPECT_TRUE(same_bits(live(0, kSmall, &codec::StateView::residual, kSmallElements), residual));
    EXPECT_TRUE(same_bits(live(0, kSmall, &codec::StateView::factor, 60), factor));
    for (Step step = 3; step <= 5; ++step) {
        hand_in(step, {draw(random), draw(random)});
        wait_step(step);
        expect_same_results(step);
    }
}
TEST_F(HostedJobPhases, Step_that_fails_while_a_second_payload_is_awaited_is_done_with) {
    start(kCodec);
    std::mt19937 random(kSeed);
    network.hold(1, 0, true);
    for (auto* rank : ranks) rank->client->submit(kSmall, 1, noise(kSmallElements, random));
    ASSERT_TRUE(wait_until([&] {  // b has coded both of its payloads of the tensor; a waits for the first
        for (auto* host : hosts) host->turn();
        return tensor(1, kSmall).totals.steps == 1;
    }));
    network.hold(0, 1, true);
    network.hold(1, 0, false);
    ASSERT_TRUE(wait_until([&] {  // a as well, and its second payload does not arrive at b
        for (auto* host : hosts) host->turn();
        return tensor(0, kSmall).totals.steps == 1;
    }));
    ranks[1]->client->submit(kBias, 1, Values(kBiasElements, kNotANumber));
    ASSERT_TRUE(wait_for(hosts, *ranks[1], CompletionKind::kStepDone, 1));
    network.hold(0, 1, false);
    wait_step(1, "NaN or infinity from rank 1");
    for (Step step = 2; step <= 4; ++step) {
        hand_in(step, {draw(random), draw(random)});
        wait_step(step);
        expect_same_results(step);
    }
}
TEST_F(HostedJobPhases, Node_without_numbers_counts_as_zeros_where_the_policy_says_so) {
    start(kCodec, shm::NonFinitePolicy::kZero);
    std::mt19937 random(kSeed);
    const Values small = product(40, 30, random);
    Values bad = small;
    bad[7] = kNotANumber;
    hand_in(1, {{{noise(kLargeElements, random), bad, Values(kBiasElements)},
                 {noise(kLargeElements, random), small, Values(kBiasElements)}}});
    wait_step(1);
    expect_same_results(1);
    Values half = small;
    for (auto& value : half) value *= 0.5F;
    EXPECT_LT(distance(ranks[0]->client->result(kSmall), half), 1e-4 * distance(half, Values(half.size())));
    bad.assign(kSmallElements, kNotANumber);
    hand_in(2, {{{noise(kLargeElements, random), bad, Values(kBiasElements)},
                 {noise(kLargeElements, random), bad, Values(kBiasElements)}}});
    wait_step(2);
    EXPECT_EQ(ranks[1]->client->result(kSmall), Values(kSmallElements)) << "nobody has anything";
    for (Step step = 3; step <= 5; ++step) {
        hand_in(step, {draw(random), draw(random)});
        wait_step(step);
        expect_same_results(step);
    }
}
TEST_F(HostedJobPhases, Skipped_step_gives_no_numbers_to_all) {
    start(kCodec, shm::NonFinitePolicy::kSkipStep);
    std::mt19937 random(kSeed);
    auto gradients = std::array{draw(random), draw(random)};
    gradients[1][kLarge][4] = kNotANumber;
    hand_in(1, gradients);
    wait_step(1, "NaN or infinity from rank 1");
    for (auto* rank : ranks) {
        const auto result = rank->client->result(kLarge);
        EXPECT_TRUE(std::ranges::all_of(result, [](float value) { return std::isnan(value); }));
    }
    hand_in(2, {draw(random), draw(random)});
    wait_step(2);
    expect_same_results(2);
}
TEST_F(HostedJobPhases, Steps_that_only_add_up_have_both_phases_and_no_payload) {
    start("accumulate(2) | lowrank(2)");
    std::mt19937 random(kSeed);
    const Values small = product(40, 30, random);
    for (Step step = 1; step <= 4; ++step) {
        hand_in(step, {{{Values(kLargeElements), small, Values(kBiasElements)},
                        {Values(kLargeElements), small, Values(kBiasElements)}}});
        wait_step(step);
        Values expected(kSmallElements);
        for (std::size_t at = 0; at < kSmallElements; ++at) expected[at] = step % 2 == 0 ? 2 * small[at] : 0.0F;
        EXPECT_LT(distance(ranks[0]->client->result(kSmall), expected), 1e-3) << step;
    }
}
TEST_F(HostedJobPhases, Both_phases_are_in_a_trace) {
    start(kCodec);
    std::mt19937 random(kSeed);
    first.job->on_trace_request(42, {.number = 9, .steps = 2, .timeout_ms = 60'000}, Host::now());
    for (Step step = 1; step <= 3; ++step) {
        hand_in(step, {draw(random), draw(random)});
        wait_step(step);
    }
    ASSERT_TRUE(wait_until([&] {
        for (auto* host : hosts) host->turn();
        return !first.traces.empty();
    }));
    const auto& reply = first.traces.front().second;
    EXPECT_EQ(reply.steps_ended, 2U);
    EXPECT_EQ(reply.events_lost, 0U);
    const auto count = [&](shm::TraceEventKind kind, std::uint32_t index) {
        return std::ranges::count_if(reply.events, [&](const auto& event) {
            return event.kind == kind && event.tensor == index && event.step == 1;
        });
    };
    for (const auto kind : {shm::TraceEventKind::kEncodeAsked, shm::TraceEventKind::kEncoded,
                            shm::TraceEventKind::kDecodeAsked, shm::TraceEventKind::kDecoded}) {
        EXPECT_EQ(count(kind, kLarge), 2) << static_cast<int>(kind);
        EXPECT_EQ(count(kind, kBias), 1) << static_cast<int>(kind);
    }
    EXPECT_EQ(count(shm::TraceEventKind::kFirstRecord, kLarge), 1);
    EXPECT_EQ(count(shm::TraceEventKind::kLastRecord, kLarge), 1);
}
TEST(HostedJobPhasesAlone, Factors_count_against_the_budget_until_the_job_ends) {
    Host host;
    Host plain;
    auto& rank = host.attach(request_of(0, 1, "all | f32; large: lowrank(3)"));
    plain.attach(request_of(0, 1, "all | f32; large: all | bf16"));
    const auto pipeline = *codec::parse_pipeline("lowrank(3, 200)");
    const auto state_difference = host.job->memory_bytes() - plain.job->memory_bytes();
    EXPECT_GE(state_difference, codec::phase_bytes(pipeline, kLargeElements) + 2 * 4 * 600);
    host.turn();
    ASSERT_TRUE(rank.client->has(CompletionKind::kStarted, 1));
    rank.client->submit(kLarge, 1, Values(kLargeElements, 0.5F));
    rank.client->submit(kSmall, 1, Values(kSmallElements, 0.5F));
    rank.client->submit(kBias, 1, Values(kBiasElements, 0.5F));
    ASSERT_TRUE(wait_for({&host}, rank, CompletionKind::kStepDone, 1));
    for (const float value : rank.client->result(kLarge)) ASSERT_NEAR(value, 0.5F, 1e-5);
    host.job->release_memory();
    plain.job->release_memory();
    EXPECT_EQ(host.budget.used_bytes, plain.budget.used_bytes);
}
TEST(HostedJobPhasesAlone, Factor_of_a_tensor_on_a_device_lies_on_the_host) {
    Host host;
    host.attach(make_request(0, 1, {{.name = "w", .shape = {100, 120}, .on_device = true}}, "lowrank(2)"));
    const auto& kept = host.job->state()->table().tensors[0];
    ASSERT_EQ(kept.arrays.size(), 2U);
    EXPECT_EQ(kept.arrays[0].name, "residual");
    EXPECT_EQ(kept.arrays[0].part, shm::kDevicesPart);
    EXPECT_EQ(kept.arrays[1].name, "factor");
    EXPECT_EQ(kept.arrays[1].part, shm::kHostPart);
    EXPECT_EQ(kept.arrays[1].bytes, 4U * 2 * 120);
    for (const auto& generation : host.job->tensors()[0].generations) {
        EXPECT_NE(generation.arrays.factor, nullptr);
        EXPECT_EQ(generation.arrays.residual, nullptr) << "until a rank binds memory";
    }
}

}  // namespace
}  // namespace gradsieve::daemon::test
