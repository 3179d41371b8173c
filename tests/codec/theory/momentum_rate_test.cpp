// Descent with momentum in front of a selector: it comes to the minimum, and sooner than without, although u is cleared
// wherever something is sent. On an ill-conditioned quadratic at a rate at which both are stable.
#include "descent.hpp"

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kSeed = 412;
constexpr std::size_t kDimensions = 400;
constexpr double kCondition = 100;
constexpr double kRate = 0.001;
constexpr int kMostSteps = 4000;

/// Steps until f is a millionth of what it was; kMostSteps if it is not by then.
int steps_needed(const std::string& codec, std::size_t nodes) {
    Descent descent(*parse_pipeline(codec), kDimensions, kCondition, nodes, Descent::Feedback::kKept, kSeed);
    const double goal = 1e-6 * descent.value();
    for (int step = 0; step < kMostSteps; ++step) {
        if (descent.value() <= goal) return step;
        descent.step(kRate);
    }
    return kMostSteps;
}

// In double, with another random mirror: 2,212 steps without momentum, 1,744 with m = 0.9, 204 if everything is sent.
TEST(MomentumRate, Sparse_descent_comes_to_the_minimum_sooner_with_it) {
    for (const std::size_t nodes : {1U, 4U}) {
        const int without = steps_needed("topk(0.1)", nodes);
        EXPECT_LT(without, kMostSteps) << nodes << " nodes, seed " << kSeed;
        for (const std::string codec : {"momentum(0.9) | topk(0.1)", "momentum(0.9) | topk(0.1) | bf16"}) {
            const int with = steps_needed(codec, nodes);
            EXPECT_LT(with, 0.9 * without) << codec << ", " << nodes << " nodes, seed " << kSeed;
        }
    }
}
TEST(MomentumRate, Behind_it_all_is_as_fast_as_momentum_descent) {
    EXPECT_LT(steps_needed("momentum(0.9) | all", 1), 0.2 * steps_needed("all", 1)) << "seed " << kSeed;
}

}  // namespace
}  // namespace gradsieve::codec
