// The forms of exponential dithering against the formulas written out element by element, and its edges. Its statistics
// are in exponential_theory_test.cpp.
#include "codec/dither_coder.hpp"
#include "codec/exponential_coder.hpp"
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

struct Setting {
    const char* text;
    double base;
    int levels;
};
constexpr Setting kSettings[] = {
    {"exponential_dither", 2, 7},
    {"exponential_dither(1)", 2, 1},
    {"exponential_dither(127, 2, unbiased, l2)", 2, 127},
    {"exponential_dither(127, 1.1)", 1.1F, 127},
    {"exponential_dither(3, 16, unbiased, max, unscaled)", 16, 3},
    {"exponential_dither(15, 1.5, unbiased, l2, scaled)", 1.5, 15},
    {"exponential_dither(7, 2, biased)", 2, 7},
    {"exponential_dither(31, 3, biased, l2)", 3, 31},
};
ExponentialRule rule_of(const Setting& setting, bool is_list) {
    return exponential_rule(parse_pipeline(std::string("topk(0.1) | ") + setting.text)->quantizer, is_list);
}

struct Plain {
    std::vector<float> decoded;
    std::vector<std::uint32_t> codes;
};
/// By the page, from the levels down.
Plain round_plainly(const ExponentialRule& rule, const DitherUnit& unit, const RandomStream& random,
                    const std::vector<float>& values, const std::vector<std::uint32_t>& indices) {
    Plain plain;
    const std::uint32_t bits = rule.dither.bits;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint32_t word = rounding_word(random, kFirst + (indices.empty() ? i : indices[i]));
        const float scaled = std::fabs(values[i]) * unit.to_levels;
        const float size = std::ldexp(std::min(scaled, 16777216.0F), -24);
        std::uint32_t depth = 0;
        while (depth < rule.dither.levels && exponential_level(rule.base, depth) > size) ++depth;
        if (depth > 0) {
            const float upper = exponential_level(rule.base, depth - 1);
            const float lower = depth < rule.dither.levels ? exponential_level(rule.base, depth) : 0.0F;
            const float share = std::ldexp(static_cast<float>((rule.is_biased ? 0x7FFFFFFFU : word) >> 8U), -24);
            if (share * (upper - lower) < size - lower) --depth;
        }
        const float decoded = depth == rule.dither.levels ? 0.0F : exponential_level(rule.base, depth) * unit.scale;
        const bool is_negative = values[i] < 0 && decoded > 0;
        plain.decoded.push_back(is_negative ? -decoded : decoded);
        const std::uint32_t level = decoded > 0 ? (1U << (bits - 1)) - 1 - depth : 0;
        plain.codes.push_back(level | (is_negative ? 1U << (bits - 1) : 0U));
    }
    return plain;
}
std::uint32_t field(const std::vector<std::byte>& bytes, std::size_t position, std::uint32_t width) {
    std::uint32_t value = 0;
    for (std::uint32_t bit = 0; bit < width; ++bit) {
        const std::size_t at = position * width + bit;
        value |= ((static_cast<std::uint32_t>(bytes[at / 8]) >> (at % 8)) & 1U) << bit;
    }
    return value;
}

class ExponentialForm : public test::PayloadForm {};
INSTANTIATE_TEST_SUITE_P(All, ExponentialForm, ::testing::Values(CpuForm::kScalar, CpuForm::kAvx2, CpuForm::kAvx512));

TEST_P(ExponentialForm, Consecutive_elements_are_rounded_as_the_formula_says) {
    const RandomStream random = rounding_stream(7, 8, 9);
    for (const Setting& setting : kSettings)
        for (const Shape shape : test::all_shapes())
            for (const std::uint32_t count : {1U, 7U, 31U, 32U, 33U, 1023U, 4096U}) {
                const ExponentialRule rule = rule_of(setting, false);
                const auto values = make_values(shape, count, count);
                const DitherUnit unit = exponential_unit(rule, measure_tile(rule.dither, values, kernels()));
                std::vector<std::byte> codes(count * rule.dither.bits / 8 + 9, std::byte{0x5A});
                std::vector<float> decoded(count);
                std::vector<float> left(count);
                const float scale = code_exponential_tile(rule, values, random, kFirst, kernels(), codes.data(),
                                                          decoded.data(), left.data());
                EXPECT_EQ(scale, unit.scale);
                if (!(scale > 0)) {
                    EXPECT_TRUE(same_bits(left, values));
                    continue;
                }
                const Plain plain = round_plainly(rule, unit, random, values, {});
                ASSERT_TRUE(same_bits(decoded, plain.decoded)) << setting.text << " " << count;
                for (std::uint32_t i = 0; i < count; ++i) {
                    ASSERT_EQ(field(codes, i, rule.dither.bits), plain.codes[i]) << setting.text << " element " << i;
                    ASSERT_EQ(float_bits(left[i]), float_bits(values[i] - decoded[i]));
                }
                for (std::size_t bit = std::size_t{count} * rule.dither.bits; bit % 8 != 0; ++bit)
                    ASSERT_EQ(field(codes, bit, 1), 0U) << "padding";
            }
}
TEST_P(ExponentialForm, Lists_are_rounded_as_the_formula_says) {
    const RandomStream random = rounding_stream(7, 8, 9);
    for (const Setting& setting : kSettings)
        for (const std::uint32_t count : {1U, 5U, 16U, 17U, 300U}) {
            const Quantizer quantizer = parse_pipeline(std::string("topk(0.1) | ") + setting.text)->quantizer;
            const ExponentialRule rule = rule_of(setting, true);
            const auto values = make_values(Shape::kHeavyTailed, count, count);
            std::vector<std::uint32_t> indices;
            for (std::uint32_t i = 0; i < count; ++i) indices.push_back(i * 13 + i % 3);
            const DitherUnit unit = exponential_unit(rule, measure_tile(rule.dither, values, kernels()));
            const Plain plain = round_plainly(rule, unit, random, values, indices);
            std::vector<float> decoded(count);
            std::vector<std::uint8_t> codes(count);
            std::vector<float> scales(kMaximumTiles);
            const auto sent = exponential_chunk_list(quantizer, indices, values, random, kFirst, kernels(),
                                                     decoded.data(), codes.data(), scales.data());
            ASSERT_TRUE(same_bits(decoded, plain.decoded)) << setting.text;
            std::uint32_t expected = 0;
            for (std::uint32_t i = 0; i < count; ++i) {
                ASSERT_EQ(codes[i], plain.codes[i]) << setting.text << " element " << i;
                expected += plain.decoded[i] != 0 ? 1 : 0;
            }
            EXPECT_EQ(sent, expected);
            EXPECT_EQ(float_bits(scales[0]), float_bits(unit.scale));
            EXPECT_EQ(float_bits(scales[0]) & 0xFFFFU, 0U) << "bf16";
        }
}
TEST_P(ExponentialForm, Dense_codes_add_up_as_values_times_factor) {
    std::uint64_t state = 5;
    for (std::uint32_t bits = 2; bits <= 8; ++bits) {
        std::array<float, 256> table;
        list_exponential_values(bits, 1.5F, 0.7F, table.data());
        for (const std::uint32_t count : {1U, 31U, 32U, 100U, 4096U}) {
            std::vector<std::byte> codes((std::size_t{count} * bits + 7) / 8);
            for (std::byte& byte : codes) byte = static_cast<std::byte>(test::random_word(state));
            DenseTerm term{DenseTerm::Kind::kTable, 0.3F, codes.data()};
            term.code_bits = bits;
            term.table = table.data();
            std::vector<float> sum(count, 1.0F);
            ASSERT_TRUE(kernels().add_dense(&term, sum.data(), count));
            for (std::uint32_t i = 0; i < count; ++i)
                ASSERT_EQ(float_bits(sum[i]), float_bits(1.0F + 0.3F * table[field(codes, i, bits)])) << i;
        }
    }
}

TEST(Exponential, Guesses_are_the_depth_or_one_more_at_every_level_and_beside_it) {
    for (const float base : {1.1F, 1.25F, 1.5F, 2.0F, 3.0F, 16.0F}) {
        const auto levels = std::min(127U, static_cast<std::uint32_t>(126 / std::log2(base)) + 1);
        for (std::uint32_t depth = 0; depth < levels; ++depth)
            for (const int beside : {-1, 0, 1}) {
                const float size = element::float_of(float_bits(exponential_level(base, depth)) + beside);
                if (size > 1) continue;
                std::uint32_t right = 0;
                while (right < levels && exponential_level(base, right) > size) ++right;
                const std::uint32_t guess = exponential_guess(size, depth_per_bit(base), levels);
                ASSERT_TRUE(guess == right || guess == right + 1) << base << " " << depth << " " << beside;
            }
        for (const float size : {0.0F, 1e-45F, FLT_MIN / 2}) {
            const std::uint32_t guess = exponential_guess(size, depth_per_bit(base), levels);
            EXPECT_EQ(guess, levels) << size;
        }
    }
}
TEST(Exponential, Levels_are_powers_of_the_base) {
    for (const float base : {1.1F, 1.5F, 2.0F, 16.0F})
        for (std::uint32_t depth = 0; depth < 30; ++depth) {
            const double exact = std::pow(double{base}, -double(depth));
            EXPECT_NEAR(exponential_level(base, depth), exact, exact * 0x1p-23);
        }
    EXPECT_EQ(exponential_level(2, 126), FLT_MIN);
    EXPECT_EQ(exponential_level(2, 127), 0.0F);
}
TEST(Exponential, Zeros_tiny_huge_and_one_hot_tiles) {
    const std::vector<float> zeros = {0.0F, -0.0F, 0.0F};
    const auto coded = test::code(*parse_pipeline("all | exponential_dither"), 3, true, {}, zeros);
    EXPECT_EQ(test::octets(coded.payload), (std::vector<std::uint8_t>{4, 9, 3, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0}));
    EXPECT_TRUE(
        test::code(*parse_pipeline("topk(0.5) | exponential_dither"), 3, false, {0, 1, 2}, zeros).payload.empty());
    EncodeLoop loop(*parse_pipeline("all | exponential_dither"), 4101, 1, 0);
    const auto tiny = make_values(Shape::kTiny, 4101, 3);
    for (const float value : decode_payloads(loop.step(tiny).chunks, 4101)) ASSERT_EQ(float_bits(value), 0U);
    EXPECT_TRUE(same_bits({loop.residual().begin(), loop.residual().end()}, tiny));
    for (const Setting& setting : kSettings) {
        EncodeLoop huge(*parse_pipeline(std::string("all | ") + setting.text), 5000, 1, 0);
        for (const float value : decode_payloads(huge.step(std::vector<float>(5000, -FLT_MAX)).chunks, 5000))
            ASSERT_TRUE(std::isfinite(value) && value <= 0) << setting.text;
        EncodeLoop one(*parse_pipeline(std::string("all | ") + setting.text), 4101, 1, 0);
        const auto decoded = decode_payloads(one.step(make_values(Shape::kOneHot, 4101, 1)).chunks, 4101);
        for (std::size_t i = 0; i < decoded.size(); ++i)
            ASSERT_TRUE(i == 4101 / 2 || float_bits(decoded[i]) == 0U) << setting.text;
        EXPECT_LT(decoded[4101 / 2], 0.0F);
    }
}
TEST(Exponential, Biased_rounding_draws_nothing_and_goes_up_from_the_middle_on) {
    const Pipeline pipeline = *parse_pipeline("all | exponential_dither(7, 2, biased)");
    const std::vector<float> values = {64, 47.99F, 48, 32, 24, 23.99F, 1, 0.5F, 0.49F, -0.51F, 0};
    std::vector<float> first;
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
        EncodeLoop loop(pipeline, values.size(), 1, 0);
        loop.set_random_seed(seed);
        const auto decoded = decode_payloads(loop.step(values).chunks, values.size());
        EXPECT_EQ(decoded, (std::vector<float>{64, 32, 64, 32, 32, 16, 1, 1, 0, -1, 0}));
    }
    EXPECT_TRUE(has_residual(pipeline));
    EXPECT_FALSE(has_residual(*parse_pipeline("all | exponential_dither(feedback=none)")));
}

}  // namespace
}  // namespace gradsieve::codec
