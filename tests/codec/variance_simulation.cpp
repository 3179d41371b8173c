#include "variance_simulation.hpp"

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kBatch = 64;
/// Values are drawn once and read at a new random place each step: 26 draws an element before the first repeat.
constexpr std::size_t kPoolElements = std::size_t{1} << 20U;

struct Pools {
    std::vector<std::vector<float>> samples;
    std::vector<float> second_moment;
};

/// With sigma^2 = B the step's mean is N(snr, 1). Group means of B/M samples are N(snr, M). The second moment is
/// B * (chi^2 with B - 1 degrees of freedom + mean^2): the sum of squares about the mean is independent of the mean.
Pools make_pools(const RateCase& which, std::size_t size, std::mt19937_64& random) {
    Pools pools;
    const auto mean = static_cast<float>(which.signal_to_noise);
    std::normal_distribution<float> normal(mean, std::sqrt(static_cast<float>(which.groups)));
    for (std::size_t group = 0; group < which.groups; ++group) {
        std::vector<float>& pool = pools.samples.emplace_back(size);
        for (float& value : pool) value = normal(random);
    }
    if (which.provider != VarianceSource::kSecondMoment) return pools;
    std::gamma_distribution<float> half_chi_squared((kBatch - 1) / 2.0F, 2.0F);
    pools.second_moment.resize(size);
    for (std::size_t cell = 0; cell < size; ++cell) {
        const float value = pools.samples[0][cell];
        pools.second_moment[cell] = kBatch * (half_chi_squared(random) + value * value);
    }
    return pools;
}

}  // namespace

double simulate_send_rate(const RateCase& which, const RateRun& run, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const Pools pools = make_pools(which, kPoolElements + run.elements, random);
    Pipeline pipeline = variance_pipeline(which.alpha, QuantizerKind::kF32);
    pipeline.selector.zeta = which.zeta;
    pipeline.index_coder = IndexCoderKind::kRaw32;  // the cheapest: only the count is looked at
    EncodeLoop loop(pipeline, run.elements, which.groups, kBatch, false);
    std::vector<const float*> samples(which.groups);
    std::vector<const float*> moments(which.provider == VarianceSource::kSecondMoment ? 1 : 0);
    std::uint64_t sent = 0;
    for (int step = 0; step < run.steps; ++step) {
        for (std::size_t group = 0; group < which.groups; ++group) {
            const std::size_t place = random() % kPoolElements;
            samples[group] = pools.samples[group].data() + place;
            if (!moments.empty()) moments[0] = pools.second_moment.data() + place;
        }
        const EncodeResult result = loop.step(samples, moments);
        EXPECT_EQ(result.variance_source, which.provider);
        if (step >= run.counted_from) sent += result.kept_elements;
    }
    return static_cast<double>(sent) / static_cast<double>(run.elements) / (run.steps - run.counted_from);
}

std::vector<RateCase> rate_table() {
    struct Row {
        VarianceSource provider;
        std::size_t groups;
        double signal_to_noise;
        std::array<double, 4> rates;  // alpha 1, 1.5, 2, 4
        double zeta = 0.999;
    };
    using enum VarianceSource;
    const std::vector<Row> rows = {{kSecondMoment, 1, 0, {0.0522, 0.0127, 0.0046, 0.0005}},
                                   {kSecondMoment, 1, 0.5, {0.2501, 0.1736, 0.1322, 0.0668}},
                                   {kSecondMoment, 1, 1, {0.4809, 0.3948, 0.3354, 0.2081}},
                                   {kSecondMoment, 1, 2, {0.8424, 0.7852, 0.7319, 0.5584}},
                                   {kSecondMoment, 1, 0, {0.0445, 0.0090, 0.0028, 0.0002}, 1.0},
                                   {kGroups, 2, 0, {0.0682, 0.0189, 0.0073, 0.0009}},
                                   {kGroups, 2, 1, {0.5442, 0.4633, 0.4051, 0.2711}},
                                   {kGroups, 4, 0, {0.0575, 0.0146, 0.0054, 0.0007}},
                                   {kGroups, 4, 1, {0.5036, 0.4192, 0.3598, 0.2292}},
                                   {kGroups, 8, 0, {0.0544, 0.0134, 0.0049, 0.0006}},
                                   {kGroups, 8, 1, {0.4901, 0.4048, 0.3453, 0.2165}},
                                   {kSingle, 1, 0, {0.0704, 0.0158, 0.0046, 0.0005}},
                                   {kSingle, 1, 1, {0.3853, 0.3183, 0.2273, 0.1207}},
                                   {kSingle, 1, 2, {0.4872, 0.4569, 0.3243, 0.1841}}};
    constexpr std::array kAlphas = {1.0, 1.5, 2.0, 4.0};
    std::vector<RateCase> cases;
    for (const Row& row : rows) {
        for (std::size_t column = 0; column < kAlphas.size(); ++column) {
            cases.push_back(
                {row.provider, row.groups, row.signal_to_noise, kAlphas[column], row.rates[column], row.zeta});
        }
    }
    return cases;
}

std::string rate_case_name(const RateCase& which) {
    return std::string(variance_source_name(which.provider)) + ", M " + std::to_string(which.groups) + ", SNR " +
           std::to_string(which.signal_to_noise) + ", alpha " + std::to_string(which.alpha) + ", zeta " +
           std::to_string(which.zeta);
}

}  // namespace gradsieve::codec
