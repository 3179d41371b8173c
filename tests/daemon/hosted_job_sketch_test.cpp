// Tensors whose steps have two phases: sketch.
#include "tests/daemon/phases_fixture.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::daemon::test {
namespace {

constexpr auto kCodec = "sketch(0.02, 3)";
constexpr std::size_t kSmallKept = 24, kSmallNumbers = 3 * 64 + kSmallKept;
using HostedJobSketch = PhasesFixture;

/// Two elements that are not zero: of more, 64 cells a row do not tell all.
Values spikes(std::size_t elements, std::mt19937& random) {
    Values values(elements);
    for (int at = 0; at < 2; ++at) values[random() % elements] = noise(1, random)[0];
    return values;
}

TEST_F(HostedJobSketch, Every_step_ends_with_the_same_bits_and_loses_nothing) {
    start(kCodec);
    EXPECT_EQ(tensor(0, kLarge).codec_text, "sketch(ratio=0.02, rows=3, columns=auto)");
    EXPECT_EQ(tensor(0, kSmall).codec_text, "sketch(ratio=0.02, rows=3, columns=auto)");
    EXPECT_EQ(tensor(0, kBias).codec_text, "all | bf16 | auto");
    std::mt19937 random(kSeed);
    std::vector<double> balance(kSmallElements);
    for (Step step = 1; step <= 12; ++step) {
        const std::array<std::array<Values, 3>, 2> gradients{draw(random), draw(random)};
        hand_in(step, gradients);
        wait_step(step);
        expect_same_results(step);
        const auto average = ranks[0]->client->result(kSmall);
        EXPECT_EQ(std::ranges::count_if(average, [](float value) { return value != 0; }), kSmallKept);
        for (std::size_t at = 0; at < kSmallElements; ++at)
            balance[at] +=
                (double{gradients[0][kSmall][at]} + double{gradients[1][kSmall][at]}) / 2 - double{average[at]};
    }
    const auto ours = live(0, kSmall, &codec::StateView::residual, kSmallElements);
    const auto theirs = live(1, kSmall, &codec::StateView::residual, kSmallElements);
    for (std::size_t at = 0; at < kSmallElements; ++at)
        ASSERT_NEAR((double{ours[at]} + double{theirs[at]}) / 2, balance[at], 1e-5) << at;
    const auto& totals = tensor(0, kSmall).totals;
    EXPECT_EQ(totals.kept_elements, kSmallNumbers);
    EXPECT_EQ(totals.payload_bytes, 2 * 2 + 4 * kSmallNumbers);
    EXPECT_EQ(totals.payload_bytes_all, 12 * totals.payload_bytes);
    EXPECT_EQ(totals.steps, 12U);
}
TEST_F(HostedJobSketch, Few_elements_come_back_whole) {
    start(kCodec);
    std::mt19937 random(kSeed);
    for (Step step = 1; step <= 3; ++step) {
        const Values large = spikes(kLargeElements, random);
        const Values small = spikes(kSmallElements, random);
        hand_in(step, {{{large, small, {1, 2, 3, 4, 5}}, {large, small, {1, 2, 3, 4, 5}}}});
        wait_step(step);
        EXPECT_TRUE(same_bits(ranks[0]->client->result(kLarge), large)) << "seed " << kSeed;
        EXPECT_TRUE(same_bits(ranks[1]->client->result(kSmall), small)) << "seed " << kSeed;
    }
}
TEST_F(HostedJobSketch, Step_that_fails_between_them_leaves_the_state_as_it_was) {
    start(kCodec);
    std::mt19937 random(kSeed);
    hand_in(1, {draw(random), draw(random)});
    wait_step(1);
    const auto residual = live(0, kSmall, &codec::StateView::residual, kSmallElements);
    for (auto* rank : ranks) {
        rank->client->submit(kLarge, 2, noise(kLargeElements, random));
        rank->client->submit(kSmall, 2, noise(kSmallElements, random));
    }
    for (auto* rank : ranks) ASSERT_TRUE(wait_for(hosts, *rank, CompletionKind::kTensor, 2));
    ranks[0]->client->submit(kBias, 2, Values(kBiasElements, 1.0F));
    ranks[1]->client->submit(kBias, 2, Values(kBiasElements, kNotANumber));
    wait_step(2, "NaN or infinity from rank 1");
    EXPECT_TRUE(same_bits(live(0, kSmall, &codec::StateView::residual, kSmallElements), residual));
    for (Step step = 3; step <= 5; ++step) {
        hand_in(step, {draw(random), draw(random)});
        wait_step(step);
        expect_same_results(step);
    }
}
TEST_F(HostedJobSketch, Node_without_numbers_counts_as_zeros_where_the_policy_says_so) {
    start(kCodec, shm::NonFinitePolicy::kZero);
    std::mt19937 random(kSeed);
    const Values small = spikes(kSmallElements, random);
    Values bad = small;
    bad[7] = kNotANumber;
    hand_in(1, {{{noise(kLargeElements, random), bad, Values(kBiasElements)},
                 {noise(kLargeElements, random), small, Values(kBiasElements)}}});
    wait_step(1);
    expect_same_results(1);
    Values half = small;
    for (auto& value : half) value *= 0.5F;
    EXPECT_EQ(ranks[0]->client->result(kSmall), half);
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
TEST_F(HostedJobSketch, Skipped_step_gives_no_numbers_to_all) {
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
TEST_F(HostedJobSketch, Steps_that_only_add_up_have_both_phases_and_no_payload) {
    start("accumulate(2) | sketch(0.02, 3)");
    std::mt19937 random(kSeed);
    const Values small = spikes(kSmallElements, random);
    for (Step step = 1; step <= 4; ++step) {
        hand_in(step, {{{Values(kLargeElements), small, Values(kBiasElements)},
                        {Values(kLargeElements), small, Values(kBiasElements)}}});
        wait_step(step);
        Values expected(kSmallElements);
        for (std::size_t at = 0; at < kSmallElements; ++at) expected[at] = step % 2 == 0 ? 2 * small[at] : 0.0F;
        EXPECT_EQ(ranks[0]->client->result(kSmall), expected) << step;
    }
}
TEST(HostedJobSketchAlone, Sketches_count_against_the_budget_until_the_job_ends) {
    Host host;
    Host plain;
    auto& rank = host.attach(request_of(0, 1, "all | f32; large: sketch(0.02)"));
    plain.attach(request_of(0, 1, "all | f32; large: all | bf16"));
    const auto pipeline = *codec::parse_pipeline("sketch(0.02)");
    EXPECT_GE(host.job->memory_bytes() - plain.job->memory_bytes(), codec::phase_bytes(pipeline, kLargeElements));
    host.turn();
    ASSERT_TRUE(rank.client->has(CompletionKind::kStarted, 1));
    rank.client->submit(kLarge, 1, Values(kLargeElements, 0.5F));
    rank.client->submit(kSmall, 1, Values(kSmallElements, 0.5F));
    rank.client->submit(kBias, 1, Values(kBiasElements, 0.5F));
    ASSERT_TRUE(wait_for({&host}, rank, CompletionKind::kStepDone, 1));
    const auto result = rank.client->result(kLarge);
    EXPECT_EQ(std::ranges::count(result, 0.5F), 1200);
    host.job->release_memory();
    plain.job->release_memory();
    EXPECT_EQ(host.budget.used_bytes, plain.budget.used_bytes);
}

}  // namespace
}  // namespace gradsieve::daemon::test
