// The forms of natural compression against the formula written out element by element, and its edges. Its statistics
// are in natural_theory_test.cpp.
#include "codec/natural_coder.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/payload_form.hpp"
#include "tests/codec/random_trials.hpp"

#include <cfloat>
#include <cmath>

namespace gradsieve::codec {
namespace {

using test::all_magnitudes;
using test::float_bits;
using test::make_values;
using test::Shape;

constexpr ElementCount kFirst = 3 * kChunkElements + 7 * kTileElements;

struct Plain {
    std::vector<float> decoded;
    std::vector<std::uint8_t> codes;
};
/// By the page: the next power of two where the upper 23 bits of the element's word carry over the mantissa.
Plain round_plainly(float factor, const RandomStream& random, const std::vector<float>& values,
                    const std::vector<std::uint32_t>& indices) {
    Plain plain;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint64_t element = kFirst + (indices.empty() ? i : indices[i]);
        const std::uint32_t word = rounding_word(random, element);
        const float magnitude = std::fabs(values[i]) * factor;
        if (magnitude < 0x1p-108F) {
            plain.decoded.push_back(0.0F);
            plain.codes.push_back(0);
            continue;
        }
        const int exponent = std::ilogb(magnitude);
        const double fraction = std::ldexp(double{magnitude}, -exponent) - 1;
        const int rounded = std::min(exponent + (fraction + std::ldexp(word >> 9U, -23) >= 1 ? 1 : 0), 18);
        plain.decoded.push_back(std::copysign(std::ldexp(1.0F, rounded), values[i]));
        plain.codes.push_back(static_cast<std::uint8_t>(rounded + 109 + (values[i] < 0 ? 128 : 0)));
    }
    return plain;
}

NaturalStep step_of(Feedback feedback, const RandomStream& random) {
    Quantizer quantizer;
    quantizer.kind = QuantizerKind::kNatural;
    quantizer.feedback = feedback;
    return natural_step(quantizer, random, kFirst);
}

class NaturalForm : public test::PayloadForm {};
INSTANTIATE_TEST_SUITE_P(All, NaturalForm, ::testing::Values(CpuForm::kScalar, CpuForm::kAvx2, CpuForm::kAvx512));

TEST_P(NaturalForm, Consecutive_elements_are_rounded_as_the_formula_says) {
    const RandomStream random = rounding_stream(31, 32, 33);
    for (const Feedback feedback : {Feedback::kScaled, Feedback::kUnscaled})
        for (const std::uint32_t count : {1U, 3U, 31U, 32U, 33U, 65U, 1000U, 4096U}) {
            const auto values = count % 2 == 0 ? all_magnitudes(count) : make_values(Shape::kGaussian, count, count);
            const NaturalStep step = step_of(feedback, random);
            std::vector<std::byte> codes(count + 1, std::byte{0xC5});
            std::vector<float> decoded(count, NAN);
            kernels().natural_dense(step, values.data(), count, codes.data(), decoded.data());
            const Plain plain = round_plainly(step.factor, random, values, {});
            for (std::uint32_t i = 0; i < count; ++i) {
                ASSERT_EQ(float_bits(decoded[i]), float_bits(plain.decoded[i])) << values[i] << ", element " << i;
                ASSERT_EQ(static_cast<std::uint8_t>(codes[i]), plain.codes[i]) << values[i] << ", element " << i;
            }
            ASSERT_EQ(codes.back(), std::byte{0xC5});
        }
}
TEST_P(NaturalForm, Lists_are_rounded_as_the_formula_says) {
    const RandomStream random = rounding_stream(41, 42, 43);
    for (const std::uint32_t count : {1U, 7U, 15U, 16U, 17U, 100U, 4096U}) {
        auto values = all_magnitudes(count);
        std::vector<std::uint32_t> indices;
        for (std::uint32_t i = 0; i < count; ++i) indices.push_back(i * (4096 / count));
        const NaturalStep step = step_of(Feedback::kUnscaled, random);
        const Plain plain = round_plainly(1.0F, random, values, indices);
        std::vector<std::uint8_t> codes(count, 0xC5);
        const auto sent =
            kernels().natural_list(step, values.data(), indices.data(), count, values.data(), codes.data());
        std::uint32_t expected = 0;
        for (std::uint32_t i = 0; i < count; ++i) {
            ASSERT_EQ(float_bits(values[i]), float_bits(plain.decoded[i])) << "entry " << i;
            ASSERT_EQ(codes[i], plain.codes[i]);
            expected += plain.decoded[i] != 0 ? 1U : 0U;
        }
        EXPECT_EQ(sent, expected);
    }
}
TEST_P(NaturalForm, Every_code_adds_up_as_its_value_times_factor) {
    for (const std::uint32_t count : {1U, 31U, 32U, 33U, 256U, 1000U}) {
        std::vector<std::byte> codes(count);
        for (std::uint32_t i = 0; i < count; ++i) codes[i] = static_cast<std::byte>(i * 7);
        const DenseTerm term{DenseTerm::Kind::kNatural, 0.3F, codes.data()};
        std::vector<float> result(count);
        for (std::uint32_t i = 0; i < count; ++i) result[i] = static_cast<float>(i);
        const auto value_of = [&](std::uint32_t i) {
            const auto code = static_cast<int>(codes[i]);
            const float size = code % 128 == 0 ? 0.0F : std::ldexp(1.0F, code % 128 - 109);
            return 0.3F * (code >= 128 ? -size : size);
        };
        ASSERT_TRUE(kernels().add_dense(&term, result.data(), count));
        for (std::uint32_t i = 0; i < count; ++i)
            ASSERT_EQ(float_bits(result[i]), float_bits(static_cast<float>(i) + value_of(i))) << i;
        bool is_finite = true;
        static_cast<void>(kernels().sum_dense(&term, 1, result.data(), false, 0, count, 7, &is_finite));
        ASSERT_TRUE(is_finite);
        for (std::uint32_t i = 0; i < count; ++i) ASSERT_EQ(float_bits(result[i]), float_bits(0.0F + value_of(i))) << i;
    }
}

/// One step of `all | natural(feedback=none)`, decoded.
std::vector<float> decoded_once(const std::vector<float>& values, std::uint64_t seed = 0) {
    auto input = make_input(natural_pipeline({}, Feedback::kNone), values.size(), 1, DataKind::kZero, 1);
    input.samples = {values};
    input.random_seed = seed;
    EncodeWorkspace workspace;
    const auto output = run_form(input, zero_state(input), fastest_cpu_form(), workspace);
    return decode_payloads(output.result.chunks, values.size());
}

TEST(Natural, Zeros_and_powers_of_two_are_unchanged) {
    std::vector<float> values = {0.0F, -0.0F};
    for (int exponent = -108; exponent <= 18; ++exponent)
        values.push_back(std::ldexp(exponent % 2 == 0 ? 1.0F : -1.0F, exponent));
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const auto decoded = decoded_once(values, seed);
        for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(decoded[i], values[i]) << i;
        ASSERT_EQ(float_bits(decoded[1]), 0U);
    }
    const std::vector<float> zeros = {0.0F, -0.0F};
    EXPECT_TRUE(test::code(*parse_pipeline("topk(0.5) | natural"), 2, false, {0, 1}, zeros).payload.empty());
}
TEST(Natural, Exponents_outside_the_code_are_clipped_and_stay_in_the_residual) {
    const float below = std::nextafter(0x1p-108F, 0.0F);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        EncodeLoop loop(natural_pipeline({}, Feedback::kUnscaled), 6, 1, 0);
        loop.set_random_seed(seed);
        const std::vector<float> gradient = {below, -below, FLT_MAX, -0x1.8p18F, 1e-45F, 0x1.ffffp18F};
        const auto decoded = decode_payloads(loop.step(gradient).chunks, 6);
        EXPECT_EQ(decoded, (std::vector<float>{0, 0, 0x1p18F, -0x1p18F, 0, 0x1p18F}));
        for (std::size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(loop.residual()[i], gradient[i] - decoded[i]) << i;
    }
}
TEST(Natural, Random_numbers_differ_between_elements_chunks_and_nodes) {
    const std::vector<float> values(kChunkElements + kTileElements, 1.5F);
    const auto tile = [](const std::vector<float>& all, std::size_t number) {
        return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(number * kTileElements),
                                  all.begin() + static_cast<std::ptrdiff_t>((number + 1) * kTileElements));
    };
    const auto first = decoded_once(values);
    EXPECT_NE(tile(first, 0), tile(first, 1));
    EXPECT_NE(tile(first, 0), tile(first, kChunkElements / kTileElements));
    EXPECT_EQ(first, decoded_once(values));
    EXPECT_NE(first, decoded_once(values, 1));
}

}  // namespace
}  // namespace gradsieve::codec
