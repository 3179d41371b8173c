// sign(scale=two_mean): the forms of its sums against the order that the page states, its means and its error.
#include "codec/stages/two_mean.hpp"

#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/payload_form.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace gradsieve::codec {
namespace {

using test::make_values;
using test::Shape;

/// By the page: element j goes to lane j % 32 of its side, each lane adds in order, then halves are added.
SideSums sum_plainly(const std::vector<float>& values) {
    double lanes[2][32] = {};
    SideSums sides;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const unsigned side = values[i] < 0 ? 1 : 0;
        lanes[side][i % 32] += std::fabs(double{values[i]});
        sides.negatives += side;
    }
    for (unsigned side = 0; side < 2; ++side) {
        for (std::size_t width = 16; width > 0; width /= 2)
            for (std::size_t i = 0; i < width; ++i) lanes[side][i] += lanes[side][i + width];
        sides.sums[side] = lanes[side][0];
    }
    return sides;
}

class TwoMeanForm : public test::PayloadForm {};
INSTANTIATE_TEST_SUITE_P(All, TwoMeanForm, ::testing::Values(CpuForm::kScalar, CpuForm::kAvx2, CpuForm::kAvx512));

TEST_P(TwoMeanForm, Sides_are_added_up_in_the_stated_order) {
    for (const Shape shape : test::all_shapes())
        for (const std::size_t count : {1, 2, 31, 32, 33, 95, 1000, 4095, 4096}) {
            const auto values = make_values(shape, count, count);
            const SideSums sums = kernels().side_sums(values.data(), static_cast<std::uint32_t>(count));
            const SideSums plain = sum_plainly(values);
            ASSERT_EQ(sums.negatives, plain.negatives) << test::shape_name(shape) << count;
            for (unsigned side = 0; side < 2; ++side) {
                ASSERT_EQ(std::bit_cast<std::uint64_t>(sums.sums[side]), std::bit_cast<std::uint64_t>(plain.sums[side]))
                    << test::shape_name(shape) << count << ", side " << side;
            }
        }
}
TEST_P(TwoMeanForm, Signs_are_packed_with_a_size_for_each_side) {
    for (const std::uint32_t count : {1U, 8U, 17U, 31U, 64U, 1001U}) {
        const auto values = make_values(Shape::kGaussian, count, count);
        std::vector<std::byte> bits((count + 7) / 8, std::byte{0xA5});
        std::vector<float> decoded(count, NAN);
        std::vector<float> left(count, NAN);
        kernels().pack_signs(values.data(), count, 2.0F, 3.0F, bits.data(), decoded.data());
        kernels().settle_signs(values.data(), count, 2.0F, 3.0F, bits.data(), left.data());
        for (std::uint32_t i = 0; i < count; ++i) {
            const float expected = values[i] < 0 ? -3.0F : 2.0F;
            ASSERT_EQ(decoded[i], expected) << i;
            ASSERT_EQ(left[i], values[i] - expected) << i;
            ASSERT_EQ((static_cast<unsigned>(bits[i / 8]) >> (i % 8)) & 1U, values[i] < 0 ? 1U : 0U) << i;
        }
    }
}

TEST(TwoMean, A_side_without_elements_has_the_mean_zero) {
    const std::vector<float> positive = {1, 2, 0, -0.0F};
    const TwoMeans means = two_means_of(positive, payload_kernels());
    EXPECT_EQ(means.of[0], 0.75F) << "zeros, whatever their sign, are not negative";
    EXPECT_EQ(means.of[1], 0.0F);
    const std::vector<float> negative = {-1, -2, -6};
    EXPECT_EQ(two_means_of(negative, payload_kernels()).of[0], 0.0F);
    EXPECT_EQ(two_means_of(negative, payload_kernels()).of[1], 3.0F);
}
TEST(TwoMean, Each_side_of_a_tile_becomes_its_mean_and_the_rest_stays) {
    reference::Input input = make_input(*parse_pipeline("all | sign(scale=two_mean)"), 6, 1, DataKind::kZero, 1);
    input.samples[0] = {1, 3, -4, 2, -8, 0};
    EncodeWorkspace workspace;
    const FormOutput output = run_form(input, zero_state(input), CpuForm::kScalar, workspace);
    EXPECT_THAT(decode_payloads(output.result.chunks, 6), ::testing::ElementsAre(1.5F, 1.5F, -6, 1.5F, -6, 1.5F));
    EXPECT_THAT(output.state.residual, ::testing::ElementsAre(-0.5F, 1.5F, 2, 0.5F, -2, -1.5F));
}
TEST(TwoMean, Leaves_no_more_than_the_mean_magnitude_does) {
    for (const Shape shape : {Shape::kGaussian, Shape::kHeavyTailed, Shape::kOneHot, Shape::kAlternating}) {
        const auto left_of = [&](const char* text) {
            const auto values = make_values(shape, 4096, 7);
            const auto coded = test::code(*parse_pipeline(text), values.size(), true, {}, values);
            double left = 0;
            for (std::size_t i = 0; i < values.size(); ++i)
                left += (double{values[i]} - coded.decoded[i]) * (double{values[i]} - coded.decoded[i]);
            return left;
        };
        EXPECT_LE(left_of("all | sign(scale=two_mean)"), left_of("all | sign") * (1 + 1e-6)) << test::shape_name(shape);
    }
}
TEST(TwoMean, A_list_has_bf16_means_of_what_was_selected) {
    const auto coded = test::code(*parse_pipeline("topk(0.5) | sign(scale=two_mean) | raw32"), 5000, false,
                                  {1, 2, 3, 4500}, {1, -1.0078125F, 2, -5});
    EXPECT_THAT(coded.decoded, ::testing::ElementsAre(1.5F, -1.0078125F, 1.5F, -5));
    const auto cut =
        test::code(*parse_pipeline("topk(0.5) | sign(scale=two_mean) | raw32"), 5000, false, {1, 2}, {1.001F, -0.999F});
    EXPECT_THAT(cut.decoded, ::testing::ElementsAre(1.0F, -1.0F));
    // Two subnormal negatives have no bf16 mean: only the positive element is sent.
    const auto tiny = test::code(*parse_pipeline("topk(0.5) | sign(scale=two_mean) | raw32"), 5000, false, {1, 2, 3},
                                 {-1e-42F, 1, -1e-42F});
    EXPECT_THAT(tiny.decoded, ::testing::ElementsAre(0.0F, 1.0F, 0.0F));
}

}  // namespace
}  // namespace gradsieve::codec
