// Signatures of gradients against true angles, and the stage that asks for them.
#include "codec/stages/similarity.hpp"

#include "codec/pipeline.hpp"
#include "codec/pipeline_trial.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>

namespace gradsieve::codec {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 20260117;
constexpr double kBuckets = kSignatureBuckets;

using Values = std::vector<float>;

Values noise(std::size_t elements, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Values values(elements);
    for (auto& value : values) value = std::normal_distribution<float>()(random);
    return values;
}
Signature signature_of(const Values& values, TensorId tensor = 7) {
    const float* sample = values.data();
    const float weight = 1;
    return {tensor, {&sample, 1}, {&weight, 1}, values.size()};
}
double product(const Values& x, const Values& y) {
    double sum = 0;
    for (std::size_t at = 0; at < x.size(); ++at) sum += static_cast<double>(x[at]) * y[at];
    return sum;
}
double true_cosine(const Values& x, const Values& y) {
    return product(x, y) / std::sqrt(product(x, x) * product(y, y));
}
double product(const Signature& x, const Signature& y) {
    double sum = 0;
    for (std::size_t at = 0; at < kSignatureBuckets; ++at) sum += x.sums()[at] * y.sums()[at];
    return sum;
}
/// A pair whose angle is about `angle`.
std::pair<Values, Values> pair_at(double angle, std::size_t elements, std::uint64_t seed) {
    auto x = noise(elements, seed);
    auto y = noise(elements, seed + 1);
    for (std::size_t at = 0; at < elements; ++at)
        y[at] = static_cast<float>(std::cos(angle) * x[at] + std::sin(angle) * y[at]);
    return {std::move(x), std::move(y)};
}

TEST(Similarity, Cosine_and_bits_tell_the_true_angle) {
    for (const double degrees : {0.0, 5.0, 18.0, 45.0, 90.0, 135.0, 180.0})
        for (std::uint64_t trial = 0; trial < 5; ++trial) {
            const auto [x, y] = pair_at(degrees * std::numbers::pi / 180, 200'003, kSeed + 2 * trial);
            const auto left = signature_of(x);
            const auto right = signature_of(y);
            const double cosine = true_cosine(x, y);
            // Of two sums of the correlation c, b pairs of them: (1 - c^2) / sqrt(b).
            EXPECT_NEAR(*cosine_of(left, right), cosine, 5 * (1 - cosine * cosine) / std::sqrt(kBuckets) + 1e-6)
                << degrees << " degrees, seed " << kSeed << ", trial " << trial;
            const double share = std::acos(std::clamp(cosine, -1.0, 1.0)) / std::numbers::pi;
            const double differ = static_cast<double>(differing_bits(left, right)) / kBuckets;
            EXPECT_NEAR(differ, share, 5 * std::sqrt(share * (1 - share) / kBuckets) + 1e-3)
                << degrees << " degrees, seed " << kSeed << ", trial " << trial;
        }
}
TEST(Similarity, Product_has_the_stated_mean_and_variance_whatever_the_gradients_are) {
    constexpr std::size_t kElements = 40'960;
    constexpr int kTrials = 400;
    auto spikes = Values(kElements, 0.0F);
    auto column = Values(kElements, 0.0F);  // all of it where a matrix of 1,024 columns has its third one
    for (std::size_t at = 0; at < kElements; at += 4'999) spikes[at] = 3;
    for (std::size_t at = 2; at < kElements; at += 1'024) column[at] = static_cast<float>(at % 7) - 2;
    const auto [x, y] = pair_at(0.7, kElements, kSeed);
    const std::vector<std::tuple<const char*, Values, Values>> cases = {
        {"noise", x, y}, {"spikes", spikes, spikes}, {"spikes and noise", spikes, x}, {"column", column, column}};
    for (const auto& [name, left, right] : cases) {
        double sum = 0;
        double squares = 0;
        const double exact = product(left, right);
        for (int trial = 0; trial < kTrials; ++trial) {  // another tensor draws other signs
            const auto tensor = kSeed + static_cast<TensorId>(trial);
            const double error = product(signature_of(left, tensor), signature_of(right, tensor)) - exact;
            sum += error;
            squares += error * error;
        }
        const double bound = (product(left, left) * product(right, right) + exact * exact) / kBuckets;
        EXPECT_LE(std::fabs(sum / kTrials), 5 * std::sqrt(bound / kTrials)) << name << ", seed " << kSeed;
        // The share of a variance's estimate that chance adds, with room for sums of few terms.
        EXPECT_LE(squares / kTrials, bound * (1 + 10 / std::sqrt(kTrials))) << name << ", seed " << kSeed;
    }
}
TEST(Similarity, Gradient_is_the_mean_over_samples) {
    const auto x = noise(5'000, kSeed);
    const auto y = noise(5'000, kSeed + 1);
    Values mean(x.size());
    for (std::size_t at = 0; at < x.size(); ++at) mean[at] = 0.25F * x[at] + 0.75F * y[at];
    const std::vector<const float*> samples = {x.data(), y.data()};
    const std::vector<float> weights = {0.25F, 0.75F};
    const Signature of_samples(7, samples, weights, x.size());
    EXPECT_TRUE(std::ranges::equal(of_samples.sums(), signature_of(mean).sums()));
}
TEST(Similarity, Chunks_are_added_up_by_themselves_and_joined_in_order) {
    const auto x = noise(2 * kChunkElements + 5, kSeed);
    Signature joined;
    for (std::size_t first = 0; first < x.size(); first += kChunkElements) {
        const std::size_t end = std::min<std::size_t>(first + kChunkElements, x.size());
        Values chunk(end, 0.0F);  // zeros in front of it add nothing
        std::copy(x.begin() + static_cast<std::ptrdiff_t>(first), x.begin() + static_cast<std::ptrdiff_t>(end),
                  chunk.begin() + static_cast<std::ptrdiff_t>(first));
        joined.add_chunk(signature_of(chunk).sums());
    }
    EXPECT_TRUE(std::ranges::equal(joined.sums(), signature_of(x).sums())) << "seed " << kSeed;
}
TEST(Similarity, Sizes_around_a_row_keep_every_element_once) {
    for (const std::size_t elements : {1U, 2U, 1'023U, 1'024U, 1'025U, 2'049U}) {
        const auto x = Values(elements, 1.0F);
        double magnitudes = 0;
        const Signature signature = signature_of(x);
        for (const double sum : signature.sums()) magnitudes += std::fabs(sum);
        EXPECT_EQ(std::fmod(magnitudes, 2), static_cast<double>(elements % 2)) << elements;
        EXPECT_LE(magnitudes, static_cast<double>(elements)) << elements;
        EXPECT_NEAR(cosine_of(signature_of(x), signature_of(x)).value_or(0), 1, 1e-12) << elements;
        EXPECT_EQ(differing_bits(signature_of(x), signature_of(x)), 0U) << elements;
    }
}
TEST(Similarity, Zero_and_what_is_not_finite_have_no_cosine) {
    const auto x = noise(3'000, kSeed);
    auto broken = x;
    broken[17] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(cosine_of(signature_of(x), signature_of(Values(3'000, 0.0F))), std::nullopt);
    EXPECT_EQ(cosine_of(signature_of(x), signature_of(broken)), std::nullopt);
    EXPECT_EQ(cosine_of(signature_of({}), signature_of({})), std::nullopt);
}
TEST(Similarity, Stage_stands_first_and_changes_nothing_that_nodes_agree_on) {
    const auto pipeline = parse_pipeline("similarity | momentum | topk(0.1)");
    ASSERT_TRUE(pipeline.is_ok()) << pipeline.status().to_string();
    EXPECT_TRUE(pipeline->measures_similarity);
    EXPECT_EQ(
        canonical_text(*pipeline, Knobs::kKeep),
        "similarity | momentum(m=0.9, nesterov=no, clip=none) | topk(ratio=0.1, scope=tensor, gate=0) | f32 | auto");
    EXPECT_EQ(*parse_pipeline(canonical_text(*pipeline, Knobs::kKeep)), *pipeline);
    auto plain = *pipeline;
    plain.measures_similarity = false;
    EXPECT_EQ(canonical_text(*pipeline, Knobs::kBlank), canonical_text(plain, Knobs::kBlank))
        << "each node measures for itself";
}
TEST(Similarity, Stage_changes_no_payload) {
    const auto bytes_of = [](const char* text) {
        auto trial = PipelineTrial::of_noise(*parse_pipeline(text), 5'000, kSeed);
        std::vector<std::byte> all;
        for (int step = 0; step < 3; ++step) {
            EXPECT_TRUE(trial->step().is_ok());
            for (const auto& chunk : trial->payloads()) {
                const ByteView bytes = chunk.bytes;
                all.insert(all.end(), bytes.begin(), bytes.end());
            }
        }
        return all;
    };
    const auto plain = bytes_of("topk(0.1) | dither");
    EXPECT_GT(plain.size(), 1'000U);
    EXPECT_EQ(bytes_of("similarity | topk(0.1) | dither"), plain);
}
TEST(Similarity, Stage_elsewhere_is_refused) {
    const auto refusal = [](const char* text) { return parse_pipeline(text).status().text(); };
    EXPECT_THAT(refusal("similarity"), HasSubstr("a selector behind similarity"));
    EXPECT_THAT(refusal("similarity(2) | all"), HasSubstr("similarity"));
    EXPECT_THAT(refusal("all | similarity"), HasSubstr("before the selector"));
    EXPECT_THAT(refusal("momentum | similarity | all"), HasSubstr("before the selector"));
    EXPECT_THAT(refusal("similarity | similarity | all"), HasSubstr("once, before the selector"));
    EXPECT_THAT(refusal("similarty | all"), HasSubstr("did you mean similarity?"));
}

}  // namespace
}  // namespace gradsieve::codec
