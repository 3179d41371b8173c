// The controller against encoders and links that are told by a formula: where it comes to rest, how soon, and that it
// stays there.
#include "exchange/density_controller.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

namespace gradsieve::exchange {
namespace {

constexpr DensityRange kWide{-320, 320};
constexpr DensityPace kExact{};
constexpr DensityPace kEstimated{.window_steps = 4};
constexpr DensityPace kGradual{.settle_steps = 16, .window_steps = 16, .is_gradual = true};
constexpr DensityPace kTimes{.settle_steps = 1, .window_steps = 9, .takes_median = true, .is_gradual = true};

/// What a step costs at a density.
using Plant = std::function<double(double density)>;

struct Run {
    std::vector<std::int32_t> places;
    std::vector<double> costs;
    [[nodiscard]] std::size_t turns(std::size_t from = 0) const {
        std::size_t turns = 0;
        std::int32_t direction = 0;
        for (std::size_t at = from + 1; at < places.size(); ++at) {
            const auto moved = places[at] - places[at - 1];
            if (moved == 0) continue;
            const std::int32_t now = moved > 0 ? 1 : -1;
            turns += direction == -now ? 1 : 0;
            direction = now;
        }
        return turns;
    }
    [[nodiscard]] double mean(std::size_t from) const {
        double sum = 0;
        for (auto at = from; at < costs.size(); ++at) sum += costs[at];
        return sum / static_cast<double>(costs.size() - from);
    }
};

Run run(DensityController& controller, const Plant& plant, double budget, std::size_t steps, double fixed = 0) {
    Run run;
    for (std::size_t step = 0; step < steps; ++step) {
        const double cost = plant(controller.density());
        run.costs.push_back(cost);
        controller.on_step(cost, fixed, budget);
        run.places.push_back(controller.state().place);
    }
    return run;
}

TEST(DensityController, Density_doubles_every_32_places_and_grows_in_between) {
    EXPECT_EQ(density_at(0), 1.0);
    EXPECT_EQ(density_at(64), 4.0);
    EXPECT_EQ(density_at(-96), 0.125);
    EXPECT_DOUBLE_EQ(density_at(16), std::sqrt(2.0));
    EXPECT_DOUBLE_EQ(density_at(-16), std::sqrt(0.5));
    for (std::int32_t place = -200; place < 200; ++place)
        EXPECT_NEAR(density_at(place + 1) / density_at(place), 1.0219, 1e-4);
}

TEST(DensityController, Steady_costs_come_within_five_percent_below_the_budget_in_ten_steps_from_anywhere) {
    for (const double exponent : {0.8, 0.9, 1.0})
        for (const double first : {0.03, 0.4, 1.0, 2.7, 60.0}) {  // of the budget, at density 1
            DensityController controller(kWide, kExact);
            const auto made = run(
                controller, [&](double density) { return 1e5 * first * std::pow(density, exponent); }, 1e5, 40);
            for (std::size_t step = 10; step < 40; ++step) {
                EXPECT_LE(made.costs[step], 1e5) << exponent << " " << first << " step " << step;
                EXPECT_GE(made.costs[step], 0.95e5) << exponent << " " << first << " step " << step;
            }
            EXPECT_LE(made.turns(), 1U) << exponent << " " << first;
            EXPECT_EQ(controller.verdict(), DensityVerdict::kHolding);
        }
}

TEST(DensityController, What_no_place_changes_is_left_out_of_the_proportion) {
    DensityController controller(kWide, kExact);
    const auto made = run(
        controller, [](double density) { return 8e4 + 4e3 * density; }, 1e5, 10, 8e4);
    EXPECT_LE(made.costs[4], 1e5);
    EXPECT_GE(made.costs[4], 0.95e5);
    EXPECT_EQ(made.turns(), 0U);
}

TEST(DensityController, More_budget_never_sends_less) {
    for (const double exponent : {0.8, 1.0}) {
        std::int32_t before = kWide.least;
        for (double budget = 1e3; budget < 1e6; budget *= 1.06) {
            DensityController controller(kWide, kExact);
            run(
                controller, [&](double density) { return 3e4 * std::pow(density, exponent); }, budget, 60);
            EXPECT_GE(controller.state().place, before) << budget;
            before = controller.state().place;
        }
    }
}

TEST(DensityController, Stays_within_its_range_and_says_so) {
    DensityController controller({-10, 20}, kExact);
    const auto plant = [](double density) { return 1000 * density; };
    run(controller, plant, 10, 20);
    EXPECT_EQ(controller.state().place, -10);
    EXPECT_EQ(controller.verdict(), DensityVerdict::kOverAtLeast);
    run(controller, plant, 1e9, 20);
    EXPECT_EQ(controller.state().place, 20);
    EXPECT_EQ(controller.verdict(), DensityVerdict::kDensest);
    run(controller, plant, 1000, 20);
    EXPECT_EQ(controller.verdict(), DensityVerdict::kHolding);
    EXPECT_LE(plant(controller.density()), 1000);
}

TEST(DensityController, Noise_does_not_make_it_swing) {
    for (const auto& pace : {kExact, kEstimated, kTimes})
        for (const double spread : {0.01, 0.03, 0.1}) {
            constexpr unsigned kSeed = 20261130;
            std::mt19937 random(kSeed);
            std::lognormal_distribution<double> noise(0, spread);
            DensityController controller(kWide, pace);
            const auto made = run(
                controller, [&](double density) { return 5e5 * density * noise(random); }, 1e5, 4000);
            EXPECT_LE(made.turns(), 20U) << spread << " seed " << kSeed;
            EXPECT_LE(made.mean(1000), 1.02e5) << spread;
            EXPECT_GE(made.mean(1000), (1 - 2 * spread - 0.1) * 1e5) << spread;
        }
}

TEST(DensityController, Times_of_a_machine_that_has_too_much_to_do_do_not_make_it_swing) {
    // Every window's median lies by a fifth and more, and single steps by a multiple.
    constexpr unsigned kSeed = 20261130;
    std::mt19937 random(kSeed);
    std::lognormal_distribution<double> noise(0, 0.6);
    DensityController controller(kWide, kTimes);
    const auto made = run(
        controller, [&](double density) { return (4 + 2 * density) * noise(random); }, 20, 6000);
    EXPECT_LE(made.turns(), 40U) << "seed " << kSeed;
    EXPECT_LE(made.turns(3000), 20U) << "seed " << kSeed;
    const double least = density_at(*std::min_element(made.places.begin() + 500, made.places.end()));
    const double most = density_at(*std::max_element(made.places.begin() + 500, made.places.end()));
    EXPECT_LE(most / least, 4) << "seed " << kSeed;
}
TEST(DensityController, Bursts_count_by_their_mean) {
    // Every 8th step sends six times as much: a threshold that many elements pass together.
    DensityController controller(kWide, kGradual);
    std::size_t step = 0;
    const auto made = run(
        controller, [&](double density) { return 1e4 * density * (step++ % 8 == 0 ? 6 : 1); }, 1e5, 2000);
    EXPECT_LE(made.mean(800), 1e5);
    EXPECT_GE(made.mean(800), 0.9e5);
    EXPECT_EQ(made.turns(800), 0U);
}

TEST(DensityController, Costs_that_follow_late_are_waited_for) {
    // What is held back piles up: a move shows at once too strongly, and settles over some ten steps.
    for (const double first : {0.1, 10.0}) {
        DensityController controller(kWide, kGradual);
        double held = 1;
        const auto made = run(
            controller,
            [&](double density) {
                const double sent = density * held;
                held += 0.2 * (1 - held * std::sqrt(density));
                return 1e5 * first * sent;
            },
            1e5, 3000);
        EXPECT_LE(made.turns(), 6U) << first;
        EXPECT_LE(made.mean(2000), 1.0e5) << first;
        EXPECT_GE(made.mean(2000), 0.9e5) << first;
    }
}

TEST(DensityController, A_link_that_halves_is_followed_and_one_that_recovers_too) {
    DensityController controller(kWide, kTimes);
    double rate = 1;
    const Plant plant = [&](double density) { return 2 + 10 * density / rate; };  // ms: coding, link
    run(controller, plant, 20, 200);
    EXPECT_LE(plant(controller.density()), 20);
    EXPECT_GE(plant(controller.density()), 19);
    rate = 0.5;
    const auto halved = run(controller, plant, 20, 100);
    EXPECT_LE(plant(controller.density()), 20);
    EXPECT_GE(plant(controller.density()), 18);
    EXPECT_LE(halved.turns(), 1U);
    EXPECT_LE(halved.costs[24], 20) << "within four windows";
    rate = 1;
    run(controller, plant, 20, 200);
    EXPECT_LE(plant(controller.density()), 20);
    EXPECT_GE(plant(controller.density()), 18);
}

TEST(DensityController, Steps_that_are_late_by_themselves_move_nothing) {
    DensityController controller(kWide, kTimes);
    std::size_t step = 0;
    const Plant plant = [&](double density) { return 19.5 * density + (step++ % 6 == 5 ? 400 : 0); };
    const auto made = run(controller, plant, 20, 600);
    EXPECT_EQ(controller.state().place, 0);
    EXPECT_EQ(made.turns(), 0U);
}

TEST(DensityController, A_changed_budget_is_met_as_fast_as_the_first) {
    DensityController controller(kWide, kExact);
    const Plant plant = [](double density) { return 1e5 * density; };
    run(controller, plant, 1e5, 50);
    const auto less = run(controller, plant, 2e4, 5);
    EXPECT_LE(less.costs[2], 2e4);
    const auto more = run(controller, plant, 8e4, 8);
    EXPECT_GE(more.costs[6], 0.95 * 8e4);
    EXPECT_LE(more.costs[6], 8e4);
}

TEST(DensityController, Goes_on_from_a_state_as_if_nothing_had_been) {
    for (const auto& pace : {kExact, kEstimated, kGradual}) {
        constexpr unsigned kSeed = 7;
        std::mt19937 random(kSeed);
        std::lognormal_distribution<double> noise(0, 0.05);
        DensityController whole(kWide, pace);
        DensityController first(kWide, pace);
        for (int step = 0; step < 300; ++step) {
            const double cost = 3e5 * whole.density() * noise(random);
            whole.on_step(cost, 10, 1e5);
            DensityController second(kWide, pace);
            second.resume(first.state());
            second.on_step(cost, 10, 1e5);
            first = second;
            ASSERT_EQ(first.state(), whole.state()) << "step " << step << " seed " << kSeed;
        }
    }
}

TEST(DensityController, A_state_from_elsewhere_is_cut_off_at_what_can_be) {
    DensityController controller({-5, 5}, kExact);
    controller.resume({.place = 1 << 30,
                       .settling = 1U << 31U,
                       .reversals = 99,
                       .direction = -7,
                       .quiet = 1U << 31U,
                       .seen = 1U << 31U,
                       .cost_sum = std::nan(""),
                       .fixed_sum = 1,
                       .budget = 1});
    EXPECT_EQ(controller.state().place, 5);
    EXPECT_EQ(controller.state().settling, 0U);
    EXPECT_EQ(controller.state().seen, 0U);
    EXPECT_EQ(controller.state().cost_sum, 0);
    controller.on_step(100, 0, 2);
    EXPECT_EQ(controller.state().place, -5);
}

}  // namespace
}  // namespace gradsieve::exchange
