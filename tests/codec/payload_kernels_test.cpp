// Every instruction set's form against answers computed element by element here.
#include "codec/payload_kernels.hpp"

#include "codec/digest.hpp"
#include "codec/payload.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/payload_form.hpp"

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

class PayloadKernelsForm : public test::PayloadForm {};
INSTANTIATE_TEST_SUITE_P(All, PayloadKernelsForm,
                         ::testing::Values(CpuForm::kScalar, CpuForm::kAvx2, CpuForm::kAvx512));

/// Three nodes' dense values of a run, in one kind each, unaligned; and what they stand for.
struct DenseRun {
    std::array<Bytes, 3> bytes;
    std::array<std::vector<float>, 3> values;
    std::array<DenseTerm, 3> terms;
};
DenseRun make_dense_run(std::uint32_t count) {
    constexpr std::array kFactors = {0.3F, 0.7F, 0.25F};
    DenseRun run;
    run.values[0] = make_values(Shape::kHeavyTailed, count, count + 1);
    for (const float value : make_values(Shape::kGaussian, count, count + 2))
        run.values[1].push_back(float_of_bf16(bf16_of(value)));
    std::uint64_t state = count;
    for (std::uint32_t i = 0; i < count; ++i) run.values[2].push_back(test::random_word(state) % 2 == 0 ? 1.0F : -1.0F);
    for (Bytes& bytes : run.bytes) bytes.resize(1);
    ByteWriter(run.bytes[0]).write_bytes(std::as_bytes(std::span(run.values[0])));
    for (const float value : run.values[1]) ByteWriter(run.bytes[1]).write(bf16_of(value));
    run.bytes[2].resize(1 + (count + 7) / 8);
    for (std::uint32_t i = 0; i < count; ++i)
        if (run.values[2][i] < 0) run.bytes[2][1 + i / 8] |= static_cast<std::byte>(1U << (i % 8));
    constexpr std::array kKinds = {DenseTerm::Kind::kF32, DenseTerm::Kind::kBf16, DenseTerm::Kind::kSign};
    for (std::size_t term = 0; term < 3; ++term) {
        run.bytes[term].shrink_to_fit();  // the address sanitizer watches the end
        run.terms[term] = {kKinds[term], kFactors[term], run.bytes[term].data() + 1, kFactors[term]};
    }
    return run;
}

TEST_P(PayloadKernelsForm, Dense_terms_add_up_in_order_each_operation_rounded) {
    for (const std::uint32_t count : counts())
        for (const bool streams : {false, true})
            for (const std::vector<std::size_t>& order :
                 std::vector<std::vector<std::size_t>>{{0}, {1}, {2}, {0, 1, 2}, {2, 0, 1, 0}}) {
                const DenseRun run = make_dense_run(count);
                std::vector<DenseTerm> terms;
                for (const std::size_t term : order) terms.push_back(run.terms[term]);
                alignas(64) std::array<float, 4096 + 16> result;
                result.fill(-7.0F);
                bool is_finite = true;
                const std::uint64_t digest = kernels().sum_dense(terms.data(), static_cast<std::uint32_t>(terms.size()),
                                                                 result.data(), streams, 100, count, 77, &is_finite);
                kernels().stream_fence();
                EXPECT_TRUE(is_finite);
                std::vector<float> added(count, 0.0F);
                for (const DenseTerm& term : terms) EXPECT_TRUE(kernels().add_dense(&term, added.data(), count));
                std::uint64_t expected_digest = 0;
                for (std::uint32_t i = 0; i < count; ++i) {
                    float sum = 0.0F;
                    for (const std::size_t term : order) {
                        const volatile float product = run.terms[term].factor * run.values[term][i];
                        sum = sum + product;
                    }
                    ASSERT_EQ(float_bits(result[i]), float_bits(sum)) << count << " " << i;
                    ASSERT_EQ(float_bits(added[i]), float_bits(sum)) << count << " " << i;
                    expected_digest += element_digest(77, 100 + i, float_bits(sum));
                }
                EXPECT_EQ(digest, expected_digest) << count;
                for (std::size_t i = count; i < result.size(); ++i) ASSERT_EQ(result[i], -7.0F) << "written beyond";
            }
}
TEST_P(PayloadKernelsForm, Non_finite_values_are_seen_wherever_they_stand) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()})
        for (const std::uint32_t position : {0U, 15U, 63U, 98U, 99U})
            for (const bool is_bf16 : {false, true})
                for (const bool is_hidden : {false, true}) {
                    std::vector<float> source(100, std::numeric_limits<float>::max());
                    std::vector<std::uint16_t> halves(100, 0x7F7F);
                    if (!is_hidden) source[position] = bad;
                    if (!is_hidden) halves[position] = static_cast<std::uint16_t>(float_bits(bad) >> 16U);
                    const DenseTerm term =
                        is_bf16 ? DenseTerm{DenseTerm::Kind::kBf16, 1, std::as_bytes(std::span(halves)).data()}
                                : DenseTerm{DenseTerm::Kind::kF32, 1, std::as_bytes(std::span(source)).data()};
                    std::vector<float> result(100, 0.0F);
                    EXPECT_EQ(kernels().add_dense(&term, result.data(), 100), is_hidden) << bad << " at " << position;
                    bool is_finite = true;
                    static_cast<void>(kernels().sum_dense(&term, 1, result.data(), false, 0, 100, 1, &is_finite));
                    EXPECT_EQ(is_finite, is_hidden) << bad << " at " << position;
                }
}
TEST_P(PayloadKernelsForm, Fields_pack_and_unpack_as_one_stream_of_bits) {
    std::uint64_t state = 1;
    for (unsigned width = 1; width <= 16; ++width) {
        constexpr std::uint32_t kGroups = 9;
        std::vector<std::uint32_t> words(8 * kGroups);
        for (auto& word : words) word = static_cast<std::uint32_t>(test::random_word(state));  // higher bits set too
        Bytes expected(kGroups * width + 16);
        for (std::size_t bit = 0; bit < words.size() * width; ++bit)
            if (((words[bit / width] >> (bit % width)) & 1U) != 0)
                expected[bit / 8] |= static_cast<std::byte>(1U << (bit % 8));
        Bytes packed(kGroups * width + 16, std::byte{0xEE});
        kernels().pack_words(words.data(), kGroups, width, packed.data());
        EXPECT_TRUE(std::equal(packed.begin(), packed.begin() + kGroups * width, expected.begin())) << width;
        std::vector<std::uint32_t> unpacked(words.size(), ~0U);
        kernels().unpack_words(packed.data(), kGroups, width, unpacked.data());
        for (std::size_t i = 0; i < words.size(); ++i) ASSERT_EQ(unpacked[i], words[i] & ((1U << width) - 1)) << width;
        if (width > 8) continue;
        std::vector<std::uint8_t> octets;
        for (const auto word : words) octets.push_back(static_cast<std::uint8_t>(word & ((1U << width) - 1)));
        packed.assign(kGroups * width + 8, std::byte{0xEE});
        kernels().pack_bytes(octets.data(), kGroups, width, packed.data());
        EXPECT_TRUE(std::equal(packed.begin(), packed.begin() + kGroups * width, expected.begin())) << width;
        std::vector<std::uint8_t> back(octets.size(), 0xEE);
        kernels().unpack_bytes(packed.data(), kGroups, width, back.data());
        EXPECT_EQ(back, octets) << width;
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
TEST_P(PayloadKernelsForm, Upper_parts_and_lower_bits_give_indices_and_how_many_ascend) {
    for (const unsigned low_bits : {0U, 1U, 7U}) {
        const std::vector<std::uint32_t> indices = {0, 5, 6, 200, 201, 1000, 5000};
        Bytes highs(bytes_of_bits((5000U >> low_bits) + 8), std::byte{0});
        std::vector<std::uint32_t> found;
        for (std::uint32_t j = 0; j < indices.size(); ++j) {
            const std::uint32_t bit = (indices[j] >> low_bits) + j;
            highs[bit / 8] |= static_cast<std::byte>(1U << (bit % 8));
            found.push_back(indices[j] & ((1U << low_bits) - 1));
        }
        EXPECT_EQ(kernels().elias_fano_indices(highs.data(), highs.size(), low_bits, found.data()), indices.size());
        EXPECT_EQ(found, indices) << low_bits;
        std::fill(found.begin(), found.end(), 0U);
        EXPECT_EQ(kernels().elias_fano_indices(highs.data(), highs.size(), low_bits, found.data()), low_bits == 0 ? 7U
                                                                                                    : low_bits == 1
                                                                                                        ? 4U
                                                                                                        : 1U)
            << "the first that is no larger than the one before";
    }
}
TEST_P(PayloadKernelsForm, Sums_counts_and_lists_of_what_is_above_a_floor_are_those_of_plain_loops) {
    for (const std::uint32_t count : {0U, 1U, 31U, 64U, 100U, 4096U})
        for (const float at : {0.0F, 0.1F, 2.0F, INFINITY}) {
            const auto values = test::make_values(test::Shape::kGaussian, count, count + 1);
            const auto floor = element::bits_of(at);
            std::array<double, 32> sums{}, squares{}, above{};
            std::vector<std::uint32_t> expected;
            std::uint32_t least = 0x7FFFFFFFU;
            for (std::uint32_t i = 0; i < count; ++i) {
                const double value = values[i];
                sums[i % 32] += value;
                squares[i % 32] += value * value;
                if (!(std::fabs(values[i]) >= at)) continue;
                above[i % 32] += std::fabs(value);
                expected.push_back(10 + i);
                least = std::min(least, element::magnitude_bits(values[i]));
            }
            for (auto* lanes : {&sums, &squares, &above})
                for (std::size_t half = 16; half > 0; half /= 2)
                    for (std::size_t i = 0; i < half; ++i) (*lanes)[i] += (*lanes)[i + half];
            double found_squares = -1;
            EXPECT_EQ(kernels().signed_sums(values.data(), count, &found_squares), sums[0]);
            EXPECT_EQ(found_squares, squares[0]);
            std::uint32_t found_least = ~0U;
            EXPECT_EQ(kernels().sum_above(values.data(), count, floor, &found_least), above[0]);
            EXPECT_EQ(found_least, least);
            EXPECT_EQ(kernels().count_above(values.data(), count, floor), expected.size());
            std::vector<std::uint32_t> found(expected.size() + kIndexSlack + 1);
            ASSERT_EQ(kernels().list_above(values.data(), count, floor, 10, found.data()), expected.size());
            found.resize(expected.size());
            EXPECT_EQ(found, expected) << count << " " << at;
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
        kernels().pack_signs(values.data(), count, 0.5F, 0.5F, bits.data(), decoded.data());
        for (std::uint32_t i = 0; i < count; ++i) {
            const bool is_negative = ((static_cast<unsigned>(bits[i / 8]) >> (i % 8)) & 1U) != 0;
            ASSERT_EQ(is_negative, values[i] < 0.0F) << i;
            ASSERT_EQ(decoded[i], values[i] < 0.0F ? -0.5F : 0.5F) << i;
        }
        if (count % 8 != 0) {
            EXPECT_EQ(static_cast<unsigned>(bits.back()) >> (count % 8), 0U) << "padding";
        }
        Bytes bits_again(bits.size(), std::byte{0xEE});
        std::vector<float> left(count, std::numeric_limits<float>::quiet_NaN());
        kernels().settle_signs(values.data(), count, 0.5F, 0.5F, bits_again.data(), left.data());
        EXPECT_EQ(bits_again, bits);
        for (std::uint32_t i = 0; i < count; ++i) ASSERT_EQ(float_bits(left[i]), float_bits(values[i] - decoded[i]));
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
