// The forms of minmax against the formulas written out element by element, and its edges. Its statistics are rows of
// theory/operator_theory.cpp.
#include "codec/decoder.hpp"
#include "codec/minmax_coder.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/payload_form.hpp"
#include "tests/codec/random_trials.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

namespace gradsieve::codec {
namespace {

using test::float_bits;
using test::make_values;
using test::Shape;
using ::testing::HasSubstr;

constexpr ElementCount kFirst = 5 * kChunkElements + 3 * kTileElements;

struct Bucket {
    float low = 0;
    float high = 0;
    std::vector<float> decoded;
    std::vector<std::uint32_t> levels;
};
/// By the page.
Bucket round_plainly(const std::vector<float>& values, int bits, bool is_scaled, const RandomStream& random,
                     ElementCount first) {
    const float limit = std::ldexp(1.0F, 126);
    const auto steps = static_cast<float>((1 << bits) - 1);
    const float low = std::clamp(*std::ranges::min_element(values), -limit, limit) + 0.0F;
    const float high = std::clamp(*std::ranges::max_element(values), -limit, limit) + 0.0F;
    const float largest = std::max(std::fabs(low), std::fabs(high));
    double z = 1;
    if (is_scaled && values.size() > 2 && largest >= std::ldexp(1.0F, -90)) {
        const auto units = static_cast<float>(2048.0 / largest);
        double squares = 0;
        for (const float value : values)
            squares += std::pow(std::floor(std::min(std::fabs(value) * units, 2048.0F)), 2);
        const double share = (static_cast<double>(high) - low) / largest;
        const double others = static_cast<double>(values.size()) - 2;
        z = 1 + std::min(others * (share * share) * (2048.0 * 2048.0) / (4.0 * steps * steps * squares),
                         others / (2.0 * steps * steps));
    }
    Bucket bucket{static_cast<float>(low / z), static_cast<float>(high / z), {}, {}};
    const float range = high - low;
    float to_levels = 0;
    if (range >= std::ldexp(1.0F, -90)) {
        const double exact = std::ldexp(static_cast<double>(steps), 23) / range;
        to_levels = static_cast<float>(exact);
        if (to_levels < exact) to_levels = std::nextafter(to_levels, INFINITY);
    }
    const float step = (bucket.high - bucket.low) / steps;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const float above = values[i] > low ? values[i] - low : 0.0F;
        const float scaled = above * to_levels;
        const double whole =
            std::floor(std::min(static_cast<double>(scaled), std::ldexp(static_cast<double>(steps), 23)));
        const double level = std::floor(std::ldexp(whole + (rounding_word(random, first + i) >> 9U), -23));
        const float rise = static_cast<float>(level) * step;
        bucket.levels.push_back(static_cast<std::uint32_t>(level));
        bucket.decoded.push_back(bucket.low + rise);
    }
    return bucket;
}

Quantizer quantizer_of(int bits, int bucket, Feedback feedback) {
    Quantizer quantizer;
    quantizer.kind = QuantizerKind::kMinMax;
    quantizer.bits = bits;
    quantizer.bucket = bucket;
    quantizer.feedback = feedback;
    return quantizer;
}

std::uint32_t field(const std::vector<std::byte>& bytes, std::size_t position, int width) {
    std::uint32_t value = 0;
    for (int bit = 0; bit < width; ++bit) {
        const std::size_t at = position * static_cast<std::size_t>(width) + static_cast<std::size_t>(bit);
        value |= ((static_cast<std::uint32_t>(bytes[at / 8]) >> (at % 8)) & 1U) << static_cast<unsigned>(bit);
    }
    return value;
}

class MinMaxForm : public test::PayloadForm {};
INSTANTIATE_TEST_SUITE_P(All, MinMaxForm, ::testing::Values(CpuForm::kScalar, CpuForm::kAvx2, CpuForm::kAvx512));

TEST_P(MinMaxForm, Elements_are_rounded_as_the_formula_says) {
    const RandomStream random = rounding_stream(21, 22, 23);
    for (int bits = 2; bits <= 8; ++bits)
        for (const int size : {64, 512, 4096})
            for (const std::size_t count : {1U, 2U, 3U, 31U, 32U, 33U, 65U, 1000U, 4095U, 4096U})
                for (const Feedback feedback : {Feedback::kScaled, Feedback::kNone}) {
                    auto values = make_values(count % 2 == 0 ? Shape::kGaussian : Shape::kHeavyTailed, count, count);
                    if (count == 65) values.back() = FLT_MAX, values.front() = -FLT_MAX;
                    const auto given = static_cast<std::size_t>(size);
                    const Quantizer quantizer = quantizer_of(bits, size, feedback);
                    std::vector<std::byte> ranges((count + given - 1) / given * 8);
                    const std::size_t code_bytes = (count * static_cast<std::size_t>(bits) + 7) / 8;
                    std::vector<std::byte> codes(code_bytes + 8, std::byte{0xC5});
                    std::vector<float> decoded(count);
                    std::vector<float> left(count);
                    code_minmax_tile(quantizer, values, random, kFirst, kernels(), ranges.data(), codes.data(),
                                     decoded.data(), left.data());
                    for (std::size_t first = 0; first < count; first += given) {
                        const std::vector<float> part(
                            values.begin() + static_cast<std::ptrdiff_t>(first),
                            values.begin() + static_cast<std::ptrdiff_t>(std::min(first + given, count)));
                        const Bucket plain =
                            round_plainly(part, bits, feedback == Feedback::kScaled, random, kFirst + first);
                        float sent[2];
                        std::memcpy(sent, ranges.data() + first / given * 8, sizeof(sent));
                        ASSERT_EQ(float_bits(sent[0]), float_bits(plain.low)) << bits << " " << size << " " << count;
                        ASSERT_EQ(float_bits(sent[1]), float_bits(plain.high)) << bits << " " << size << " " << count;
                        for (std::size_t i = 0; i < part.size(); ++i) {
                            ASSERT_EQ(field(codes, first + i, bits), plain.levels[i])
                                << bits << " " << size << " " << i;
                            ASSERT_EQ(float_bits(decoded[first + i]), float_bits(plain.decoded[i]));
                            ASSERT_EQ(float_bits(left[first + i]), float_bits(part[i] - plain.decoded[i]));
                        }
                    }
                    const auto padding = static_cast<unsigned>(code_bytes * 8 - count * static_cast<std::size_t>(bits));
                    EXPECT_EQ(static_cast<unsigned>(codes[code_bytes - 1]) >> (8 - padding), 0U) << "padding bits";
                }
}

/// What one step sends of a residual of zero.
std::vector<float> decoded_of(const std::string& text, const std::vector<float>& values) {
    EncodeLoop loop(*parse_pipeline(text), values.size(), 1, 0);
    return decode_payloads(loop.step(values).chunks, values.size());
}

TEST(MinMax, Ends_are_exact_and_others_lie_between_neighbors) {
    for (int bits = 2; bits <= 8; ++bits) {
        const auto values = make_values(Shape::kGaussian, 64, 64);
        const auto decoded = decoded_of("all | minmax(" + std::to_string(bits) + ", 64, feedback=unscaled)", values);
        const auto least = std::ranges::min_element(values) - values.begin();
        const auto largest = std::ranges::max_element(values) - values.begin();
        EXPECT_EQ(decoded[static_cast<std::size_t>(least)], values[static_cast<std::size_t>(least)]);
        const float most = std::max(std::fabs(values[static_cast<std::size_t>(least)]),
                                    std::fabs(values[static_cast<std::size_t>(largest)]));
        EXPECT_NEAR(decoded[static_cast<std::size_t>(largest)], values[static_cast<std::size_t>(largest)],
                    2 * (std::nextafter(most, INFINITY) - most));
        const float step = (*std::ranges::max_element(values) - *std::ranges::min_element(values)) /
                           static_cast<float>((1 << bits) - 1);
        for (std::size_t i = 0; i < values.size(); ++i) EXPECT_LE(std::fabs(decoded[i] - values[i]), step * 1.0001F);
    }
}
TEST(MinMax, Constants_are_exact_and_ranges_too_small_for_levels_are_their_minimum) {
    for (const char* text : {"all | minmax", "all | minmax(2, 64, unscaled)", "all | minmax(8, 4096, none)"}) {
        for (const float value : {0.1F, -3e30F, 1e-40F, 0.0F})
            for (const float decoded : decoded_of(text, std::vector<float>(700, value)))
                ASSERT_EQ(decoded, value) << text;
        std::vector<float> tiny(64, 3e-40F);
        tiny[5] = 2e-40F;
        for (const float decoded : decoded_of(text, tiny)) ASSERT_EQ(decoded, 2e-40F) << text;
    }
}
TEST(MinMax, What_is_beyond_its_limit_is_cut_off_and_the_rest_kept) {
    const float limit = std::ldexp(1.0F, 126);
    EncodeLoop loop(*parse_pipeline("all | minmax(4, 64, unscaled)"), 3, 1, 0);
    const auto decoded = decode_payloads(loop.step({FLT_MAX, -FLT_MAX, -limit}).chunks, 3);
    EXPECT_EQ(decoded[0], limit);
    EXPECT_EQ(decoded[1], -limit);
    EXPECT_EQ(decoded[2], -limit);
    EXPECT_EQ(loop.residual()[0], FLT_MAX - limit);
    EXPECT_EQ(loop.residual()[1], -(FLT_MAX - limit));
    EXPECT_EQ(loop.residual()[2], 0.0F);
}
TEST(MinMax, Its_bound_is_attained_halfway_between_opposite_ends) {
    for (const std::uint32_t bits : {2U, 4U, 8U}) {
        const double steps = std::ldexp(1, static_cast<int>(bits)) - 1;
        const MinMaxRange range{-8, 8};  // and 510 zeros: magnitudes of two are whole numbers of units
        const double z = minmax_bound(range, bits, 512, std::uint64_t{2} * kSquareUnits * kSquareUnits);
        EXPECT_NEAR(z, 1 + 510 / (2 * steps * steps), 1e-12 * z) << bits;
        // E ||C(x)||^2 of it: the ends, and zeros that become plus or minus half a step.
        EXPECT_NEAR((2 * 64 + 510 * std::pow(8 / steps, 2)) / (2 * 64), z, 1e-12 * z) << bits;
        EXPECT_EQ(minmax_bound(range, bits, 2, std::uint64_t{2} * kSquareUnits * kSquareUnits), 1.0);
    }
    EXPECT_EQ(minmax_bound({0, 0}, 4, 512, 0), 1.0);
}

TEST(MinMax, Damaged_ranges_and_sections_are_refused) {
    const std::vector<float> values = make_values(Shape::kGaussian, 130, 1);
    EncodeLoop loop(*parse_pipeline("all | minmax(4, 64)"), values.size(), 1, 0);
    const auto result = loop.step(values);
    const auto& sent = result.chunks[0].bytes;
    const std::vector<std::byte> bytes(sent.data(), sent.data() + sent.size());
    ASSERT_EQ(bytes.size(), 4U + 3 * 8 + 65);
    ASSERT_TRUE(validate_chunk(bytes, values.size()).is_ok());
    const auto refusal_with = [&](std::size_t bucket, float low, float high) {
        auto damaged = bytes;
        std::memcpy(damaged.data() + 4 + 8 * bucket, &low, sizeof(low));
        std::memcpy(damaged.data() + 8 + 8 * bucket, &high, sizeof(high));
        return validate_chunk(damaged, values.size()).to_string();
    };
    const float beyond = std::nextafter(std::ldexp(1.0F, 126), INFINITY);
    for (std::size_t bucket = 0; bucket < 3; ++bucket)
        for (const auto& [low, high] : {std::pair{1.0F, 0.5F},
                                        {NAN, 1.0F},
                                        {0.0F, NAN},
                                        {-INFINITY, 0.0F},
                                        {0.0F, INFINITY},
                                        {-beyond, 0.0F},
                                        {0.0F, beyond}})
            EXPECT_THAT(refusal_with(bucket, low, high), HasSubstr("payload minimum and maximum"));
    for (std::size_t length = 0; length < bytes.size(); ++length)
        EXPECT_FALSE(validate_chunk(ByteView(bytes).first(length), values.size()).is_ok()) << length;
}
TEST(MinMax, Wants_a_residual_unless_errors_are_dropped) {
    EXPECT_TRUE(has_residual(*parse_pipeline("all | minmax")));
    EXPECT_FALSE(has_residual(*parse_pipeline("all | minmax(feedback=none)")));
}

}  // namespace
}  // namespace gradsieve::codec
