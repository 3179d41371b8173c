// How fast descent converges behind every operator, against proved bounds. mu = 1 and L = kCondition throughout.
//
// With error feedback and rate s = 1 / (8 delta L), on mu-strongly convex functions with one minimizer x* and L-smooth
// parts, V = ||x - s mean e - x*||^2 + 12 s L delta mean ||s e||^2 falls by the factor 1 - mu / (16 delta L) at least:
// with y = x - s mean e, y' = y - s mean grad f_i(x), so ||y' - x*||^2 <= (1 - s mu / 2) ||y - x*||^2 - s (1 - 2 L s) F
// + 3 s L ||s mean e||^2, where F = f(x) - f(x*); a contraction leaves ||s e'||^2 <= (1 - 1/(2 delta)) ||s e||^2
// + 2 delta s^2 ||grad f_i(x)||^2, and the mean of the last is at most 2 L F. This is the linear rate
// O(exp(-mu K / (delta L))) of Beznosikov et al. 2020 for C = D = 0, with constants.
//
// Without feedback f(x') - f* <= (1 - r) (f(x) - f*) with r = (a / b^2) mu / L at rate 1 / (b L) in B1(a, b),
// (g / b) mu / L at the same in B2(g, b), mu / (delta L) at 1 / L in B3(delta), mu / (z L) at 1 / (z L) in U(z): put
// the class's inequality into f(x') <= f(x) - s <grad, C> + L s^2 / 2 ||C||^2. So log(1/eps) / r steps are enough.
#include "descent.hpp"
#include "operator_theory.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

constexpr std::size_t kDimensions = 100;
constexpr double kCondition = 4;
constexpr std::uint64_t kSeed = 72;

class DescentRate : public ::testing::TestWithParam<std::size_t> {
protected:
    [[nodiscard]] static const OperatorTheory& row() { return operator_theories()[GetParam()]; }
    void SetUp() override { RecordProperty("seed", std::to_string(kSeed)); }
};
class FeedbackRate : public DescentRate {};

TEST_P(FeedbackRate, Is_linear_with_a_slope_within_the_bound) {
    const double delta = row().classes(kDimensions).delta;
    const double rate = 1 / (8 * delta * kCondition);
    const double factor = 1 - 1 / (16 * delta * kCondition);
    for (const std::size_t nodes : {1U, 4U}) {
        Descent descent(row().pipeline(), kDimensions, kCondition, nodes, Descent::Feedback::kKept, kSeed);
        const auto potential = [&] {
            return descent.virtual_square() + 12 * rate * kCondition * delta * descent.residual_square();
        };
        const int steps = static_cast<int>(64 * delta);
        Descent plain(*parse_pipeline("all | f32"), kDimensions, kCondition, nodes, Descent::Feedback::kKept, kSeed);
        double last = potential();
        const double first = last;
        double later = 1;  // how much f falls in the second half, over what it does uncompressed
        for (int step = 1; step <= steps; ++step) {
            if (step == steps / 2) later = plain.value() / descent.value();
            descent.step(rate);
            plain.step(rate);
            const double now = potential();
            if (!row().is_random) {
                ASSERT_LE(now, last * factor * (1 + 1e-5)) << row().text << ", step " << step;
            }
            last = now;
        }
        EXPECT_LE(std::log(last / first) / steps, std::log(factor))
            << row().text << ", " << nodes << " nodes, seed " << kSeed;
        // A residual delays what is sent, but at so small a rate it changes next to nothing.
        later *= descent.value() / plain.value();
        EXPECT_NEAR(later, 1, 0.2) << row().text << ", " << nodes << " nodes, seed " << kSeed;
    }
}

/// Steps until f is 1/1000 of what it was, by theory; then it is that. Some operators descend so much faster than their
/// worst case that before long gradients would be below 2^-100, of which formats send nothing: that ends it.
void expect_descent(const OperatorTheory& row, const char* name, double rate, double fall) {
    constexpr double kAim = 1e-3;
    constexpr double kOutOfRange = 0x1p-150;
    const int steps = static_cast<int>(std::ceil(std::log(1 / kAim) / fall));
    const int runs = row.is_random ? 3 : 1;
    double reached = 0;
    for (int run = 0; run < runs; ++run) {
        Descent descent(row.pipeline(), kDimensions, kCondition, 1, Descent::Feedback::kDropped,
                        kSeed + static_cast<std::uint64_t>(run));
        const double first = descent.value();
        double last = first;
        for (int step = 1; step <= steps && last > kOutOfRange; ++step) {
            descent.step(rate);
            const double now = descent.value();
            if (!row.is_random) {
                ASSERT_LE(now, last * (1 - fall) * (1 + 1e-6)) << row.text << " in " << name << ", step " << step;
            }
            last = now;
        }
        reached += last / first / runs;
    }
    EXPECT_LE(reached, kAim) << row.text << " in " << name << ", " << steps << " steps, seed " << kSeed;
}
TEST_P(DescentRate, Without_feedback_is_that_of_each_class) {
    const Classes is = row().classes(kDimensions);
    expect_descent(row(), "B1", 1 / (is.b * kCondition), is.a / (is.b * is.b * kCondition));
    expect_descent(row(), "B2", 1 / (is.b * kCondition), is.g / (is.b * kCondition));
    if (std::isfinite(is.delta)) expect_descent(row(), "B3", 1 / kCondition, 1 / (is.delta * kCondition));
    if (is.z > 0) expect_descent(row(), "U", 1 / (is.z * kCondition), 1 / (is.z * kCondition));
}

std::string row_name(const ::testing::TestParamInfo<std::size_t>& info) {
    return name_of(operator_theories()[info.param]);
}
INSTANTIATE_TEST_SUITE_P(Table, DescentRate, ::testing::ValuesIn(rows_with(has_classes)), row_name);
INSTANTIATE_TEST_SUITE_P(Table, FeedbackRate, ::testing::ValuesIn(rows_with(has_contraction)), row_name);

/// Mean over seeds of f at the average of the iterates, weighted as the rates' inverses.
double noisy_value(const char* codec, double delta, int steps) {
    constexpr int kSeeds = 3;
    constexpr std::size_t kFewDimensions = 30;
    const double shift = 16 * delta * kCondition;
    double sum = 0;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
        Descent descent(*parse_pipeline(codec), kFewDimensions, kCondition, 1, Descent::Feedback::kKept, seed);
        descent.set_noise(1.0);
        std::vector<double> average(kFewDimensions, 0.0);
        double weights = 0;
        for (int step = 0; step < steps; ++step) {
            const double weight = step + shift;
            weights += weight;
            for (std::size_t axis = 0; axis < kFewDimensions; ++axis)
                average[axis] += weight / weights * (descent.position()[axis] - average[axis]);
            descent.step(2 / weight);  // at first 1 / (8 delta L)
        }
        sum += descent.value_at(average) / kSeeds;
    }
    return sum;
}
struct NoisyCase {
    const char* codec;
    double delta;  ///< on 30 elements
};
class NoisyFeedbackRate : public ::testing::TestWithParam<NoisyCase> {};

TEST_P(NoisyFeedbackRate, Error_falls_with_the_number_of_steps_and_ends_where_plain_descent_does) {
    constexpr int kSteps = 1500;
    constexpr int kTimes = 8;
    const auto& [codec, delta] = GetParam();
    const double few = noisy_value(codec, delta, kSteps);
    const double many = noisy_value(codec, delta, kTimes * kSteps);
    const double plain = noisy_value("all | f32", 1, kTimes * kSteps);
    EXPECT_LE(std::log(many / few) / std::log(kTimes), -0.85)
        << codec << ": " << few << " after " << kSteps << " steps, " << many << " after " << kTimes * kSteps;
    EXPECT_NEAR(many / plain, 1, 0.35) << codec << ": noise is averaged as without compression";
}
INSTANTIATE_TEST_SUITE_P(Codecs, NoisyFeedbackRate,
                         ::testing::Values(NoisyCase{"all | f32", 1}, NoisyCase{"topk(0.1) | f32", 10},
                                           NoisyCase{"topk(0.2) | natural", 5 * 9.0 / 8}, NoisyCase{"all | sign", 30},
                                           NoisyCase{"all | pow2(bits=4)", 1.334}, NoisyCase{"all | natural", 1.125},
                                           NoisyCase{"all | dither(levels=1)", 3.24}));

}  // namespace
}  // namespace gradsieve::codec
