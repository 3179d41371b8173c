// Every instruction set's form against answers computed element by element here.
#include "codec/payload_kernels.hpp"

#include "codec/digest.hpp"
#include "codec/payload.hpp"
#include "tests/codec/payload_cases.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace gradsieve::codec {
namespace {

using test::float_bits;
using test::make_values;
using test::Shape;

const std::vector<std::uint32_t>& counts() {
    static const std::vector<std::uint32_t> kCounts = {0, 1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1000, 4095, 4096};
    return kCounts;
}

class PayloadKernelsForm : public ::testing::TestWithParam<CpuForm> {
protected:
    void SetUp() override {
        kernels_ = payload_kernels_of(GetParam());
        if (kernels_ == nullptr) GTEST_SKIP() << "this CPU lacks the instruction set";
    }
    const PayloadKernels& kernels() const { return *kernels_; }

private:
    const PayloadKernels* kernels_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(All, PayloadKernelsForm,
                         ::testing::Values(CpuForm::kScalar, CpuForm::kAvx2, CpuForm::kAvx512));

TEST_P(PayloadKernelsForm, Add_f32_is_one_rounded_product_and_one_rounded_sum) {
    for (const std::uint32_t count : counts())
        for (const bool is_first : {true, false}) {
            const auto source = make_values(Shape::kHeavyTailed, count, count + 1);
            const auto before = make_values(Shape::kGaussian, count, count + 2);
            auto result = before;
            Bytes unaligned(1);
            ByteWriter(unaligned).write_bytes(std::as_bytes(std::span(source)));
            EXPECT_TRUE(kernels().add_f32(result.data(), unaligned.data() + 1, 0.3F, count, is_first));
            for (std::uint32_t i = 0; i < count; ++i) {
                const volatile float product = 0.3F * source[i];
                const volatile float sum = (is_first ? 0.0F : before[i]) + product;
                ASSERT_EQ(float_bits(result[i]), float_bits(sum)) << count << " " << i;
            }
        }
}
TEST_P(PayloadKernelsForm, Add_bf16_reads_the_upper_halves) {
    for (const std::uint32_t count : counts()) {
        const auto values = make_values(Shape::kGaussian, count, count);
        Bytes source(1);
        for (const float value : values) ByteWriter(source).write(bf16_of(value));
        std::vector<float> result(count, 1.0F);
        EXPECT_TRUE(kernels().add_bf16(result.data(), source.data() + 1, 0.7F, count, false));
        for (std::uint32_t i = 0; i < count; ++i) {
            const volatile float product = 0.7F * float_of_bf16(bf16_of(values[i]));
            ASSERT_EQ(float_bits(result[i]), float_bits(1.0F + product)) << count << " " << i;
        }
    }
}
TEST_P(PayloadKernelsForm, Non_finite_values_are_seen_wherever_they_stand) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()})
        for (const std::uint32_t position : {0U, 15U, 63U, 98U, 99U})
            for (const bool is_first : {true, false}) {
                std::vector<float> source(100, std::numeric_limits<float>::max());
                std::vector<float> result(100, 0.0F);
                const auto* bytes = reinterpret_cast<const std::byte*>(source.data());
                EXPECT_TRUE(kernels().add_f32(result.data(), bytes, 1, 100, is_first));
                source[position] = bad;
                EXPECT_FALSE(kernels().add_f32(result.data(), bytes, 1, 100, is_first)) << bad << " at " << position;
                std::vector<std::uint16_t> halves(100, 0x7F7F);
                halves[position] = static_cast<std::uint16_t>(float_bits(bad) >> 16U);
                EXPECT_FALSE(kernels().add_bf16(result.data(), reinterpret_cast<const std::byte*>(halves.data()), 1,
                                                100, is_first));
            }
}
TEST_P(PayloadKernelsForm, Add_sign_reads_bit_i_for_element_i) {
    for (const std::uint32_t count : counts())
        for (const bool is_first : {true, false}) {
            std::uint64_t state = count;
            Bytes bits;
            for (std::uint32_t byte = 0; byte < (count + 7) / 8; ++byte)
                bits.push_back(static_cast<std::byte>(test::random_word(state)));
            std::vector<float> result(count, 3.0F);
            kernels().add_sign(result.data(), bits.data(), 0.25F, count, is_first);
            for (std::uint32_t i = 0; i < count; ++i) {
                const bool is_negative = ((static_cast<unsigned>(bits[i / 8]) >> (i % 8)) & 1U) != 0;
                ASSERT_EQ(result[i], (is_first ? 0.0F : 3.0F) + (is_negative ? -0.25F : 0.25F)) << count << " " << i;
            }
        }
}
TEST_P(PayloadKernelsForm, Digests_are_sums_of_element_digests) {
    const auto values = make_values(Shape::kHeavyTailed, 4096, 8);
    for (const std::uint32_t count : counts()) {
        std::uint64_t expected = 0;
        std::uint64_t expected_list = 0;
        std::vector<std::uint32_t> indices;
        for (std::uint32_t i = 0; i < count; ++i) {
            expected += element_digest(77, 4000 + i, float_bits(values[i]));
            if (i % 3 == 1) indices.push_back(i);
        }
        for (const auto i : indices) expected_list += element_digest(77, 4000 + i, float_bits(values[i]));
        EXPECT_EQ(kernels().digest_run(values.data(), 4000, count, 77), expected) << count;
        EXPECT_EQ(
            kernels().digest_list(values.data(), indices.data(), 4000, static_cast<std::uint32_t>(indices.size()), 77),
            expected_list)
            << count;
    }
}
TEST_P(PayloadKernelsForm, Stream_copy_copies_at_any_alignment) {
    alignas(64) std::array<float, 4096 + 16> out;
    const auto values = make_values(Shape::kGaussian, 4096, 9);
    for (const std::size_t offset : {0U, 1U, 16U})
        for (const std::uint32_t count : counts()) {
            out.fill(-7.0F);
            kernels().stream_copy(out.data() + offset, values.data(), count);
            kernels().stream_fence();
            for (std::size_t i = 0; i < out.size(); ++i) {
                const bool is_inside = i >= offset && i < offset + count;
                ASSERT_EQ(out[i], is_inside ? values[i - offset] : -7.0F) << offset << " " << count << " " << i;
            }
        }
}
TEST_P(PayloadKernelsForm, Bitmaps_give_their_ones_in_order) {
    for (const std::uint32_t density : {0U, 1U, 30U, 500U, 1000U}) {
        std::uint64_t state = density;
        std::array<std::uint64_t, 64> words{};
        std::vector<std::uint32_t> expected;
        std::uint64_t used = 0;
        for (std::uint32_t i = 0; i < 4096; ++i)
            if (test::random_word(state) % 1000 < density) {
                words[i / 64] |= std::uint64_t{1} << (i % 64);
                used |= std::uint64_t{1} << (i / 64);
                expected.push_back(100 + i);
            }
        const auto bytes = std::as_bytes(std::span(words));
        EXPECT_EQ(kernels().count_ones(bytes.data(), bytes.size()), expected.size());
        std::vector<std::uint32_t> indices(expected.size() + kIndexSlack, ~0U);
        EXPECT_EQ(kernels().bitmap_indices(bytes.data(), bytes.size(), 100, indices.data()), expected.size());
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), indices.begin())) << density;
        indices.assign(indices.size(), ~0U);
        EXPECT_EQ(kernels().take_tile_indices(words.data(), used, 100, indices.data()), expected.size());
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), indices.begin())) << density;
        EXPECT_EQ(words, (std::array<std::uint64_t, 64>{})) << "taken words are cleared";
    }
}
TEST_P(PayloadKernelsForm, Bitmap_of_an_odd_number_of_bytes_is_not_read_beyond) {
    for (std::size_t size = 0; size <= 17; ++size) {
        const Bytes bits(size, std::byte{0x81});  // exact allocation: the address sanitizer watches its end
        std::vector<std::uint32_t> indices(2 * size + kIndexSlack);
        EXPECT_EQ(kernels().count_ones(bits.data(), size), 2 * size);
        ASSERT_EQ(kernels().bitmap_indices(bits.data(), size, 0, indices.data()), 2 * size);
        for (std::size_t byte = 0; byte < size; ++byte) {
            EXPECT_EQ(indices[2 * byte], 8 * byte);
            EXPECT_EQ(indices[2 * byte + 1], 8 * byte + 7);
        }
    }
}
TEST_P(PayloadKernelsForm, Magnitude_sum_is_the_stated_tree) {
    for (const std::uint32_t count : counts()) {
        const auto values = make_values(Shape::kHeavyTailed, count, count);
        std::array<double, 32> lanes{};
        for (std::uint32_t i = 0; i < count; ++i) lanes[i % 32] += std::abs(static_cast<double>(values[i]));
        for (const std::uint32_t width : {16U, 8U, 4U, 2U, 1U})
            for (std::uint32_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
        EXPECT_EQ(kernels().magnitude_sum(values.data(), count), lanes[0]) << count;
    }
}
TEST_P(PayloadKernelsForm, Signs_pack_with_minus_zero_as_positive) {
    for (const std::uint32_t count : counts()) {
        auto values = make_values(Shape::kGaussian, count, count);
        for (std::uint32_t i = 0; i < count; i += 5) values[i] = -0.0F;
        Bytes bits((count + 7) / 8, std::byte{0xEE});
        std::vector<float> decoded(count, std::numeric_limits<float>::quiet_NaN());
        kernels().pack_signs(values.data(), count, 0.5F, bits.data(), decoded.data());
        for (std::uint32_t i = 0; i < count; ++i) {
            const bool is_negative = ((static_cast<unsigned>(bits[i / 8]) >> (i % 8)) & 1U) != 0;
            ASSERT_EQ(is_negative, values[i] < 0.0F) << i;
            ASSERT_EQ(decoded[i], values[i] < 0.0F ? -0.5F : 0.5F) << i;
        }
        if (count % 8 != 0) {
            EXPECT_EQ(static_cast<unsigned>(bits.back()) >> (count % 8), 0U) << "padding";
        }
    }
}
TEST_P(PayloadKernelsForm, Round_bf16_is_bf16_of) {
    for (const Shape shape : test::all_shapes()) {
        auto values = make_values(shape, 1000, 3);
        values[10] = std::numeric_limits<float>::max();
        std::vector<std::uint16_t> codes(1000);
        std::vector<float> decoded(1000);
        kernels().round_bf16(values.data(), 1000, codes.data(), decoded.data());
        for (std::size_t i = 0; i < values.size(); ++i) {
            ASSERT_EQ(codes[i], bf16_of(values[i]));
            ASSERT_EQ(float_bits(decoded[i]), float_bits(float_of_bf16(codes[i])));
        }
    }
}

TEST_P(PayloadKernelsForm, Guesses_are_checked_bit_by_bit) {
    for (const bool is_faithful : {false, true})
        for (const std::uint32_t count : counts()) {
            auto values = make_values(Shape::kHeavyTailed, count, count);
            std::vector<float> decoded(count);
            for (std::uint32_t i = 0; i < count; ++i) {
                if (i % 11 == 3) values[i] = -0.0F;
                decoded[i] = i % 3 == 0 ? 0.0F : i % 3 == 1 ? values[i] : std::copysign(0.5F, values[i]);
            }
            const GuessCheck check{0x00400000U, 0xFF800000U, 0x3E800000U, is_faithful};
            std::vector<float> left(count, std::numeric_limits<float>::quiet_NaN());
            std::vector<std::uint8_t> wrong(count, 0xFF);
            std::uint32_t sent = 0;
            const std::uint32_t counted =
                kernels().check_guesses(check, values.data(), decoded.data(), count, left.data(), wrong.data());
            for (std::uint32_t i = 0; i < count; ++i) {
                const bool is_sent = decoded[i] != 0;
                const bool is_guessed = std::abs(values[i]) >= 0.25F;
                int exponent = 0;
                const float mantissa = std::frexp(std::abs(values[i]), &exponent);  // in [0.5, 1)
                const float guess = std::copysign(std::ldexp(1.0F, exponent - (mantissa < 0.75F ? 1 : 0)), values[i]);
                const float after = is_faithful ? 0.0F : values[i] - decoded[i];
                const float expected = is_sent ? after : values[i];
                const float written = is_guessed ? values[i] - guess : values[i];
                sent += is_sent ? 1 : 0;
                ASSERT_EQ(float_bits(left[i]), float_bits(expected)) << i;
                ASSERT_EQ(wrong[i] & 1U, float_bits(expected) != float_bits(written) ? 1U : 0U)
                    << i << " " << values[i];
                ASSERT_EQ(wrong[i] >> 1U, is_sent != is_guessed ? 1U : 0U) << i;
            }
            EXPECT_EQ(counted, sent);
        }
}

TEST(PayloadKernels, The_form_in_use_is_the_dense_pass_form) {
    ASSERT_TRUE(chosen_cpu_form().is_ok());
    EXPECT_EQ(&payload_kernels(), payload_kernels_of(*chosen_cpu_form()));
}

}  // namespace
}  // namespace gradsieve::codec
