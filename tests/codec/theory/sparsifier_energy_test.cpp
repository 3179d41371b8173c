// What Top-k keeps of vectors whose distribution is known: closed forms for normal, uniform and exponential numbers,
// and how many elements several nodes touch together.
#include "codec/decoder.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/random_trials.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kSeed = 75;

/// ||C(x)||^2 / ||x||^2.
double kept_energy(double ratio, const std::vector<float>& values) {
    EncodeLoop loop(top_k_pipeline(ratio, 0, QuantizerKind::kF32), values.size(), 1, 0);
    const auto decoded = decode_payloads(loop.step(values).chunks, values.size());
    return square_norm(decoded) / square_norm(values);
}

/// 2 (t phi(t) + 1 - Phi(t)), where a share f of normal numbers is above t in magnitude.
TEST(SparsifierEnergy, Of_normal_numbers_is_the_closed_form) {
    const struct {
        double ratio;
        double energy;
        double tolerance;
    } rows[] = {{0.0001, 0.001703, 0.05}, {0.001, 0.012696, 0.02}, {0.01, 0.084492, 0.01},
                {0.05, 0.279100, 0.005},  {0.1, 0.439286, 0.005},  {0.5, 0.928674, 0.002}};
    std::mt19937_64 random(kSeed);
    const auto values = make_gradient(DataKind::kGaussian, 1'000'000, random);
    for (const auto& row : rows) {
        EXPECT_NEAR(kept_energy(row.ratio, values) / row.energy, 1, row.tolerance) << row.ratio << ", seed " << kSeed;
    }
}
/// E max^2 / E x^2, which is d times what Rand-1 keeps: 3 d / (d + 2) for numbers in [0, 1], and half of
/// H^2 + (the sum of 1 / i^2) for exponential ones, H being the harmonic number.
template <typename Distribution>
double top_one_over_rand_one(Distribution distribution, double second_moment, int vectors) {
    constexpr ElementCount kElements = 10'000;
    std::mt19937_64 random(kSeed);
    double sum = 0;
    for (int vector = 0; vector < vectors; ++vector) {
        std::vector<float> values(kElements);
        for (float& value : values) value = static_cast<float>(distribution(random));
        EncodeLoop loop(top_k_pipeline(1.0 / kElements, 0, QuantizerKind::kF32), kElements, 1, 0);
        sum += square_norm(decode_payloads(loop.step(values).chunks, kElements)) / second_moment / vectors;
    }
    return sum;
}
TEST(SparsifierEnergy, Of_the_largest_of_independent_numbers_is_the_closed_form) {
    EXPECT_NEAR(top_one_over_rand_one(std::uniform_real_distribution<double>(), 1.0 / 3, 20), 3 * 10000.0 / 10002,
                1e-2);
    EXPECT_NEAR(top_one_over_rand_one(std::exponential_distribution<double>(), 2, 600) / 48.72, 1, 0.04)
        << "seed " << kSeed;
}
/// W independent supports of density f touch 1 - (1 - f)^W: why exchanges of lists stop paying with many nodes.
TEST(SparsifierEnergy, Nodes_touch_the_union_of_their_supports) {
    constexpr ElementCount kElements = 200'000;
    for (const auto& [nodes, share] : {std::pair{8, 0.0773}, std::pair{16, 0.1485}, std::pair{64, 0.4744}}) {
        std::mt19937_64 random(kSeed);
        std::vector<EncodeResult> results;
        for (int node = 0; node < nodes; ++node) {
            EncodeLoop loop(top_k_pipeline(0.01, 0, QuantizerKind::kPow2), kElements, 1, 0);
            results.push_back(loop.step(make_gradient(DataKind::kGaussian, kElements, random)));
        }
        std::vector<std::vector<ChunkView>> views;
        std::vector<Contribution> contributions;
        for (const EncodeResult& result : results) {
            auto& chunks = views.emplace_back();
            for (const ChunkPayload& chunk : result.chunks) chunks.push_back({chunk.chunk_index, chunk.bytes});
        }
        for (const auto& chunks : views) contributions.push_back({1.0F / static_cast<float>(nodes), chunks});
        std::vector<float> average(kElements, 0.0F);
        const auto decoded = ResultTensor(1, average.data(), kElements).decode_average(1, contributions);
        ASSERT_TRUE(decoded.is_ok()) << decoded.status().to_string();
        EXPECT_NEAR(static_cast<double>(decoded->touched_elements) / kElements, share, 0.02 * share) << nodes;
    }
}
/// Magnitudes below the top octave, which alone is cut down: every mantissa, by nearest powers of two.
TEST(SparsifierEnergy, Powers_of_two_below_the_top_octave_err_by_a_third_at_most) {
    std::vector<float> values(4096);
    values[0] = 4;
    for (std::size_t element = 1; element < values.size(); ++element)
        values[element] = static_cast<float>(std::exp2((static_cast<double>(element) - 0.5) / 4095));
    EncodeLoop loop(*parse_pipeline("all | pow2(bits=4)"), values.size(), 1, 0);
    const auto decoded = decode_payloads(loop.step(values).chunks, values.size());
    double least = 1;
    double most = 1;
    double mean = 0;
    double square = 0;
    for (std::size_t element = 1; element < values.size(); ++element) {
        const double ratio = double{decoded[element]} / values[element];
        least = std::min(least, ratio);
        most = std::max(most, ratio);
        mean += (ratio - 1) / 4095;
        square += (ratio - 1) * (ratio - 1) / 4095;
    }
    EXPECT_NEAR(least, 2.0 / 3, 1e-3) << "g of rounding to the nearest power of two; a is its square, 4/9";
    EXPECT_NEAR(most, 4.0 / 3, 1e-3) << "b";
    EXPECT_NEAR(1 / (1 - std::pow(std::max(most - 1, 1 - least), 2)), 9.0 / 8, 1e-3) << "delta";
    EXPECT_NEAR(mean, -0.038, 0.001) << "it shrinks magnitudes whose logarithms are uniform";
    EXPECT_NEAR(std::sqrt(square), 0.195, 0.001);
}

}  // namespace
}  // namespace gradsieve::codec
