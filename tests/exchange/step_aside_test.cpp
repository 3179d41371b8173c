// The decision against codecs and links that are told by a formula: where it comes to rest, how soon, and that it stays
// there.
#include "exchange/step_aside.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace gradsieve::exchange {
namespace {

constexpr std::uint32_t kSeed = 20261130;
constexpr double kPlainBytes = 2e6;
/// From the first step until plain is decided on: a window of either form, with what settles before it.
constexpr std::size_t kSteps = 2 * std::size_t{kAsideSettling + kAsideWindow};

/// A link and a codec. The link takes `latency_ms` a payload besides, which its meter cannot tell from slowness.
struct Plant {
    double coded_ms = 40, coded_bytes = 4e5;
    double plain_ms = 4;
    double ms_per_byte = 1e-6;  ///< 1 GB/s
    double latency_ms = 0;
    double best_ms_per_byte = 0;
    [[nodiscard]] AsideStep step(bool is_plain, double coding_noise = 1, double link_noise = 1) const {
        const double bytes = is_plain ? kPlainBytes : coded_bytes;
        return {.was_plain = is_plain,
                .coding_ms = coding_noise * (is_plain ? plain_ms : coded_ms),
                .bytes = bytes,
                .link_ms_per_byte = link_noise * (ms_per_byte + latency_ms / bytes),
                .best_ms_per_byte = best_ms_per_byte};
    }
    [[nodiscard]] double cost(bool is_plain) const {
        const auto made = step(is_plain);
        return made.coding_ms + made.bytes * made.link_ms_per_byte;
    }
};

/// Steps that went plain.
std::size_t run(StepAside& aside, const Plant& plant, std::size_t steps) {
    std::size_t plain = 0;
    for (std::size_t step = 0; step < steps; ++step) {
        plain += aside.is_plain() ? 1U : 0U;
        aside.on_step(plant.step(aside.is_plain()));
    }
    return plain;
}

TEST(StepAside, A_slow_codec_steps_aside_before_a_fast_link_after_two_windows) {
    const Plant plant;
    StepAside aside(kPlainBytes);
    EXPECT_EQ(aside.verdict(), AsideVerdict::kUnknown);
    run(aside, plant, kSteps / 2);
    EXPECT_EQ(aside.verdict(), AsideVerdict::kTrying);
    EXPECT_DOUBLE_EQ(aside.coded_ms(), plant.cost(false));
    EXPECT_DOUBLE_EQ(aside.plain_ms(), kPlainBytes * plant.ms_per_byte)
        << "the link alone, as long as nothing is known";
    run(aside, plant, kSteps / 2);
    EXPECT_EQ(aside.verdict(), AsideVerdict::kPlain);
    EXPECT_DOUBLE_EQ(aside.plain_ms(), plant.cost(true));
    EXPECT_DOUBLE_EQ(aside.coded_ms(), plant.cost(false));
    EXPECT_EQ(run(aside, plant, 3000), 3000U);
    EXPECT_EQ(aside.moves(), 1U);
}
TEST(StepAside, A_slow_link_never_gets_plain_bytes) {
    StepAside aside(kPlainBytes);
    EXPECT_EQ(run(aside, {.ms_per_byte = 8e-5}, 100'000), 0U) << "100 Mbit/s: 160 ms of plain bytes beside 72 ms";
    EXPECT_EQ(aside.verdict(), AsideVerdict::kLinkSlower);
    EXPECT_EQ(aside.moves(), 0U);
}
TEST(StepAside, Small_payloads_that_are_waited_for_are_judged_by_the_best_that_the_link_has_shown) {
    // 4 kB in 2 ms would be 1,000 ms of plain bytes.
    const Plant waited{.coded_ms = 40, .coded_bytes = 4e3, .latency_ms = 2};
    StepAside without(kPlainBytes), with(kPlainBytes);
    EXPECT_EQ(run(without, waited, 1000), 0U);
    auto known = waited;
    known.best_ms_per_byte = 2e-6;
    EXPECT_GT(run(with, known, 1000), 900U);
}
TEST(StepAside, A_trial_that_does_not_pay_is_not_made_again_soon) {
    const Plant plant{.plain_ms = 45};  // the codec of plain bytes is as slow
    StepAside aside(kPlainBytes);
    const auto plain = run(aside, plant, 512);
    EXPECT_EQ(plain, kSteps / 2);
    EXPECT_EQ(aside.verdict(), AsideVerdict::kTriedSlower);
    EXPECT_DOUBLE_EQ(aside.plain_ms(), plant.cost(true));
    const auto more = run(aside, plant, 100'000);
    EXPECT_LE(more, 8 * kSteps / 2) << "rests of 512, 1,024 and so on";
    EXPECT_GE(more, 5 * kSteps / 2);
}
TEST(StepAside, A_hopeless_trial_ends_after_two_steps) {
    // A link that carries the first bytes of each burst at ten times its speed, so that small payloads look fast.
    StepAside aside(kPlainBytes);
    const Plant small{.coded_bytes = 1e4, .ms_per_byte = 1e-6}, large{.ms_per_byte = 1e-4};
    std::size_t plain = 0;
    for (std::size_t step = 0; step < 400; ++step) {
        plain += aside.is_plain() ? 1U : 0U;
        aside.on_step((aside.is_plain() ? large : small).step(aside.is_plain()));
    }
    EXPECT_EQ(plain, 2U);
    EXPECT_EQ(aside.verdict(), AsideVerdict::kTriedSlower);
}
TEST(StepAside, A_link_that_becomes_slower_brings_the_codec_back_and_one_that_becomes_fast_again_lets_it_go) {
    Plant plant;
    StepAside aside(kPlainBytes);
    run(aside, plant, 600);
    ASSERT_EQ(aside.verdict(), AsideVerdict::kPlain);
    plant.ms_per_byte = 1e-4;
    EXPECT_LE(run(aside, plant, 600), 3 * kAsideWindow) << "windows in which it shows, and the one it came in";
    EXPECT_FALSE(aside.is_plain());
    plant.ms_per_byte = 1e-6;
    run(aside, plant, 600);
    EXPECT_TRUE(aside.is_plain());
    EXPECT_LE(aside.moves(), 3U);
}
TEST(StepAside, A_link_that_is_twice_as_fast_is_worth_a_trial_before_its_time) {
    Plant plant{.coded_ms = 12, .plain_ms = 4, .ms_per_byte = 4.9e-6};  // 9.8 ms of 14, but 13.8 with its own coding
    StepAside aside(kPlainBytes);
    for (int trials = 0; trials < 4; ++trials) run(aside, plant, 600U << static_cast<unsigned>(trials));
    ASSERT_EQ(aside.verdict(), AsideVerdict::kTriedSlower);
    plant.ms_per_byte = 1e-6;
    EXPECT_GT(run(aside, plant, 1000), 400U) << "the rest is longer than that by now";
    EXPECT_TRUE(aside.is_plain());
}
TEST(StepAside, What_is_remembered_of_the_codec_grows_old) {
    Plant plant;
    StepAside aside(kPlainBytes);
    run(aside, plant, 100);
    ASSERT_TRUE(aside.is_plain());
    plant.coded_ms = 1;  // a warm-up has ended, or other jobs have gone
    EXPECT_LT(run(aside, plant, 10'000), 4200U);
    EXPECT_FALSE(aside.is_plain());
}
TEST(StepAside, Steps_of_the_other_form_and_links_that_are_not_known_count_for_nothing) {
    const Plant plant;
    StepAside aside(kPlainBytes);
    for (int step = 0; step < 100; ++step) aside.on_step(plant.step(true));
    auto unknown = plant.step(false);
    unknown.link_ms_per_byte = 0;
    for (int step = 0; step < 100; ++step) aside.on_step(unknown);
    EXPECT_EQ(aside.verdict(), AsideVerdict::kUnknown);
    EXPECT_EQ(aside.coded_ms(), 0.0);
}

/// Noise of times: log-normal, and now and then a step that takes ten times as long.
class Noise {
public:
    Noise(std::uint32_t seed, double width) : random_(seed), width_(width) {}
    double operator()() {
        const double outlier = std::uniform_real_distribution<>()(random_) < 0.03 ? 10 : 1;
        return outlier * std::exp(width_ * std::normal_distribution<>()(random_));
    }

private:
    std::mt19937 random_;
    double width_;
};

TEST(StepAside, Under_noise_it_finds_the_faster_form_and_does_not_swing) {
    constexpr std::size_t kRun = 20'000;
    std::mt19937 random(kSeed);
    std::lognormal_distribution<> coded(2.5, 1), plain(0.5, 1), rate(std::log(1e-6), 2);
    for (std::uint32_t seed = 0; seed < 150; ++seed) {
        const Plant plant{.coded_ms = coded(random), .plain_ms = plain(random), .ms_per_byte = rate(random)};
        Noise coding(kSeed + 2 * seed, 0.25), link(kSeed + 2 * seed + 1, 0.25);
        StepAside aside(kPlainBytes);
        std::size_t plain_steps = 0;
        for (std::size_t step = 0; step < kRun; ++step) {
            plain_steps += aside.is_plain() ? 1U : 0U;
            aside.on_step(plant.step(aside.is_plain(), coding(), link()));
        }
        const double gain = plant.cost(false) / plant.cost(true);
        const auto share = static_cast<double>(plain_steps) / kRun;
        EXPECT_LE(aside.moves(), 24U) << seed << " gain " << gain;
        if (gain > 1.6 && kPlainBytes * plant.ms_per_byte < 0.5 * plant.cost(false)) {
            EXPECT_GT(share, 0.9) << seed << " gain " << gain;
        }
        if (gain < 0.7) {
            EXPECT_LT(share, 0.02) << seed << " gain " << gain;
        }
    }
}
TEST(StepAside, Links_that_keep_changing_are_followed_ever_less_often) {
    for (std::uint32_t seed = 0; seed < 50; ++seed) {
        std::mt19937 random(kSeed + seed);
        Noise coding(kSeed + 2 * seed, 0.2), link(kSeed + 2 * seed + 1, 0.2);
        StepAside aside(kPlainBytes);
        Plant plant;
        double paid = 0, coded = 0;
        for (std::size_t step = 0; step < 40'000; ++step) {
            if (step % 100 == 0) plant.ms_per_byte = std::exp(std::uniform_real_distribution<>(-14, -9)(random));
            paid += plant.cost(aside.is_plain());
            coded += plant.cost(false);
            aside.on_step(plant.step(aside.is_plain(), coding(), link()));
        }
        EXPECT_LE(aside.moves(), 120U) << seed;
        EXPECT_LT(paid, 1.1 * coded) << seed << ": following must not cost more than staying coded";
    }
}
TEST(StepAside, The_same_costs_give_the_same_choices) {
    StepAside one(kPlainBytes), other(kPlainBytes);
    const Plant plant{.coded_ms = 9, .plain_ms = 5};
    Noise noise(kSeed, 0.4);
    for (int step = 0; step < 5000; ++step) {
        const auto made = plant.step(one.is_plain(), noise(), noise());
        one.on_step(made);
        other.on_step(made);
        ASSERT_EQ(one.is_plain(), other.is_plain());
    }
}

}  // namespace
}  // namespace gradsieve::exchange
