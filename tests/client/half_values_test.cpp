// Half types on the CPU, against client/half_values.cpp: every value there is, and arithmetic in double as the other
// answer.
#include "client/half_values.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace gradsieve::client {
namespace {

struct Format {
    ElementType type;
    int mantissa_bits;
    int smallest_exponent;  ///< of a normal value
    int largest_exponent;
};
constexpr Format kFormats[] = {{ElementType::kF16, 10, -14, 15}, {ElementType::kBf16, 7, -126, 127}};

/// What `half` stands for, by the definition of its format.
double meaning(const Format& format, std::uint16_t half) {
    const int exponent = (half & 0x7FFF) >> format.mantissa_bits;
    const int mantissa = half & ((1 << format.mantissa_bits) - 1);
    const int all_ones = (1 << (15 - format.mantissa_bits)) - 1;
    const double sign = (half & 0x8000) != 0 ? -1 : 1;
    if (exponent == all_ones)
        return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : sign * std::numeric_limits<double>::infinity();
    if (exponent == 0) return sign * std::ldexp(mantissa, format.smallest_exponent - format.mantissa_bits);
    return sign * std::ldexp(mantissa + (1 << format.mantissa_bits),
                             format.smallest_exponent + exponent - 1 - format.mantissa_bits);
}

/// The nearest value of the format, ties to even.
double nearest(const Format& format, float value) {
    if (value == 0 || std::isinf(value)) return value;
    const int exponent = std::max(std::ilogb(value), format.smallest_exponent);
    const double quantum = std::ldexp(1.0, exponent - format.mantissa_bits);
    const double rounded = std::nearbyint(value / quantum) * quantum;
    const double too_large = std::ldexp(1.0, format.largest_exponent + 1);
    return std::abs(rounded) >= too_large ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

std::vector<float> widened(ElementType type, const std::vector<std::uint16_t>& halves) {
    std::vector<float> values(halves.size(), -7777.0F);
    if (!halves.empty())
        std::memcpy(reinterpret_cast<std::byte*>(values.data()) + halves.size() * 2, halves.data(), halves.size() * 2);
    widen_in_place(type, values);
    return values;
}
std::uint16_t narrowed(ElementType type, float value) {
    std::uint16_t half = 0xAAAA;
    narrow(type, {&value, 1}, &half);
    return half;
}

TEST(HalfValues, Every_value_is_widened_exactly_and_comes_back) {
    std::vector<std::uint16_t> all(65536);
    for (std::size_t half = 0; half < all.size(); ++half) all[half] = static_cast<std::uint16_t>(half);
    for (const auto& format : kFormats) {
        const auto values = widened(format.type, all);
        for (const auto half : all) {
            const double expected = meaning(format, half);
            const float seen = values[half];
            if (std::isnan(expected)) {
                ASSERT_TRUE(std::isnan(seen)) << half;
                ASSERT_EQ(narrowed(format.type, seen), 0x7FFF) << half;
                continue;
            }
            ASSERT_EQ(static_cast<double>(seen), expected) << half;
            ASSERT_EQ(std::signbit(seen), std::signbit(expected)) << half;
            ASSERT_EQ(narrowed(format.type, seen), half);
        }
    }
}
TEST(HalfValues, Widening_in_place_is_right_at_every_length) {
    for (const std::size_t length : {0, 1, 2, 3, 63, 64, 65, 127, 128, 129, 1000}) {
        std::vector<std::uint16_t> halves(length);
        for (std::size_t place = 0; place < length; ++place)
            halves[place] = static_cast<std::uint16_t>(0x3F80 + place * 7 % 0x100);
        const auto values = widened(ElementType::kBf16, halves);
        for (std::size_t place = 0; place < length; ++place)
            ASSERT_EQ(static_cast<double>(values[place]), meaning(kFormats[1], halves[place]))
                << length << " " << place;
    }
}
TEST(HalfValues, Narrowing_rounds_to_nearest_with_ties_to_even) {
    const auto seed = std::random_device{}();
    std::mt19937 random(seed);
    for (const auto& format : kFormats) {
        const auto expect_nearest = [&](float value) {
            const auto half = narrowed(format.type, value);
            ASSERT_EQ(meaning(format, half), nearest(format, value)) << value << ", seed " << seed;
            ASSERT_EQ((half & 0x8000) != 0, std::signbit(value)) << value;
        };
        for (int round = 0; round < 200'000; ++round) {
            std::uint32_t bits = random();
            // Exponents around the format's own, and as often as not exactly between two of its values.
            if (round % 2 == 0) bits = (bits & 0x807FFFFFU) | ((100U + bits % 48U) << 23U);
            if (round % 3 == 0) bits &= ~((1U << (22U - static_cast<unsigned>(format.mantissa_bits))) - 1U);
            float value = 0;
            std::memcpy(&value, &bits, sizeof(value));
            if (!std::isnan(value)) expect_nearest(value);
        }
        for (const float edge : {0.0F, -0.0F, 65504.0F, 65519.99F, 65520.0F, 65536.0F, 0x1p-24F, 0x1p-25F, 0x1.8p-25F,
                                 0x1p-14F, 0x1.ffcp-15F, 0x1.ffep-15F, 3.4e38F, 0x1p-149F, 0x1p-133F, 0x1p-134F,
                                 std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max()}) {
            expect_nearest(edge);
            expect_nearest(-edge);
        }
    }
}

}  // namespace
}  // namespace gradsieve::client
