// Every row of the operator table against the real codec, from samples to what receivers decode: means by z-scores,
// exact expected squared errors, class constants held by every vector and attained at the extremal ones, contraction at
// every step of error feedback. Seeds are fixed, and named by every failure; steps number the trials.
#include "operator_theory.hpp"
#include "codec/pipeline_text.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/random_trials.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kSeed = 71;
constexpr int kTrials = 500;

/// C(x) by the encoder and the decoder, from a residual of zero.
class OperatorRun {
public:
    OperatorRun(const Pipeline& pipeline, std::size_t count) : loop_(pipeline, count, 1, 0), count_(count) {
        loop_.set_random_seed(kSeed);
        loop_.set_selection_seed(kSeed);
    }
    std::vector<float> decoded(const std::vector<float>& values) {
        std::ranges::fill(loop_.residual(), 0.0F);
        return decode_payloads(loop_.step(values).chunks, count_);
    }

private:
    EncodeLoop loop_;
    std::size_t count_;
};

class OperatorTheoryRow : public ::testing::TestWithParam<std::size_t> {
protected:
    [[nodiscard]] static const OperatorTheory& row() { return operator_theories()[GetParam()]; }
    void SetUp() override { RecordProperty("seed", std::to_string(kSeed)); }
};

class OperatorClasses : public OperatorTheoryRow {};
class OperatorExtremes : public OperatorTheoryRow {};
class OperatorFeedback : public OperatorTheoryRow {};

void expect_exact(const OperatorTheory& row, const std::vector<float>& values) {
    const auto moments = row.moments(values);
    const auto decoded = OperatorRun(row.pipeline(), values.size()).decoded(values);
    for (std::size_t element = 0; element < values.size(); ++element)
        ASSERT_NEAR(decoded[element], moments[element].mean, 1e-6 * std::fabs(moments[element].mean))
            << row.text << ", " << values.size() << " elements, element " << element << " = " << values[element];
}

/// Bernoulli trials with p (1 - p) below this are too rare for their mean to be normal after kTrials.
constexpr double kLeastSpread = 0.02;

void expect_moments(const OperatorTheory& row, const std::vector<float>& values) {
    const auto moments = row.moments(values);
    TrialMoments trials(values);
    OperatorRun run(row.pipeline(), values.size());
    for (int trial = 0; trial < kTrials; ++trial) trials.add(run.decoded(values));
    double chi = 0;
    double random = 0;
    for (std::size_t element = 0; element < values.size(); ++element) {
        const Moment& moment = moments[element];
        const double deviation = trials.deviation(element) + values[element] - moment.mean;
        const double least = kLeastSpread * std::pow(moment.high - moment.low, 2);
        const double spread = std::sqrt(std::max(moment.variance, least) / kTrials);
        ASSERT_LE(std::fabs(deviation), 6 * spread + 1e-5 * std::fabs(moment.mean))
            << row.text << ", " << values.size() << " elements, seed " << kSeed << ", element " << element;
        if (moment.variance <= least) continue;
        chi += deviation * deviation / (moment.variance / kTrials);
        ++random;
    }
    EXPECT_LE(std::fabs(chi - random), 6 * std::sqrt(2 * random) + 1e-9) << row.text << ", seed " << kSeed;
    const double expected = energies(values, moments).error * square_norm(values);
    const double spread = std::sqrt(error_variance(values, moments) / kTrials);
    EXPECT_NEAR(trials.mean_error(), expected, 6 * spread + 1e-5 * expected + 1e-9 * square_norm(values))
        << row.text << ", " << values.size() << " elements, seed " << kSeed;
}

TEST_P(OperatorTheoryRow, Sends_what_its_formulas_say) {
    for (const std::size_t count : {1U, 40U, 300U})
        for (const auto& values : vectors_for(row(), count))
            row().is_random ? expect_moments(row(), values) : expect_exact(row(), values);
}
TEST_P(OperatorClasses, Every_vector_keeps_to_the_constants_of_its_classes) {
    for (const std::size_t count : {1U, 2U, 33U, 1000U, 4096U}) {
        const Classes is = row().classes(count);
        for (const auto& values : vectors_for(row(), count)) {
            const Energies energy = energies(values, row().moments(values));
            constexpr double kSlack = 1 + 1e-6;
            EXPECT_GE(energy.sent * kSlack, is.a) << row().text << " " << count;
            EXPECT_LE(energy.sent, is.b * energy.aligned * kSlack + 1e-9) << row().text << " " << count;
            EXPECT_GE(energy.aligned * kSlack, is.g) << row().text << " " << count;
            const double most = std::isfinite(is.delta) ? 1 - 1 / is.delta : 1 + (is.b - 2) * energy.aligned;
            EXPECT_LE(energy.error, most + 1e-6) << row().text << " " << count;
            if (is.z == 0) continue;
            EXPECT_LE(energy.sent, is.z * kSlack) << row().text << " " << count;
            EXPECT_NEAR(energy.aligned, 1, 1e-9) << "unbiased";
        }
    }
}
TEST_P(OperatorExtremes, Constants_are_attained_at_their_extremal_vectors) {
    const Extremal& at = row().extremal;
    for (const std::size_t count : {1000U, 4096U}) {
        const Classes is = row().classes(count);
        const auto energy_at = [&](const MakeVector& make) {
            return energies(make(count), row().moments(make(count)));
        };
        EXPECT_NEAR(energy_at(at.a).sent / is.a, 1, at.slack) << row().text << " " << count;
        EXPECT_NEAR(energy_at(at.b).sent / energy_at(at.b).aligned / is.b, 1, at.slack) << row().text << " " << count;
        EXPECT_NEAR(energy_at(at.g).aligned / is.g, 1, at.slack) << row().text << " " << count;
        if (std::isinf(is.delta))
            EXPECT_GE(energy_at(at.delta).error, 1) << row().text << " contracts nothing";
        else
            EXPECT_NEAR(energy_at(at.delta).error, 1 - 1 / is.delta, at.slack) << row().text << " " << count;
        if (is.z == 0) continue;
        EXPECT_NEAR(energy_at(at.b).sent / is.z, 1, at.slack) << row().text << " " << count;
    }
}

/// Many nodes with other random numbers and one gradient: what random operators leave is held against its mean.
TEST_P(OperatorFeedback, Contracts_at_every_step) {
    constexpr ElementCount kElements = 3000;
    const double kept = 1 - 1 / row().classes(kElements).delta;
    const std::size_t nodes = row().is_random ? 12 : 1;
    std::mt19937_64 random(kSeed);
    std::vector<EncodeLoop> loops;
    for (std::size_t node = 0; node < nodes; ++node) {
        loops.emplace_back(row().pipeline(), kElements, 1, 0);
        loops.back().set_random_seed(node);
        loops.back().set_selection_seed(node);
    }
    for (int step = 0; step < 24; ++step) {
        const auto kinds = {DataKind::kGaussian, DataKind::kConstant, DataKind::kHeavyTailed, DataKind::kZero};
        const auto gradient = make_gradient(*(kinds.begin() + step % 4), kElements, random);
        double before = 0;
        double after = 0;
        double expected = 0;
        double variance = 0;
        for (EncodeLoop& loop : loops) {
            std::vector<float> sum(loop.residual().begin(), loop.residual().end());
            for (ElementCount element = 0; element < kElements; ++element) sum[element] += gradient[element];
            const auto moments = row().moments(sum);
            before += square_norm(sum);
            expected += square_norm(sum) == 0 ? 0 : energies(sum, moments).error * square_norm(sum);
            variance += error_variance(sum, moments);
            static_cast<void>(loop.step(gradient));
            after += square_norm(loop.residual());
        }
        EXPECT_LE(expected, before * (kept * (1 + 1e-6) + 1e-12)) << row().text << ", seed " << kSeed << ", " << step;
        EXPECT_NEAR(after, expected, 6 * std::sqrt(variance) + 1e-5 * expected + 1e-9 * before)
            << row().text << ", seed " << kSeed << ", step " << step;
    }
}

/// A stage is on this list or in a row of the table; the reason says what holds it to theory instead.
std::string reason_without_row(std::string_view stage) {
    if (stage == "variance" || stage == "variance_hybrid")
        return "what it sends depends on the steps before: VarianceRates, VarianceSpecials";
    if (stage == "gaussian_k" || stage == "sidco")
        return "how much it sends depends on how the values are distributed: ThresholdEstimate";
    if (stage == "momentum") return "changes what is coded, not how: Momentum, MomentumRate";
    if (stage == "similarity") return "measures, or sends what was sent before: Similarity, Reuse";
    if (stage == "accumulate") return "changes when is coded, not how: Accumulate";
    if (stage == "warmup") return "its steps are those of its selector with another ratio: Warmup";
    if (stage == "rotate") return "is lossless by itself: Rotation, with what signs then lose";
    if (stage == "compensate") return "changes what is coded, not how: Compensate, LowPass";
    if (stage == "delta") return "changes what is coded, not how: Delta, DifferenceRate";
    if (stage == "lowrank") return "what it loses depends on a matrix's singular values: LowRank";
    if (stage == "sketch") return "which elements it sends follows from random estimates: SketchEstimates, Sketch";
    if (stage == "entropy") return "loses nothing: EntropyCoder";
    return "";
}
TEST(OperatorTable, Every_selector_and_quantizer_has_a_row_or_a_reason) {
    for (const StageRow& stage : stage_table()) {
        if (stage.role == "index coder" || !reason_without_row(stage.name).empty()) continue;
        bool has_row = false;
        for (const OperatorTheory& row : operator_theories()) {
            const auto stages = split_pipeline(row.text);
            ASSERT_TRUE(stages.is_ok()) << row.text;
            for (const StageText& text : *stages) has_row = has_row || text.name == stage.name;
        }
        EXPECT_TRUE(has_row) << stage.name << ": add a row to operator_theory.cpp, or say above why it has none";
    }
}

std::string row_name(const ::testing::TestParamInfo<std::size_t>& info) {
    return name_of(operator_theories()[info.param]);
}
INSTANTIATE_TEST_SUITE_P(Table, OperatorTheoryRow, ::testing::ValuesIn(rows_with(is_any)), row_name);
INSTANTIATE_TEST_SUITE_P(Table, OperatorClasses, ::testing::ValuesIn(rows_with(has_classes)), row_name);
INSTANTIATE_TEST_SUITE_P(Table, OperatorExtremes, ::testing::ValuesIn(rows_with(has_extremes)), row_name);
INSTANTIATE_TEST_SUITE_P(Table, OperatorFeedback, ::testing::ValuesIn(rows_with(has_contraction)), row_name);

}  // namespace
}  // namespace gradsieve::codec
