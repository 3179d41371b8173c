// Random selectors: how many elements and which are sent, that nodes agree on them and steps do not, probabilities by
// z-scores, and what forged payloads are refused for. Constants, exact expected errors and contraction are in the
// operator table, equality with the slow reference in the suites of every pipeline.
#include "codec/decoder.hpp"
#include "codec/payload_reader.hpp"
#include "codec/random_mask.hpp"
#include "codec/select_topk.hpp"
#include "codec/stages/adaptive_random.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/payload_form.hpp"
#include "tests/codec/random_trials.hpp"

#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>

namespace gradsieve::codec {
namespace {

using test::make_values;
using test::Shape;
using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 20;

struct Sent {
    std::vector<float> decoded;
    std::vector<ElementCount> elements;
    ElementCount kept = 0;
    std::size_t bytes = 0;
};

/// What one step sends of values none of which is zero, from a residual of zero.
Sent sent_once(const std::string& codec, const std::vector<float>& values, std::uint64_t selection_seed,
               std::uint64_t random_seed = 0, int steps = 1) {
    EncodeLoop loop(*parse_pipeline(codec), values.size(), 1, 0);
    loop.set_selection_seed(selection_seed);
    loop.set_random_seed(random_seed);
    Sent sent;
    for (int step = 0; step < steps; ++step) {
        std::ranges::fill(loop.residual(), 0.0F);
        const EncodeResult result = loop.step(values);
        sent.decoded = decode_payloads(result.chunks, values.size());
        sent.kept = result.kept_elements;
        sent.bytes = 0;
        for (const ChunkPayload& chunk : result.chunks) sent.bytes += chunk.bytes.size();
    }
    sent.elements = sent_elements(sent.decoded);
    return sent;
}

class DrawForm : public test::PayloadForm {};
INSTANTIATE_TEST_SUITE_P(All, DrawForm, ::testing::Values(CpuForm::kScalar, CpuForm::kAvx2, CpuForm::kAvx512));

TEST_P(DrawForm, Elements_are_kept_where_their_word_is_at_most_the_limit) {
    const PhiloxKey key{0x12345678U, 0x9ABCDEF0U};
    for (const std::uint32_t first : {0U, 5U * 4096U, 255U * 4096U})
        for (const std::uint32_t limit : {0U, 1U << 20U, 0x7FFFFFFFU, 0x80000000U, 0xF0000000U, ~0U})
            for (const std::uint32_t count : {1U, 31U, 32U, 33U, 1000U, 4096U}) {
                std::vector<std::uint32_t> words((count + 31) / 32 + 1, 0xA5A5A5A5U);
                const std::uint32_t kept =
                    kernels().draw_kept(random_rounds({key, 0, 0}), first, count, limit, words.data());
                std::uint32_t expected = 0;
                for (std::uint32_t i = 0; i < (count + 31) / 32 * 32; ++i) {
                    const PhiloxBlock block = selection_words(key, kKeepPurpose, (first + i) / 4, 0);
                    const bool is_kept = i < count && block.words[i % 4] <= limit;
                    ASSERT_EQ(words[i / 32] >> (i % 32) & 1U, is_kept ? 1U : 0U) << "element " << first + i;
                    expected += is_kept ? 1U : 0U;
                }
                ASSERT_EQ(kept, expected);
                ASSERT_EQ(words.back(), 0xA5A5A5A5U);
            }
}

TEST(RandK, Sends_exactly_k_and_of_each_tile_its_share) {
    for (const ElementCount elements : {ElementCount{1}, ElementCount{33}, ElementCount{5000}, ElementCount{40000},
                                        kChunkElements + 9000, 2 * kChunkElements + 1})
        for (const std::string ratio : {"1e-9", "0.003", "0.2", "0.5", "0.83", "1"}) {
            const Sent sent = sent_once("randk(" + ratio + ")", std::vector<float>(elements, -2.0F), kSeed);
            const std::size_t k = top_k_count(std::stod(ratio), elements);
            ASSERT_EQ(sent.elements.size(), k) << elements << ", " << ratio;
            ASSERT_EQ(sent.kept, k);
            std::vector<double> of_tile((elements + kTileElements - 1) / kTileElements, 0);
            for (const ElementCount element : sent.elements) of_tile[element / kTileElements] += 1;
            for (std::size_t tile = 0; tile < of_tile.size(); ++tile) {
                const ElementCount size = std::min(kTileElements, elements - tile * kTileElements);
                const double expected =
                    static_cast<double>(k) / static_cast<double>(elements) * static_cast<double>(size);
                ASSERT_LE(std::fabs(of_tile[tile] - expected), 2 + 1e-9) << "chunks, then tiles, each by less than one";
            }
        }
}
TEST(RandK, Nodes_send_the_same_elements_and_steps_others) {
    for (const std::string codec :
         {"randk(0.1)", "bernoulli(0.1)", "biased_random(0.2, 0.05)", "randk(0.1, none) | natural"}) {
        const auto values = make_values(Shape::kGaussian, 20000, 5);
        const auto first = sent_once(codec, values, kSeed, 1);
        EXPECT_EQ(sent_once(codec, values, kSeed, 2).elements, first.elements) << codec << ": another node";
        EXPECT_NE(sent_once(codec, values, kSeed + 1, 1).elements, first.elements) << codec << ": another job";
        EXPECT_NE(sent_once(codec, values, kSeed, 1, 2).elements, first.elements) << codec << ": another step";
    }
}
TEST(RandK, A_payload_has_a_key_and_values_alone) {
    const std::vector<float> values(50000, 1.5F);
    EXPECT_EQ(sent_once("randk(0.1)", values, kSeed).bytes, 2 + 2 + 1 + 8 + 4 * 5000U);
    const Sent kept = sent_once("bernoulli(0.1)", values, kSeed);
    EXPECT_EQ(kept.bytes, 2 + 2 + 1 + 16 + 4 * kept.elements.size());
}
TEST(RandK, Zeros_are_sent_and_a_sign_of_zero_is_positive) {
    std::vector<float> values(64, 0.0F);
    values[7] = -3.0F;
    const Sent sent = sent_once("randk(1) | sign", values, kSeed);
    EXPECT_EQ(sent.kept, 64U);
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(sent.decoded[i], i == 7 ? -0.046875F : 0.046875F) << i;
    EXPECT_EQ(sent_once("randk(0.5)", std::vector<float>(64, -0.0F), kSeed).kept, 32U);
}

/// How often each element is sent, in `steps` steps.
std::vector<double> counts_of(const std::string& codec, const std::vector<float>& values, int steps) {
    EncodeLoop loop(*parse_pipeline(codec), values.size(), 1, 0);
    loop.set_selection_seed(kSeed);
    loop.set_random_seed(kSeed);
    std::vector<double> counts(values.size(), 0);
    for (int step = 0; step < steps; ++step) {
        std::ranges::fill(loop.residual(), 0.0F);
        for (const ElementCount element : sent_elements(decode_payloads(loop.step(values).chunks, values.size())))
            counts[element] += 1;
    }
    return counts;
}
void expect_probabilities(const std::vector<double>& counts, int steps,
                          const std::function<double(std::size_t)>& probability_of, const std::string& codec) {
    double chi = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const double p = probability_of(i);
        const double z = (counts[i] - steps * p) / std::sqrt(steps * p * (1 - p));
        ASSERT_LE(std::fabs(z), 6) << codec << ", element " << i << ", seed " << kSeed;
        chi += z * z;
    }
    const auto n = static_cast<double>(counts.size());
    EXPECT_LE(std::fabs(chi - n), 6 * std::sqrt(2 * n) + 0.02 * n) << codec << ", seed " << kSeed;
}
TEST(RandK, Every_element_is_as_likely) {
    constexpr int kSteps = 600;
    // Tiles of 4,096 and one of 100, one more sent than tiles have.
    const std::vector<float> values(2 * kTileElements + 100, 1.0F);
    for (const double ratio : {0.1, 0.5, 0.8}) {
        const double p = static_cast<double>(top_k_count(ratio, values.size())) / static_cast<double>(values.size());
        const std::string codec = "randk(" + std::to_string(ratio) + ")";
        expect_probabilities(
            counts_of(codec, values, kSteps), kSteps, [p](std::size_t) { return p; }, codec);
    }
    expect_probabilities(
        counts_of("bernoulli(0.3)", values, kSteps), kSteps, [](std::size_t) { return 0.3; }, "bernoulli");
}
TEST(BiasedRandom, Probabilities_go_from_the_first_tile_to_the_last) {
    constexpr int kSteps = 600;
    const std::vector<float> values(4 * kTileElements + 50, 1.0F);
    const auto probability = [](double first, double last) {
        return [=](std::size_t element) {
            return first + (last - first) * static_cast<double>(element / kTileElements) / 4;
        };
    };
    expect_probabilities(counts_of("biased_random(0.5, 0.1)", values, kSteps), kSteps, probability(0.5, 0.1), "falls");
    expect_probabilities(counts_of("biased_random(0.1, 0.9)", values, kSteps), kSteps, probability(0.1, 0.9), "rises");
}
TEST(BiasedRandom, Its_constants_are_those_of_the_least_probability) {
    // B1(q, 1): all of the energy where elements are least likely.
    constexpr int kSteps = 300;
    std::vector<float> values(3 * kTileElements, 0.0F);
    std::fill(values.begin() + 2 * kTileElements, values.end(), 1.0F);
    EncodeLoop loop(*parse_pipeline("biased_random(0.9, 0.2)"), values.size(), 1, 0);
    loop.set_selection_seed(kSeed);
    double sent = 0;
    for (int step = 0; step < kSteps; ++step) {
        std::ranges::fill(loop.residual(), 0.0F);
        sent += square_norm(decode_payloads(loop.step(values).chunks, values.size())) / square_norm(values);
    }
    const double spread = std::sqrt(0.2 * 0.8 / (kSteps * static_cast<double>(kTileElements)));
    EXPECT_NEAR(sent / kSteps, 0.2, 6 * spread) << "seed " << kSeed;
}
TEST(RandK, Without_feedback_the_mean_of_what_arrives_is_the_gradient) {
    constexpr int kSteps = 2000;
    constexpr double kLeastSquare = 1e-3;  // of what hardly ever happens too few trials tell the variance
    for (const std::string codec :
         {"randk(0.25, none)", "bernoulli(0.25, none)", "randk(0.25, none) | natural", "bernoulli(0.25, none) | dither",
          "randk(0.25, none) | exponential_dither(norm=l2)"}) {
        const auto values = make_values(Shape::kGaussian, 400, 3);
        EncodeLoop loop(*parse_pipeline(codec), values.size(), 1, 0);
        EXPECT_TRUE(loop.residual().empty()) << codec << " keeps nothing";
        loop.set_selection_seed(kSeed);
        loop.set_random_seed(kSeed);
        TrialMoments trials(values);
        std::vector<double> squares(values.size(), 0);
        for (int step = 0; step < kSteps; ++step) {
            const auto decoded = decode_payloads(loop.step(values).chunks, values.size());
            trials.add(decoded);
            for (std::size_t i = 0; i < values.size(); ++i) squares[i] += std::pow(decoded[i] - values[i], 2) / kSteps;
        }
        for (std::size_t i = 0; i < values.size(); ++i)
            ASSERT_LE(std::fabs(trials.deviation(i)), 6 * std::sqrt(std::max(squares[i], kLeastSquare) / kSteps))
                << codec << ", element " << i << ", seed " << kSeed;
    }
}
TEST(RandK, Without_feedback_values_stay_finite) {
    const std::vector<float> values(1000, -FLT_MAX);
    const Sent sent = sent_once("randk(0.01, none)", values, kSeed);
    EXPECT_EQ(sent.elements.size(), 10U);
    for (const ElementCount element : sent.elements) EXPECT_EQ(sent.decoded[element], -FLT_MAX);
}

TEST(RandomSelection, Numbers_below_a_bound_are_as_likely) {
    // Of 2^32 words, 2^32 mod bound are replaced, and each number has as many of the others.
    const std::uint32_t bound = 0xC0000001U;
    std::uint32_t number = 0;
    EXPECT_FALSE(draw_below(0, bound, number)) << "0 is one of the surplus";
    EXPECT_TRUE(draw_below(~0U, bound, number));
    EXPECT_EQ(number, bound - 1);
    std::uint64_t state = kSeed;
    std::size_t replaced = 0;
    for (int draw = 0; draw < 100000; ++draw)
        replaced += draw_below(static_cast<std::uint32_t>(test::random_word(state)), bound, number) ? 0U : 1U;
    EXPECT_NEAR(static_cast<double>(replaced), 25000, 6 * std::sqrt(100000 * 0.25 * 0.75)) << "seed " << kSeed;
    for (std::uint32_t power = 1; power != 0; power *= 2)
        for (const std::uint32_t word : {0U, 1U, 12345678U, ~0U}) {
            ASSERT_TRUE(draw_below(word, power, number)) << "nothing is left over of a power of two";
            ASSERT_EQ(number, static_cast<std::uint64_t>(word) * power >> 32U);
        }
}
TEST(RandomSelection, Limits_stand_for_probabilities) {
    EXPECT_EQ(selection_limit(1), ~0U);
    EXPECT_EQ(selection_limit(0.5), 0x7FFFFFFFU);
    EXPECT_EQ(selection_limit(0x1p-32), 0U);
    EXPECT_EQ(selection_limit(1e-30), 0U);
    EXPECT_EQ(limit_probability(selection_limit(0.25)), 0.25);
}
TEST(RandomSelection, Shares_of_chunks_add_up_in_tensors_of_any_size) {
    Selector selector;
    selector.kind = SelectorKind::kRandK;
    for (const double ratio : {1e-7, 0.3, 1.0}) {
        selector.ratio = ratio;
        const ElementCount elements = (ElementCount{1} << 31U) + 12345;
        const SelectionPlan plan(selector, kSeed, 1, 2, elements);
        ElementCount sum = 0;
        for (std::uint32_t chunk = 0; chunk * kChunkElements < elements; ++chunk) sum += plan.rule(chunk).count;
        EXPECT_EQ(sum, top_k_count(ratio, elements)) << ratio;
    }
    selector.ratio = 0.7;
    const ElementCount huge = (ElementCount{1} << 51U) + 1;
    const SelectionPlan plan(selector, kSeed, 1, 2, huge);
    EXPECT_NEAR(plan.rule(0x7FFFFFFFU).count, 0.7 * static_cast<double>(kChunkElements), 1);
}

TEST(AdaptiveRandom, Weights_and_targets_are_whole_numbers_of_the_definition) {
    EXPECT_EQ(draw_weight(element::bits_of(1.0F), element::bits_of(1.0F)), 1U << 30U);
    EXPECT_EQ(draw_weight(element::bits_of(1.0F), element::bits_of(1.99F)), 1U << 30U);
    EXPECT_EQ(draw_weight(element::bits_of(0.75F), element::bits_of(4.0F)), 3U << 26U);
    EXPECT_EQ(draw_weight(element::bits_of(0x1p-30F), element::bits_of(1.0F)), 1U);
    EXPECT_EQ(draw_weight(element::bits_of(0x1p-31F), element::bits_of(1.0F)), 0U);
    EXPECT_EQ(draw_weight(1, 0x400000U), 1U << 7U) << "subnormal";
    std::uint64_t state = kSeed;
    __extension__ using Wide = unsigned __int128;
    for (int draw = 0; draw < 10000; ++draw) {
        const std::uint64_t word = draw == 0 ? ~std::uint64_t{0} : test::random_word(state);
        const std::uint64_t total = (test::random_word(state) >> 21U) + 1;
        ASSERT_EQ(draw_target(word, total), static_cast<std::uint64_t>((static_cast<Wide>(word) * total) >> 64U));
    }
}
TEST(AdaptiveRandom, A_block_of_one_magnitude_or_of_zeros_sends_what_it_can) {
    std::vector<float> values(8192, 0.0F);
    values[4100] = -2.0F;
    const Sent sent = sent_once("adaptive_random(0.5)", values, 0);
    EXPECT_EQ(sent.elements, std::vector<ElementCount>{4100});
    EXPECT_EQ(sent.decoded[4100], -2.0F);
    // 64 draws out of 64 alike reach about 1 - 1/e of them.
    const Sent some = sent_once("adaptive_random(1, block=64)", std::vector<float>(64 * 100, 3.0F), 0, kSeed);
    EXPECT_NEAR(static_cast<double>(some.elements.size()), 6400 * (1 - std::pow(63.0 / 64, 64)), 250);
}

Bytes payload_of(const char* text, std::size_t elements) {
    test::PipelineCase one{text, *parse_pipeline(text), false};
    const auto data = test::make_case_data(one, Shape::kGaussian, elements, 3);
    return test::code(one.pipeline, elements, false, data.indices, data.values).payload;
}
TEST(RandomSelection, Forged_keys_are_refused_or_stand_for_other_positions) {
    Bytes payload = payload_of("bernoulli(0.5)", 300);
    ASSERT_TRUE(validate_chunk(payload, 300).is_ok());
    const auto refusal = [](const Bytes& bytes, ElementCount elements) {
        const Status status = validate_chunk(bytes, elements);
        EXPECT_EQ(status.code(), StatusCode::kCorrupt);
        return status.text();
    };
    Bytes more = payload;
    more[16] = std::byte{0xFF};  // the first limit's highest
    EXPECT_THAT(refusal(more, 300), HasSubstr("as many as its key and its limits stand for"));
    Bytes cut(payload.begin(), payload.begin() + 12);
    EXPECT_THAT(refusal(cut, 300), HasSubstr("selection key cut off"));
    Bytes version = payload;
    version[0] = std::byte{2};
    EXPECT_THAT(refusal(version, 300), HasSubstr("version of index form 6"));
    Bytes subset = payload_of("randk(0.5)", 300);
    subset[5] ^= std::byte{1};  // another key: as many other positions
    EXPECT_TRUE(validate_chunk(subset, 300).is_ok());
    EXPECT_THAT(refusal(subset, 100), HasSubstr("count 150"));
    EXPECT_FALSE(validate_chunk(subset, 0).is_ok());
}

}  // namespace
}  // namespace gradsieve::codec
