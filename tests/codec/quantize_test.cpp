#include "codec/quantize.hpp"

#include "codec/stages/quantizer_coder.hpp"
#include "tests/codec/payload_cases.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gradsieve::codec {
namespace {

using test::make_values;
using test::Shape;

struct Quantized {
    std::uint32_t sent = 0;
    std::vector<float> decoded;
};
Quantized quantize(const std::string& quantizer, const std::vector<float>& values,
                   std::vector<std::uint32_t> indices = {}, float tensor_maximum = 0) {
    for (std::uint32_t i = 0; indices.size() < values.size(); ++i) indices.push_back(i);
    Quantized result;
    result.decoded.assign(values.size(), std::numeric_limits<float>::quiet_NaN());
    const auto pipeline = *parse_pipeline("topk(0.5) | " + quantizer);
    CodeScratch scratch;
    scratch.codes.resize(values.size());
    const RandomStream random{};
    result.sent =
        coder_of(pipeline.quantizer.kind)
            .code_list({pipeline.quantizer, indices, values, random, 0, tensor_maximum, scratch, result.decoded});
    return result;
}
/// The rule in words: the nearer power of two, the middle going up, capped at 2^floor(log2 M); too small is nothing.
float pow2_by_the_book(float value, float largest, int bits) {
    if (std::abs(value) < std::numeric_limits<float>::min() || std::abs(largest) < std::numeric_limits<float>::min())
        return 0;
    const double top = std::exp2(std::floor(std::log2(std::abs(double{largest}))));
    const double low = std::exp2(std::floor(std::log2(std::abs(double{value}))));
    double rounded = std::abs(value) - low < 2 * low - std::abs(value) ? low : 2 * low;
    if (std::abs(value) > top) rounded = top;
    if (top / rounded > std::exp2((1 << (bits - 1)) - 1)) return 0;
    return static_cast<float>(value < 0 ? -rounded : rounded);
}

TEST(Quantize, F32_sends_all_but_zeros) {
    const auto result = quantize("f32", {1.5F, 0.0F, -0.0F, -2.5F, 1e-45F});
    EXPECT_EQ(result.sent, 3U);
    EXPECT_EQ(result.decoded, (std::vector<float>{1.5F, 0, 0, -2.5F, 1e-45F}));
    EXPECT_FALSE(std::signbit(result.decoded[2])) << "exactly +0 marks what is not sent";
}
TEST(Quantize, Bf16_does_not_send_what_rounds_to_zero) {
    const auto result = quantize("bf16", {1.0F, -1e-45F, 1.00390625F, std::numeric_limits<float>::max()});
    EXPECT_EQ(result.sent, 3U);
    EXPECT_EQ(result.decoded[1], 0.0F);
    EXPECT_FALSE(std::signbit(result.decoded[1]));
    EXPECT_EQ(result.decoded[2], 1.0F);
    EXPECT_TRUE(std::isfinite(result.decoded[3]));
}
TEST(Quantize, Pow2_follows_the_rule_in_words) {
    for (const int bits : {2, 4, 8})
        for (const Shape shape : test::all_shapes()) {
            const auto values = make_values(shape, 500, 21);
            float largest = 0;
            for (const float value : values) largest = std::max(largest, std::abs(value));
            const auto result = quantize("pow2(bits=" + std::to_string(bits) + ")", values);
            std::uint32_t sent = 0;
            for (std::size_t i = 0; i < values.size(); ++i) {
                EXPECT_EQ(result.decoded[i], pow2_by_the_book(values[i], largest, bits))
                    << values[i] << " below " << largest;
                sent += result.decoded[i] != 0 ? 1 : 0;
            }
            EXPECT_EQ(result.sent, sent);
        }
}
TEST(Quantize, Pow2_tie_goes_up_and_the_top_octave_is_truncated) {
    const auto result = quantize("pow2", {7.9F, 5.0F, 4.0F, 3.0F, 2.99F, -1.5F, 0.03125F, 0.0234F});
    EXPECT_EQ(result.decoded, (std::vector<float>{4, 4, 4, 4, 2, -2, 0.03125F, 0}));
}
TEST(Quantize, Pow2_error_stays_within_a_third_below_the_top_octave_and_a_half_in_it) {
    const auto values = make_values(Shape::kGaussian, 4096, 5);
    const auto result = quantize("pow2(bits=8)", values);
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (result.decoded[i] == 0) continue;
        EXPECT_GE(result.decoded[i] / values[i], 0.5F);
        EXPECT_LE(result.decoded[i] / values[i], 1.334F);
    }
}
TEST(Quantize, Pow2_scale_belongs_to_a_tile_or_to_the_tensor) {
    const std::vector<float> values = {1024.0F, 1.0F, 1.0F};
    const std::vector<std::uint32_t> indices = {0, 4095, 4096};
    EXPECT_EQ(quantize("pow2", values, indices).decoded, (std::vector<float>{1024, 0, 1}));
    EXPECT_EQ(quantize("pow2(scope=tensor)", values, indices, 1024).decoded, (std::vector<float>{1024, 0, 0}));
    EXPECT_EQ(quantize("pow2(scope=tensor)", {1.0F, 0.25F}, {3, 9}, 100).decoded, (std::vector<float>{1, 0}))
        << "64 is 6 octaves above 1 and 8 above 0.25";
}
TEST(Quantize, Pow2_is_unchanged_by_the_scale_of_everything) {
    const auto values = make_values(Shape::kGaussian, 300, 6);
    auto scaled = values;
    for (float& value : scaled) value *= 0x1p-20F;
    const auto result = quantize("pow2", values);
    const auto scaled_result = quantize("pow2", scaled);
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(scaled_result.decoded[i], result.decoded[i] * 0x1p-20F);
}
TEST(Quantize, Sign_sends_the_mean_magnitude_of_each_tile) {
    const auto result = quantize("sign", {1.0F, -2.0F, 0.0F, 6.0F, -5.0F}, {1, 2, 3, 4095, 4096});
    EXPECT_EQ(result.decoded, (std::vector<float>{3, -3, 0, 3, -5})) << "zeros are neither sent nor counted";
    EXPECT_EQ(result.sent, 4U);
}
TEST(Quantize, Sign_scale_is_rounded_to_bf16) {
    const auto result = quantize("sign", {1.0F, 1.01F});
    EXPECT_EQ(result.decoded[0], 1.0078125F) << "bf16 of 1.005";
}
TEST(Quantize, Sign_with_a_number_sends_that_number) {
    const auto result = quantize("sign(scale=0.25)", {7.0F, -0.0F, -1e-40F});
    EXPECT_EQ(result.decoded, (std::vector<float>{0.25F, 0, -0.25F}));
    EXPECT_EQ(result.sent, 2U);
}
TEST(Quantize, Tile_run_ends_at_the_tile) {
    const std::vector<std::uint32_t> indices = {5, 4095, 4096, 9000};
    EXPECT_EQ(tile_run_end(indices, 0), 2U);
    EXPECT_EQ(tile_run_end(indices, 2), 3U);
    EXPECT_EQ(tile_run_end(indices, 3), 4U);
}

}  // namespace
}  // namespace gradsieve::codec
