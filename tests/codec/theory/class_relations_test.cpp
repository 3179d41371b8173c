// How the classes of compression operators follow from each other (Beznosikov et al. 2020, Theorems on equivalence and
// scaling; proved by expanding the squares), as properties of every row on any vector. RapidCheck draws the vectors and
// prints its seed.
#include "encoder_harness.hpp"
#include "operator_theory.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/random_trials.hpp"

#include <rapidcheck.h>

#include <cmath>

namespace gradsieve::codec {
namespace {

constexpr double kSlack = 1e-6;

std::vector<float> any_vector() {
    const auto count = *rc::gen::inRange<std::size_t>(1, 2000);
    const auto shape = *rc::gen::element(test::Shape::kGaussian, test::Shape::kHeavyTailed, test::Shape::kAlternating);
    auto values = test::make_values(shape, count, *rc::gen::arbitrary<std::uint64_t>());
    // A few large ones among many small ones, or the other way round.
    const auto large = *rc::gen::inRange<std::size_t>(0, count + 1);
    const auto factor = std::ldexp(1.0F, *rc::gen::inRange(-6, 7));
    for (std::size_t element = 0; element < large; ++element) values[element] *= factor;
    return in_range(values);
}
OperatorTheory any_row() {
    const auto& rows = operator_theories();
    return rows[*rc::gen::inRange<std::size_t>(0, rows.size())];
}

TEST(ClassRelations, Follow_for_every_operator_and_vector) {
    EXPECT_TRUE(rc::check("relations between the classes", [] {
        const OperatorTheory row = any_row();
        if (!row.classes) return;
        const auto values = any_vector();
        if (square_norm(values) == 0) return;
        const Classes is = row.classes(values.size());
        const Energies energy = energies(values, row.moments(values));
        RC_TAG(row.text);
        RC_ASSERT(is.b * is.b >= is.a * (1 - kSlack));
        RC_ASSERT(is.b >= is.g * (1 - kSlack));
        RC_ASSERT(is.delta >= 1 - kSlack);
        // B1 gives B2(a/b, b) and, divided by b, B3(b^2/a); B2 gives B1(g^2, b) and B3(b/g).
        RC_ASSERT(energy.aligned >= is.a / is.b - kSlack);
        RC_ASSERT(energy.sent >= is.g * is.g - kSlack);
        const double divided = energy.sent / (is.b * is.b) - 2 * energy.aligned / is.b + 1;
        RC_ASSERT(divided <= 1 - is.a / (is.b * is.b) + kSlack);
        RC_ASSERT(divided <= 1 - is.g / is.b + kSlack);
        if (std::isfinite(is.delta)) {  // B3 gives B2(1/(2 delta), 2) and B1(1/(4 delta^2), 2)
            RC_ASSERT(energy.aligned >= 1 / (2 * is.delta) - kSlack);
            RC_ASSERT(energy.sent >= 1 / (4 * is.delta * is.delta) - kSlack);
            RC_ASSERT(energy.sent <= 2 * energy.aligned + kSlack);
        }
        // Lemma 3: E ||C||^2 <= b <E C, x> gives ||E C|| <= b ||x|| and E ||C||^2 <= b^2 ||x||^2.
        RC_ASSERT(std::sqrt(energy.mean_sent) <= is.b + kSlack);
        RC_ASSERT(energy.sent <= is.b * is.b + kSlack);
    }));
}
TEST(ClassRelations, An_unbiased_operator_times_l_contracts_as_its_second_moment_says) {
    EXPECT_TRUE(rc::check("scaled unbiased operators", [] {
        const OperatorTheory row = any_row();
        const auto values = any_vector();
        if (!row.classes || row.classes(values.size()).z == 0 || square_norm(values) == 0) return;
        const double z = row.classes(values.size()).z;
        const double factor = *rc::gen::inRange(1, 200) / 100.0 / z;
        const Energies energy = energies(values, row.moments(values));
        const double error = factor * factor * energy.sent - 2 * factor * energy.aligned + 1;
        RC_ASSERT(error <= 1 - factor * (2 - z * factor) + kSlack);
        // The best factor is 1/z.
        RC_ASSERT(1 - 1 / z <= 1 - factor * (2 - z * factor) + kSlack);
    }));
}
TEST(ClassRelations, Any_vector_is_sent_as_the_formulas_say) {
    EXPECT_TRUE(rc::check("codec against formulas", [] {
        const OperatorTheory row = any_row();
        const auto values = any_vector();
        EncodeLoop loop(row.pipeline(), values.size(), 1, 0);
        loop.set_random_seed(*rc::gen::arbitrary<std::uint64_t>());
        const auto decoded = decode_payloads(loop.step(values).chunks, values.size());
        const auto moments = row.moments(values);
        RC_TAG(row.text);
        for (std::size_t element = 0; element < values.size(); ++element) {
            const Moment& moment = moments[element];
            // One of two neighboring values; a step's fraction too small for fp32 may count as none.
            const double allowed = std::fabs(moment.high - moment.low) * (1 + 1e-5) + 1e-5 * std::fabs(moment.mean);
            RC_ASSERT(std::fabs(decoded[element] - moment.mean) <= allowed);
        }
    }));
}
/// E ||D(N(x))||^2 <= z_D z_N ||x||^2: each factor's own second moment is its bound at the vectors taken.
TEST(ClassRelations, Second_moments_of_composed_operators_multiply) {
    constexpr std::size_t kElements = 1000;
    constexpr int kTrials = 400;
    const auto values = constant_vector(kElements, 4.0F / 3);
    EncodeLoop first(*parse_pipeline("all | natural(feedback=none)"), kElements, 1, 0);
    EncodeLoop second(*parse_pipeline("all | dither(levels=1, norm=l2, feedback=none)"), kElements, 1, 0);
    second.set_random_seed(1);  // or both would round by the same numbers
    double moment = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
        const auto middle = decode_payloads(first.step(values).chunks, kElements);
        const auto decoded = decode_payloads(second.step(middle).chunks, kElements);
        moment += square_norm(decoded) / square_norm(values) / kTrials;
    }
    const double bound = 9.0 / 8 * std::sqrt(double{kElements});
    EXPECT_LE(moment, bound * 1.02);
    EXPECT_GE(moment, bound * 0.9) << "and nearly that much";
}
/// The premise of error feedback around an unbiased operator: without 1/z it is no contraction once z > 2.
TEST(ClassRelations, Ternary_codes_without_the_factor_let_the_residual_grow) {
    constexpr ElementCount kElements = 1000;
    double largest[2] = {0, 0};
    for (const bool is_scaled : {true, false}) {
        EncodeLoop loop(*parse_pipeline(is_scaled ? "all | dither(levels=1, norm=l2)"
                                                  : "all | dither(levels=1, norm=l2, feedback=unscaled)"),
                        kElements, 1, 0);
        const auto gradient = constant_vector(kElements, 1.0F);
        for (int step = 0; step < 60; ++step) {
            static_cast<void>(loop.step(gradient));
            largest[is_scaled ? 0 : 1] = std::max(largest[is_scaled ? 0 : 1], std::sqrt(square_norm(loop.residual())));
        }
    }
    const double gradient_norm = std::sqrt(double{kElements});
    const double z = std::sqrt(double{kElements});
    EXPECT_LE(largest[0], 2 * z * gradient_norm) << "scaled: at most (1 - 1/z) z / (1 - sqrt(1 - 1/z)) < 2 z gradients";
    EXPECT_GE(largest[1], 1e6 * gradient_norm) << "unscaled: sqrt(z - 1) times as large every step";
}

}  // namespace
}  // namespace gradsieve::codec
