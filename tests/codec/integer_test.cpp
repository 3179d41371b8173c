// Scaled integer rounding: its forms against the formula written out, its edges, and what theory says of it. Seeds are
// fixed: steps number the trials.
#include "codec/decoder.hpp"
#include "codec/integer_coder.hpp"
#include "codec/payload_reader.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/payload_form.hpp"
#include "tests/codec/random_trials.hpp"

#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>
#include <random>

namespace gradsieve::codec {
namespace {

using test::all_magnitudes;
using test::float_bits;
using test::make_values;
using test::Shape;
using ::testing::HasSubstr;

constexpr ElementCount kFirst = 3 * kChunkElements + 7 * kTileElements;

Pipeline integer_pipeline(const std::string& arguments) { return *parse_pipeline("all | integer(" + arguments + ")"); }

/// By the page, with an fp32 product and otherwise exactly.
std::int64_t whole_plainly(float value, float scale, bool is_biased, std::uint32_t word) {
    const double exact = std::min<double>(std::fabs(value) * scale, 8388607.0);
    const double below = std::floor(exact);
    const double fraction = std::floor((exact - below) * 16777216.0);
    const double random = is_biased ? 8388608.0 : static_cast<double>(word >> 8U);
    const auto magnitude = static_cast<std::int64_t>(below) + (fraction + random >= 16777216.0 ? 1 : 0);
    return value < 0 ? -magnitude : magnitude;
}
std::uint32_t word_code(std::int64_t whole) {
    return static_cast<std::uint32_t>(std::abs(whole)) | (whole < 0 ? 0x80000000U : 0U);
}

class IntegerForm : public test::PayloadForm {};
INSTANTIATE_TEST_SUITE_P(All, IntegerForm, ::testing::Values(CpuForm::kScalar, CpuForm::kAvx2, CpuForm::kAvx512));

TEST_P(IntegerForm, Consecutive_elements_are_rounded_as_the_formula_says) {
    const RandomStream random = rounding_stream(61, 62, 63);
    for (const std::string arguments : {"1", "1e4", "37.5, biased", "1e-30", "1e30", "3e6"})
        for (const std::uint32_t count : {1U, 3U, 31U, 32U, 33U, 65U, 1000U, 4096U}) {
            const auto values = count % 2 == 0 ? all_magnitudes(count) : make_values(Shape::kGaussian, count, count);
            const IntegerStep step = integer_step(integer_pipeline(arguments).quantizer, random, kFirst);
            std::vector<std::uint32_t> codes(count + 1, 0xC5U);
            std::vector<float> decoded(count, NAN);
            std::vector<float> left(count, NAN);
            const std::uint32_t magnitudes =
                kernels().integer_dense(step, values.data(), count, codes.data(), decoded.data(), left.data());
            std::uint32_t expected = 0;
            for (std::uint32_t i = 0; i < count; ++i) {
                const auto whole =
                    whole_plainly(values[i], step.scale, step.is_biased, rounding_word(random, kFirst + i));
                const float value = static_cast<float>(whole) * step.size;
                ASSERT_EQ(codes[i], word_code(whole)) << arguments << ": " << values[i] << ", element " << i;
                ASSERT_EQ(float_bits(decoded[i]), float_bits(value + 0.0F)) << arguments << ", element " << i;
                ASSERT_EQ(float_bits(left[i]), float_bits(values[i] - decoded[i]));
                expected |= codes[i] & 0x7FFFFFFFU;
            }
            ASSERT_EQ(magnitudes, expected);
            ASSERT_EQ(codes.back(), 0xC5U);
        }
}
TEST_P(IntegerForm, Lists_are_rounded_as_the_formula_says) {
    const RandomStream random = rounding_stream(71, 72, 73);
    for (const std::string arguments : {"0.01", "1e3, biased"})
        for (const std::uint32_t count : {1U, 7U, 15U, 16U, 17U, 100U, 4096U}) {
            auto values = all_magnitudes(count);
            const auto inputs = values;
            std::vector<std::uint32_t> indices;
            for (std::uint32_t i = 0; i < count; ++i) indices.push_back(i * (4096 / count));
            const IntegerStep step = integer_step(integer_pipeline(arguments).quantizer, random, kFirst);
            std::vector<std::uint32_t> codes(count + 1, 0xC5U);
            const auto sent =
                kernels().integer_list(step, values.data(), indices.data(), count, values.data(), codes.data());
            std::uint32_t expected = 0;
            for (std::uint32_t i = 0; i < count; ++i) {
                const auto whole =
                    whole_plainly(inputs[i], step.scale, step.is_biased, rounding_word(random, kFirst + indices[i]));
                ASSERT_EQ(codes[i], word_code(whole)) << inputs[i];
                ASSERT_EQ(float_bits(values[i]), float_bits(static_cast<float>(whole) * step.size + 0.0F));
                expected += whole != 0 ? 1U : 0U;
            }
            EXPECT_EQ(sent, expected);
            EXPECT_EQ(codes.back(), 0xC5U);
        }
}
TEST_P(IntegerForm, Fields_of_every_width_hold_every_code_and_come_back) {
    for (unsigned bits = kLeastIntegerBits; bits <= kMostIntegerBits; ++bits)
        for (const std::uint32_t count : {1U, 7U, 8U, 9U, 63U, 4096U, 4099U, 9000U}) {
            std::uint64_t state = bits * 10000 + count;
            std::vector<std::uint32_t> codes(count);
            for (auto& code : codes) {
                code = static_cast<std::uint32_t>(test::random_word(state)) & ((1U << (bits - 1)) - 1);
                if (code != 0 && test::random_word(state) % 2 == 0) code |= kIntegerSign;
            }
            const std::size_t bytes = bytes_of_bits(std::uint64_t{count} * bits);
            std::vector<std::byte> packed(bytes + 16, std::byte{0xA7});
            ASSERT_EQ(build_integers(codes, bits, kernels(), packed.data()), packed.data() + bytes);
            std::vector<float> values(count + 1, 9.5F);
            read_integers(ByteView(packed).first(bytes), 0, count, bits, 0.25F, values.data());
            for (std::uint32_t i = 0; i < count; ++i) {
                const float size = static_cast<float>(codes[i] & ~kIntegerSign) * 0.25F;
                ASSERT_EQ(values[i], (codes[i] & kIntegerSign) != 0 ? -size : size) << bits << " bits, field " << i;
            }
            ASSERT_EQ(values.back(), 9.5F);
        }
}

TEST(Integer, A_payload_has_as_many_bits_as_the_largest_code_takes) {
    EXPECT_EQ(integer_bits(1), 2U);
    EXPECT_EQ(integer_bits(2), 3U);
    EXPECT_EQ(integer_bits(0x7F), 8U);
    EXPECT_EQ(integer_bits(kMostInteger), 24U);
    for (const auto& [value, bits] : {std::pair{1.0F, 2U}, {3.0F, 3U}, {-4.0F, 4U}, {1000.0F, 11U}, {-1e9F, 24U}}) {
        std::vector<float> values(100, 0.0F);
        values[70] = value;
        const auto payload = test::code(integer_pipeline("1"), 100, true, {}, values).payload;
        const auto header = parse_header(payload, 100);
        ASSERT_TRUE(header.is_ok());
        EXPECT_EQ(header->header.code_bits, bits) << value;
        EXPECT_EQ(payload.size(), 7 + (100 * bits + 7) / 8) << value;
    }
    const std::vector<float> small(100, 0.25F);
    EXPECT_TRUE(test::code(integer_pipeline("1, biased"), 100, true, {}, small).payload.empty()) << "nothing to say";
}
TEST(Integer, What_is_too_large_is_cut_off_and_stays_in_the_residual) {
    for (const std::string mode : {"unbiased", "biased"}) {
        EncodeLoop loop(integer_pipeline("1, " + mode), 6, 1, 0);
        const std::vector<float> gradient = {8388607.0F, -8388608.0F, 3e7F, FLT_MAX, -FLT_MAX, -5.0F};
        const auto decoded = decode_payloads(loop.step(gradient).chunks, 6);
        constexpr float kMost = 8388607.0F;
        EXPECT_EQ(decoded, (std::vector<float>{kMost, -kMost, kMost, kMost, -kMost, -5.0F}));
        for (std::size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(loop.residual()[i], gradient[i] - decoded[i]) << i;
        const auto next = decode_payloads(loop.step(std::vector<float>(6, 0.0F)).chunks, 6);
        EXPECT_EQ(next[1], -1.0F) << "and is sent next";
        EXPECT_EQ(next[2], kMost);
    }
}
TEST(Integer, Zeros_are_zeros_and_whole_numbers_are_unchanged) {
    std::vector<float> values = {0.0F, -0.0F};
    for (int whole = -2000; whole <= 2000; ++whole) values.push_back(static_cast<float>(whole) / 8);
    for (Step step = 1; step <= 5; ++step) {
        EncodeLoop loop(integer_pipeline("8"), values.size(), 1, 0);
        loop.set_random_seed(step);
        const auto decoded = decode_payloads(loop.step(values).chunks, values.size());
        for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(decoded[i], values[i]) << i;
        ASSERT_EQ(float_bits(decoded[1]), 0U);
    }
}
TEST(Integer, Fed_back_errors_stay_below_a_step) {
    for (const std::string text : {"10", "10, biased"}) {
        EncodeLoop loop(integer_pipeline(text), 5000, 1, 0);
        std::mt19937_64 random(81);
        for (int step = 0; step < 20; ++step) {
            loop.step(make_gradient(DataKind::kHeavyTailed, 5000, random));
            const float limit = text == "10" ? 0.1F : 0.05F;
            for (const float left : loop.residual()) ASSERT_LE(std::fabs(left), limit * 1.0001F + 1e-4F);
        }
    }
}

TEST(IntegerTheory, Means_are_the_values_and_errors_are_f_times_one_minus_f_steps) {
    constexpr int kTrials = 4000;
    for (const double scale : {16.0, 300.0}) {
        const auto values = make_values(Shape::kGaussian, 500, 82);
        TrialMoments moments(values);
        run_trials(integer_pipeline(std::to_string(scale) + ", unbiased, none"), values, kTrials,
                   [&](const std::vector<float>& decoded) {
                       for (std::size_t i = 0; i < decoded.size(); ++i)
                           ASSERT_LT(std::fabs(double{decoded[i]} - values[i]), (1 + 1e-5) / scale);
                       moments.add(decoded);
                   });
        double expected = 0;
        double chi = 0;
        std::size_t random = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double exact = std::fabs(double{values[i]}) * scale;
            const double fraction = exact - std::floor(exact);
            const double variance = fraction * (1 - fraction) / (scale * scale);
            expected += variance;
            if (fraction < 0.05 || fraction > 0.95)
                continue;  // scores are normal where both neighbours are drawn often
            const double score = moments.deviation(i) / std::sqrt(variance / kTrials);
            EXPECT_LT(std::fabs(score), 6.0) << "element " << i;
            chi += score * score;
            ++random;
        }
        ASSERT_GT(random, 300U);
        EXPECT_LT(std::fabs(chi - static_cast<double>(random)), 6 * std::sqrt(2.0 * static_cast<double>(random)));
        EXPECT_NEAR(moments.mean_error(), expected, 5 * moments.error_spread());
    }
}
TEST(IntegerTheory, The_nearest_form_errs_by_at_most_half_a_step) {
    const auto values = make_values(Shape::kHeavyTailed, 4000, 83);
    run_trials(integer_pipeline("40, biased"), values, 1, [&](const std::vector<float>& decoded) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (std::fabs(values[i]) >= 8388607.0F / 40) continue;
            ASSERT_LE(std::fabs(double{decoded[i]} - values[i]), 0.0125 * (1 + 1e-6) + 1e-7 * std::fabs(values[i]));
        }
    });
}
TEST(IntegerTheory, Neither_form_has_a_bound_relative_to_the_vector) {
    // Of magnitudes of a thousandth step: E ||C(x)||^2 = 1000 ||x||^2 of the one form, and nothing sent by the other.
    const std::vector<float> tiny(4096, 1e-3F);
    double sent = 0;
    constexpr int kTrials = 200;
    run_trials(integer_pipeline("1, unbiased, none"), tiny, kTrials,
               [&](const std::vector<float>& decoded) { sent += square_norm(decoded) / kTrials; });
    EXPECT_NEAR(sent / square_norm(tiny), 1000, 30);
    run_trials(integer_pipeline("1, biased"), tiny, 1,
               [&](const std::vector<float>& decoded) { EXPECT_EQ(square_norm(decoded), 0.0); });
}

std::string refusal(const Bytes& payload, std::size_t elements) {
    return validate_chunk(payload, elements).to_string();
}
TEST(IntegerPayload, Damaged_headers_and_sections_are_refused) {
    const auto values = make_values(Shape::kGaussian, 33, 84);
    const Bytes bytes = test::code(integer_pipeline("100"), 33, true, {}, values).payload;
    ASSERT_TRUE(validate_chunk(bytes, 33).is_ok());
    const auto with = [&](std::size_t at, unsigned value) {
        Bytes damaged = bytes;
        damaged[at] = static_cast<std::byte>(value);
        return refusal(damaged, 33);
    };
    EXPECT_THAT(with(0, 4), HasSubstr("version of quantizer 10 4: allowed is 5"));
    EXPECT_THAT(with(2, 0), HasSubstr("integer width code 0: allowed is 1 to 23"));
    EXPECT_THAT(with(2, 24), HasSubstr("integer width code 24"));
    EXPECT_THAT(with(2, 0x40U | 3U), HasSubstr("reserved value bits 1"));
    EXPECT_THAT(with(2, 0x20U | 8U), HasSubstr("coded values of bits 9: allowed is 2 to 8"));
    for (const float step : {0.0F, -1.0F, NAN, INFINITY, std::ldexp(1.5F, 100), std::ldexp(0.9F, -100)}) {
        Bytes damaged = bytes;
        std::memcpy(damaged.data() + 3, &step, sizeof(step));
        EXPECT_THAT(refusal(damaged, 33), HasSubstr("step of integers")) << step;
    }
    for (std::size_t length = 0; length < bytes.size(); ++length)
        EXPECT_FALSE(validate_chunk(ByteView(bytes).first(length), 33).is_ok()) << length;
    Bytes longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(validate_chunk(longer, 33).is_ok());
}
TEST(IntegerPayload, Fields_decode_one_by_one_to_what_sections_decode_to) {
    for (const unsigned bits : {kLeastIntegerBits, 3U, 8U, 9U, 16U, 17U, kMostIntegerBits}) {
        constexpr std::size_t kCount = 4101;
        std::vector<std::uint32_t> codes;
        std::mt19937 random(bits);
        for (std::size_t i = 0; i < kCount; ++i)
            codes.push_back(random() & (kIntegerSign | ((1U << (bits - 1U)) - 1U)));
        Bytes section(kCount * bits / 8 + 64);
        const std::byte* end = build_integers(codes, bits, payload_kernels(), section.data());
        EXPECT_EQ(static_cast<std::size_t>(end - section.data()), (kCount * bits + 7) / 8);
        std::vector<float> values(kCount);
        read_integers(section, 0, kCount, bits, 0.1F, values.data());
        for (std::size_t i = 0; i < kCount; ++i) {
            const std::uint32_t field = (codes[i] & ~kIntegerSign) | codes[i] >> 31U << (bits - 1U);
            ASSERT_EQ(float_bits(values[i]), integer_decoded_bits(field, bits, 0.1F)) << bits << " " << i;
        }
    }
}
TEST(IntegerPayload, Nodes_with_widths_and_forms_of_their_own_add_up) {
    constexpr std::size_t kElements = 3 * kTileElements + 77;
    std::vector<Bytes> payloads;
    std::vector<std::vector<float>> decoded;
    for (const std::string text :
         {"all | integer(10)", "all | integer(1e5)", "topk(0.5) | integer(100)", "all | f32"}) {
        const auto pipeline = *parse_pipeline(text);
        const bool is_dense = pipeline.selector.kind == SelectorKind::kAll;
        const auto values = make_values(Shape::kGaussian, kElements, payloads.size());
        std::vector<std::uint32_t> indices;
        for (std::uint32_t i = 0; i < kElements; ++i)
            if (!is_dense && i % 2 == 0) indices.push_back(i);
        std::vector<float> picked = values;
        if (!is_dense)
            for (std::size_t i = 0; i < indices.size(); ++i) picked[i] = values[indices[i]];
        picked.resize(is_dense ? kElements : indices.size());
        const auto coded = test::code(pipeline, kElements, is_dense, indices, picked);
        payloads.push_back(coded.payload);
        decoded.emplace_back(kElements, 0.0F);
        for (std::size_t i = 0; i < picked.size(); ++i) decoded.back()[is_dense ? i : indices[i]] = coded.decoded[i];
    }
    std::vector<ChunkView> chunks;
    for (const Bytes& payload : payloads) chunks.push_back({0, payload});
    std::vector<Contribution> contributions;
    for (std::size_t node = 0; node < chunks.size(); ++node)
        contributions.push_back({0.25F, std::span(&chunks[node], 1)});
    std::vector<float> memory(kElements, NAN);
    ResultTensor tensor(1, memory.data(), kElements);
    ASSERT_TRUE(tensor.decode_average(1, contributions).is_ok());
    for (std::size_t i = 0; i < kElements; ++i) {
        float sum = 0;
        for (const auto& node : decoded) sum = sum + 0.25F * node[i];
        ASSERT_EQ(float_bits(memory[i]), float_bits(sum)) << i;
    }
}

}  // namespace
}  // namespace gradsieve::codec
