// Half precision: every code and the rounding against arithmetic in double, and each form against the plain functions.
#include "codec/decoder.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/payload_form.hpp"

#include <cfloat>
#include <cmath>

namespace gradsieve::codec {
namespace {

using test::float_bits;

constexpr float kLargest = 65504.0F;

/// What a finite code says, by the standard.
double value_of(std::uint32_t code) {
    const int exponent = static_cast<int>(code >> 10U & 31U);
    const double mantissa = code & 0x3FFU;
    const double size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    return (code >> 15U) != 0 ? -size : size;
}
bool is_finite_code(std::uint32_t code) { return (code & 0x7C00U) != 0x7C00U; }

/// The nearest number in half precision, ties to even; the largest beyond the range.
double rounded(float value) {
    const double size = std::min(std::fabs(double{value}), double{kLargest});
    const int exponent = size == 0 ? -14 : std::max(std::ilogb(size), -14);
    return std::copysign(std::ldexp(std::nearbyint(std::ldexp(size, 10 - exponent)), exponent - 10), value);
}

std::vector<float> values_of_all_kinds() {
    std::vector<float> values = {0.0F,
                                 -0.0F,
                                 kLargest,
                                 65519.99F,
                                 65520.0F,
                                 1e30F,
                                 -FLT_MAX,
                                 0x1p-24F,
                                 0x1p-25F,
                                 1e-45F,
                                 -0x1p-126F,
                                 0x1p-14F,
                                 1.0F,
                                 -2.5F,
                                 0x1.8p-25F,
                                 0x1.002p0F,
                                 0x1.006p0F,
                                 std::nextafter(0x1p-25F, 1.0F),
                                 std::nextafter(0x1p-14F, 0.0F)};
    for (std::uint32_t code = 0; code < 0x10000U; ++code) {
        if (!is_finite_code(code)) continue;
        const auto exact = static_cast<float>(value_of(code));
        const auto middle =
            static_cast<float>((value_of(code) + value_of(is_finite_code(code + 1) ? code + 1 : code)) / 2);
        values.insert(values.end(), {exact, middle, std::nextafter(middle, 0.0F), std::nextafter(middle, FLT_MAX)});
    }
    std::uint64_t state = 81;
    for (int i = 0; i < 100000; ++i) {
        const auto bits = static_cast<std::uint32_t>(test::random_word(state));
        if ((bits & 0x7F800000U) != 0x7F800000U) values.push_back(element::float_of(bits));
    }
    return values;
}

TEST(F16, Every_code_decodes_as_the_standard_says) {
    for (std::uint32_t code = 0; code < 0x10000U; ++code) {
        const float value = element::float_of(element::f16_value_bits(code));
        if (!is_finite_code(code)) {
            ASSERT_EQ(std::isnan(value), (code & 0x3FFU) != 0) << code;
            ASSERT_EQ(std::isinf(value), (code & 0x3FFU) == 0) << code;
            continue;
        }
        ASSERT_EQ(value, value_of(code)) << code;
        ASSERT_EQ(std::signbit(value), code >= 0x8000U) << code;
        ASSERT_EQ(element::f16_bits(value), code);
    }
}
TEST(F16, Values_are_rounded_to_nearest_even_and_saturate) {
    for (const float value : values_of_all_kinds()) {
        const float decoded = element::float_of(element::f16_value_bits(element::f16_bits(value)));
        ASSERT_EQ(float_bits(decoded), float_bits(static_cast<float>(rounded(value)))) << value;
    }
}

class F16Form : public test::PayloadForm {};
INSTANTIATE_TEST_SUITE_P(All, F16Form, ::testing::Values(CpuForm::kScalar, CpuForm::kAvx2, CpuForm::kAvx512));

TEST_P(F16Form, Rounding_is_the_plain_function_s) {
    auto values = values_of_all_kinds();
    const std::vector<float> before = values;
    for (const std::size_t count : {std::size_t{1}, std::size_t{15}, std::size_t{17}, values.size()}) {
        values = before;
        std::vector<std::uint16_t> codes(count + 1, 0xC5C5);
        kernels().round_f16(values.data(), static_cast<std::uint32_t>(count), codes.data(), values.data());
        for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(codes[i], element::f16_bits(before[i])) << before[i];
            ASSERT_EQ(float_bits(values[i]), element::f16_value_bits(codes[i])) << before[i];
        }
        ASSERT_EQ(codes[count], 0xC5C5);
    }
}
TEST_P(F16Form, Every_code_adds_up_as_its_value_times_factor_and_others_are_told) {
    for (const std::uint32_t first : {0U, 0x8000U})
        for (const std::uint32_t count : {1U, 33U, 0x7C00U, 0x7C01U}) {
            std::vector<std::uint16_t> codes;
            for (std::uint32_t i = 0; i < count; ++i) codes.push_back(static_cast<std::uint16_t>(first + i));
            const DenseTerm term{DenseTerm::Kind::kF16, 0.3F, reinterpret_cast<const std::byte*>(codes.data())};
            const bool is_finite = count <= 0x7C00U;
            std::vector<float> result(count, 1.0F);
            ASSERT_EQ(kernels().add_dense(&term, result.data(), count), is_finite);
            for (std::uint32_t i = 0; i < count && i < 0x7C00U; ++i)
                ASSERT_EQ(float_bits(result[i]), float_bits(1.0F + 0.3F * static_cast<float>(value_of(codes[i])))) << i;
            bool was_finite = true;
            static_cast<void>(kernels().sum_dense(&term, 1, result.data(), false, 0, count, 7, &was_finite));
            ASSERT_EQ(was_finite, is_finite);
            for (std::uint32_t i = 0; i < count && i < 0x7C00U; ++i)
                ASSERT_EQ(float_bits(result[i]), float_bits(0.0F + 0.3F * static_cast<float>(value_of(codes[i])))) << i;
        }
}

TEST(F16, What_is_beyond_the_range_is_sent_in_parts) {
    EncodeLoop loop(all_pipeline(QuantizerKind::kF16), 3, 1, 0);
    const auto step = [&loop](const std::vector<float>& gradient) {
        return decode_payloads(loop.step(gradient).chunks, gradient.size());
    };
    EXPECT_EQ(step({150000.0F, -70000.0F, 1.0F}), (std::vector<float>{kLargest, -kLargest, 1.0F}));
    EXPECT_EQ(step({0, 0, 0}), (std::vector<float>{kLargest, -4496.0F, 0}));
    EXPECT_EQ(step({0, 0, 0}), (std::vector<float>{18992.0F, 0, 0}));
    EXPECT_TRUE(std::ranges::equal(loop.residual(), std::vector<float>{0, 0, 0}));
}
TEST(F16, Infinities_and_nans_of_a_payload_are_refused) {
    for (const std::string text : {"all | f16", "topk(0.5) | f16 | raw32"}) {
        const bool is_dense = text[0] == 'a';
        const std::vector<std::uint32_t> indices = {0, 1, 2};
        auto payload = test::code(*parse_pipeline(text), 3, is_dense, is_dense ? std::vector<std::uint32_t>{} : indices,
                                  {1.0F, -2.0F, 3.0F})
                           .payload;
        ASSERT_TRUE(validate_chunk(payload, 3).is_ok()) << text;
        for (const unsigned high : {0x7CU, 0x7EU, 0xFCU}) {
            payload.back() = static_cast<std::byte>(high);
            EXPECT_EQ(validate_chunk(payload, 3).code(), StatusCode::kCorrupt) << text << " " << high;
        }
    }
}

}  // namespace
}  // namespace gradsieve::codec
