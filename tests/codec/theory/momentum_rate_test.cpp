// What momentum in front of a selector is for: on an ill-conditioned quadratic descent is faster with it, although few
// elements are sent and u is cleared where they are.
#include "descent.hpp"

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kSeed = 412;
constexpr std::size_t kDimensions = 400;
constexpr double kCondition = 100;

/// Steps until f is a millionth of what it was; `most` if it never is.
int steps_needed(const std::string& codec, double rate, std::size_t nodes, int most) {
    Descent descent(*parse_pipeline(codec), kDimensions, kCondition, nodes, Descent::Feedback::kKept, kSeed);
    const double goal = 1e-6 * descent.value();
    for (int step = 0; step < most; ++step) {
        if (descent.value() <= goal) return step;
        descent.step(rate);
    }
    return most;
}

TEST(MomentumRate, Print) {
    for (const std::size_t nodes : {1U, 4U})
        for (const double rate : {0.01, 0.005, 0.002, 0.001})
            for (const char* codec :
                 {"all", "momentum(0.9) | all", "topk(0.1)", "momentum(0.8) | topk(0.1)", "momentum(0.9) | topk(0.1)",
                  "momentum(0.9, yes) | topk(0.1)", "momentum(0.9) | topk(0.02) | bf16", "topk(0.02) | bf16"})
                std::printf("%zu %g %s: %d\n", nodes, rate, codec, steps_needed(codec, rate, nodes, 20000));
}

}  // namespace
}  // namespace gradsieve::codec
