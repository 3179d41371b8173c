// Send rates of the variance rule against an independent simulation of the paper's rule (per-sample squares) and of its
// stand-ins: a few cells of the table here, all of them in the slow program.
#include "variance_simulation.hpp"

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kSeed = 1802;
/// A tenth of the table's elements: three times its sampling error.
constexpr RateRun kQuickRun = {8000, 1500, 700};
constexpr double kQuickTolerance = 0.08;

TEST(VarianceRates, A_cell_of_each_provider_agrees_with_the_table) {
    for (const RateCase& which : rate_table()) {
        const bool is_chosen = which.alpha == 1.5 && which.signal_to_noise == 1;
        const bool is_noise = which.alpha == 1.0 && which.signal_to_noise == 0 && which.groups != 8;
        if (!is_chosen && !is_noise) continue;
        const double rate = simulate_send_rate(which, kQuickRun, kSeed);
        EXPECT_NEAR(rate / which.expected_rate, 1.0, kQuickTolerance) << rate_case_name(which) << ": " << rate;
    }
}

/// Pooling makes two samples send like the per-sample rule where neighbours are equally noisy.
TEST(VarianceRates, Two_pooled_samples_send_like_the_per_sample_rule) {
    constexpr ElementCount kElements = 8000;
    std::mt19937_64 random(kSeed);
    EncodeLoop loop(variance_pipeline(1.5, QuantizerKind::kF32), kElements, 2, 64);
    const double root_two = std::sqrt(2.0);
    std::uint64_t sent = 0;
    std::vector<std::vector<float>> pools(2, std::vector<float>(kElements * 16));
    std::normal_distribution<double> normal(0, root_two);
    for (auto& pool : pools) {
        for (float& value : pool) value = static_cast<float>(normal(random));
    }
    for (int step = 0; step < 1500; ++step) {
        const std::array<const float*, 2> samples = {pools[0].data() + random() % (kElements * 15),
                                                     pools[1].data() + random() % (kElements * 15)};
        const EncodeResult result = loop.step(samples);
        EXPECT_EQ(result.variance_source, VarianceSource::kGroupsPooled);
        if (step >= 700) sent += result.kept_elements;
    }
    const double rate = static_cast<double>(sent) / kElements / 800;
    EXPECT_NEAR(rate / 0.0127, 1.0, 0.1) << "second moments, alpha 1.5, no signal: 0.0127; without pooling 0.0189";
}

}  // namespace
}  // namespace gradsieve::codec
