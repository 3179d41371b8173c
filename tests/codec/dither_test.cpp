// The forms of dithering against the formulas written out element by element, and its edges. Its statistics are in
// dither_theory_test.cpp.
#include "codec/dither_coder.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/payload_form.hpp"
#include "tests/codec/random_trials.hpp"

#include <cfloat>
#include <cmath>

namespace gradsieve::codec {
namespace {

using test::float_bits;
using test::make_values;
using test::Shape;

constexpr ElementCount kFirst = 3 * kChunkElements + 7 * kTileElements;

struct Plain {
    std::vector<float> decoded;
    std::vector<std::uint32_t> codes;
};
/// By the page: t = |x| / q in 2^-24 levels, rounded up where the element's 24 random bits carry.
Plain dither_plainly(const DitherRule& rule, const DitherUnit& unit, const RandomStream& random,
                     const std::vector<float>& values, const std::vector<std::uint32_t>& indices) {
    Plain plain;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint64_t element = kFirst + (indices.empty() ? i : indices[i]);
        const std::uint32_t word = rounding_word(random, element);
        const float in_levels = std::fabs(values[i]) * unit.to_levels;
        const double most = std::ldexp(rule.levels, 24);
        const double whole = std::floor(std::min(static_cast<double>(in_levels), most));
        const double level = std::floor(std::ldexp(whole + (word >> 8U), -24));
        const bool is_negative = values[i] < 0 && level > 0;
        const float size = static_cast<float>(level) * unit.scale;
        plain.decoded.push_back(is_negative ? -size : size);
        plain.codes.push_back(static_cast<std::uint32_t>(level) + (is_negative ? 1U << (rule.bits - 1) : 0U));
    }
    return plain;
}

DitherRule rule_of(int levels, Norm norm, Feedback feedback, bool is_list) {
    Quantizer quantizer;
    quantizer.kind = QuantizerKind::kDither;
    quantizer.levels = levels;
    quantizer.norm = norm;
    quantizer.feedback = feedback;
    return dither_rule(quantizer, is_list);
}

class DitherForm : public test::PayloadForm {};
INSTANTIATE_TEST_SUITE_P(All, DitherForm, ::testing::Values(CpuForm::kScalar, CpuForm::kAvx2, CpuForm::kAvx512));

std::uint32_t field(const std::vector<std::byte>& bytes, std::size_t position, std::uint32_t width) {
    std::uint32_t value = 0;
    for (std::uint32_t bit = 0; bit < width; ++bit) {
        const std::size_t at = position * width + bit;
        value |= ((static_cast<std::uint32_t>(bytes[at / 8]) >> (at % 8)) & 1U) << bit;
    }
    return value;
}

TEST_P(DitherForm, Consecutive_elements_are_dithered_as_the_formula_says) {
    const RandomStream random = rounding_stream(11, 12, 13);
    for (const int levels : {1, 2, 3, 7, 15, 31, 63, 127})
        for (const std::uint32_t count : {1U, 3U, 8U, 31U, 32U, 33U, 63U, 65U, 1000U, 4095U, 4096U}) {
            const auto rule = rule_of(levels, levels % 2 == 0 ? Norm::kL2 : Norm::kMax, Feedback::kScaled, false);
            const auto values = make_values(count % 2 == 0 ? Shape::kGaussian : Shape::kHeavyTailed, count, count);
            const DitherTile tile = measure_tile(rule, values, kernels());
            const auto step = dither_step(rule, tile, random, kFirst);
            ASSERT_TRUE(step.has_value());
            std::vector<std::byte> codes((count * rule.bits + 7) / 8 + 8, std::byte{0xC5});
            std::vector<float> decoded(count, NAN);
            std::vector<float> left(count, NAN);
            kernels().dither_dense(*step, values.data(), count, codes.data(), decoded.data(), left.data());
            const Plain plain = dither_plainly(rule, dither_unit(rule, tile), random, values, {});
            for (std::uint32_t i = 0; i < count; ++i) {
                ASSERT_EQ(float_bits(decoded[i]), float_bits(plain.decoded[i])) << levels << ", element " << i;
                ASSERT_EQ(field(codes, i, rule.bits), plain.codes[i]) << levels << ", element " << i;
                ASSERT_EQ(float_bits(left[i]), float_bits(values[i] - plain.decoded[i]));
            }
            if (const auto used = count * rule.bits % 8; used != 0) {
                ASSERT_EQ(static_cast<unsigned>(codes[count * rule.bits / 8]) >> used, 0U) << "set padding";
            }
            ASSERT_EQ(codes.back(), std::byte{0xC5});
        }
}
TEST_P(DitherForm, Lists_are_dithered_as_the_formula_says) {
    const RandomStream random = rounding_stream(21, 22, 23);
    for (const int levels : {1, 7, 127})
        for (const std::uint32_t count : {1U, 7U, 15U, 16U, 17U, 100U, 4096U}) {
            const auto rule = rule_of(levels, Norm::kMax, Feedback::kUnscaled, true);
            auto values = make_values(Shape::kGaussian, count, count);
            std::vector<std::uint32_t> indices;
            for (std::uint32_t i = 0; i < count; ++i) indices.push_back(i * (4096 / count));
            const DitherTile tile = measure_tile(rule, values, kernels());
            const auto step = dither_step(rule, tile, random, kFirst);
            ASSERT_TRUE(step.has_value());
            const Plain plain = dither_plainly(rule, dither_unit(rule, tile), random, values, indices);
            std::vector<std::uint8_t> codes(count, 0xC5);
            const auto sent =
                kernels().dither_list(*step, values.data(), indices.data(), count, values.data(), codes.data());
            std::uint32_t expected = 0;
            for (std::uint32_t i = 0; i < count; ++i) {
                ASSERT_EQ(float_bits(values[i]), float_bits(plain.decoded[i])) << levels << ", entry " << i;
                ASSERT_EQ(codes[i], plain.codes[i]);
                expected += plain.decoded[i] != 0 ? 1U : 0U;
            }
            EXPECT_EQ(sent, expected);
        }
}
TEST_P(DitherForm, Dense_codes_add_up_as_values_times_factor) {
    for (std::uint32_t bits = 2; bits <= 8; ++bits)
        for (const std::uint32_t count : {1U, 31U, 32U, 33U, 64U, 1000U, 4096U}) {
            std::uint64_t state = bits * 10000 + count;
            std::vector<std::byte> codes((count * bits + 7) / 8);
            for (std::byte& byte : codes) byte = static_cast<std::byte>(test::random_word(state));
            codes.shrink_to_fit();  // the address sanitizer watches the end
            DenseTerm term{DenseTerm::Kind::kDither, 0.3F, codes.data(), 0.7F, bits};
            alignas(64) std::array<float, 4096> result{};
            std::vector<float> expected(count);
            for (std::uint32_t i = 0; i < count; ++i) {
                const std::uint32_t code = field(codes, i, bits);
                const std::uint32_t level = code % (1U << (bits - 1));
                const float size = static_cast<float>(level) * 0.7F;
                result[i] = static_cast<float>(i);
                expected[i] = static_cast<float>(i) + 0.3F * (code == level ? size : -size);
            }
            ASSERT_TRUE(kernels().add_dense(&term, result.data(), count));
            for (std::uint32_t i = 0; i < count; ++i)
                ASSERT_EQ(float_bits(result[i]), float_bits(expected[i])) << bits << " " << i;
            bool is_finite = true;
            static_cast<void>(kernels().sum_dense(&term, 1, result.data(), false, 0, count, 7, &is_finite));
            ASSERT_TRUE(is_finite);
            for (std::uint32_t i = 0; i < count; ++i) {
                const std::uint32_t code = field(codes, i, bits);
                const std::uint32_t level = code % (1U << (bits - 1));
                const float size = static_cast<float>(level) * 0.7F;
                ASSERT_EQ(float_bits(result[i]), float_bits(0.0F + 0.3F * (code == level ? size : -size)))
                    << bits << " " << i;
            }
        }
}
TEST_P(DitherForm, Squares_add_up_in_the_stated_order) {
    const auto square = [](const std::vector<float>& values, std::size_t i) {
        return i < values.size() ? double{values[i]} * double{values[i]} : 0.0;
    };
    const auto halve_until_one = [](std::vector<double> sums) {
        while (sums.size() > 1) {
            const std::size_t half = sums.size() / 2;
            for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
            sums.resize(half);
        }
        return sums[0];
    };
    for (const std::uint32_t count : {0U, 1U, 3U, 31U, 33U, 128U, 129U, 255U, 256U, 257U, 1000U, 4095U, 4096U}) {
        const auto values = make_values(Shape::kHeavyTailed, count, 5);
        std::vector<double> stretches;
        for (std::size_t first = 0; first < 4096; first += 256) {
            std::vector<double> fours;
            for (std::size_t i = first; i < first + 128; i += 4) {
                const auto two = [&](std::size_t at) { return square(values, at) + square(values, at + 128); };
                fours.push_back((two(i) + two(i + 1)) + (two(i + 2) + two(i + 3)));
            }
            stretches.push_back(halve_until_one(fours));
        }
        EXPECT_EQ(kernels().square_sum(values.data(), count), halve_until_one(stretches)) << count;
    }
}

TEST(Dither, Squares_are_added_up_only_where_the_unit_depends_on_them) {
    static int calls;
    PayloadKernels counting = payload_kernels();
    counting.square_sum = [](const float*, std::uint32_t) {
        ++calls;
        return 14.0;
    };
    for (const Norm norm : {Norm::kMax, Norm::kL2})
        for (const Feedback feedback : {Feedback::kNone, Feedback::kUnscaled, Feedback::kScaled}) {
            calls = 0;
            const auto tile = measure_tile(rule_of(7, norm, feedback, false), std::vector{1.0F, -3.0F, 2.0F}, counting);
            EXPECT_EQ(calls, norm == Norm::kL2 || feedback == Feedback::kScaled ? 1 : 0);
            EXPECT_EQ(tile.square_sum, calls > 0 ? 14.0 : 0.0);
            EXPECT_EQ(tile.largest, 3.0F);
        }
}

/// One step of `all | dither` without residual, decoded.
std::vector<float> decoded_once(const std::vector<float>& values, int levels, Norm norm = Norm::kMax,
                                std::uint64_t seed = 0) {
    auto input = make_input(dither_pipeline({}, levels, norm, Feedback::kNone), values.size(), 1, DataKind::kZero, 1);
    input.samples = {values};
    input.random_seed = seed;
    EncodeWorkspace workspace;
    const auto output = run_form(input, zero_state(input), fastest_cpu_form(), workspace);
    return decode_payloads(output.result.chunks, values.size());
}

TEST(Dither, Zeros_decode_to_plus_zero_and_are_sent_as_zeros) {
    const std::vector<float> zeros = {0.0F, -0.0F, 0.0F};
    const auto coded = test::code(*parse_pipeline("all | dither"), 3, true, {}, zeros);
    EXPECT_EQ(test::octets(coded.payload), (std::vector<std::uint8_t>{2, 8, 3, 0, 0, 0, 0, 0, 0}));
    for (const float value : coded.decoded) EXPECT_EQ(float_bits(value), 0U);
    EXPECT_TRUE(test::code(*parse_pipeline("topk(0.5) | dither"), 3, false, {0, 1, 2}, zeros).payload.empty());
}
TEST(Dither, Largest_magnitude_of_every_tile_is_exact_by_the_max_norm) {
    for (const int levels : {1, 7, 100, 127})
        for (std::uint64_t seed = 0; seed < 50; ++seed) {
            auto values = make_values(Shape::kGaussian, kTileElements + 100, seed);
            values[5] = -77.7F;
            values[kTileElements + 99] = 12.3F;
            const auto decoded = decoded_once(values, levels, Norm::kMax, seed);
            EXPECT_NEAR(decoded[5], -77.7F, 77.7F * 0x1p-22F) << levels;
            EXPECT_NEAR(decoded[kTileElements + 99], 12.3F, 12.3F * 0x1p-22F) << levels;
        }
}
TEST(Dither, One_hot_and_single_elements_are_sent_whole) {
    for (const Norm norm : {Norm::kMax, Norm::kL2}) {
        EXPECT_NEAR(decoded_once({-0.1F}, 7, norm)[0], -0.1F, 0x1p-25F);
        const auto decoded = decoded_once(make_values(Shape::kOneHot, 4101, 1), 7, norm);
        for (std::size_t i = 0; i < decoded.size(); ++i)
            ASSERT_NEAR(decoded[i], i == 4101 / 2 ? -3.0F : 0.0F, 0x1p-20F);
    }
}
TEST(Dither, Tiny_tiles_are_kept_and_huge_ones_stay_finite) {
    EncodeLoop loop(dither_pipeline({}, 7), 4101, 1, 0);
    const auto tiny = make_values(Shape::kTiny, 4101, 3);
    const auto result = loop.step(tiny);
    for (const float value : decode_payloads(result.chunks, 4101)) ASSERT_EQ(float_bits(value), 0U);
    EXPECT_TRUE(same_bits({loop.residual().begin(), loop.residual().end()}, tiny));
    for (const int levels : {1, 7, 127})
        for (const Norm norm : {Norm::kMax, Norm::kL2}) {
            std::vector<float> huge(5000, -FLT_MAX);
            const auto decoded = decoded_once(huge, levels, norm);
            for (const float value : decoded) ASSERT_TRUE(std::isfinite(value) && value <= 0);
        }
}
TEST(Dither, Largest_scale_of_a_list_is_a_bf16_number_that_receivers_take) {
    for (const int levels : {1, 7, 31, 127})
        for (const Norm norm : {Norm::kMax, Norm::kL2}) {
            const std::vector<float> huge(410, FLT_MAX);
            const auto rule = rule_of(levels, norm, Feedback::kScaled, true);
            const auto bits = float_bits(dither_unit(rule, measure_tile(rule, huge, payload_kernels())).scale);
            EXPECT_EQ(bits & 0xFFFFU, 0U) << levels;
            EXPECT_LE(bits, float_bits(largest_dither_scale(rule.bits))) << levels;
        }
}
TEST(Dither, Random_numbers_go_on_from_chunk_to_chunk_and_from_node_to_node) {
    const std::vector<float> values(kChunkElements + kTileElements, 0.3F);
    std::vector<float> with_scale = values;
    for (std::size_t first = 0; first < values.size(); first += kTileElements) with_scale[first] = 1.0F;
    const auto first = decoded_once(with_scale, 1);
    const auto tile = [](const std::vector<float>& all, std::size_t number) {
        return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(number * kTileElements),
                                  all.begin() + static_cast<std::ptrdiff_t>((number + 1) * kTileElements));
    };
    EXPECT_NE(tile(first, 0), tile(first, 1));
    EXPECT_NE(tile(first, 0), tile(first, kChunkElements / kTileElements));
    EXPECT_EQ(first, decoded_once(with_scale, 1));
    EXPECT_NE(first, decoded_once(with_scale, 1, Norm::kMax, 1));
}
TEST(Dither, No_feedback_needs_no_residual) {
    EXPECT_FALSE(has_residual(*parse_pipeline("all | dither(levels=7, feedback=none)")));
    EXPECT_TRUE(has_residual(*parse_pipeline("all | dither(levels=7)")));
    EXPECT_TRUE(has_residual(*parse_pipeline("topk(0.1) | dither")));
}

}  // namespace
}  // namespace gradsieve::codec
