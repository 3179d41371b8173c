#include "shm/layout.hpp"

#include <gtest/gtest.h>

#include <bit>

namespace gradsieve::shm {
namespace {

TEST(Layout, Gradient_segment_of_two_tensors_is_as_computed_by_hand) {
    const std::vector<TensorEntry> tensors{
        {.name = "a", .group = "", .shape = {3, 5}, .samples_max = 2, .has_second_moment = true},
        {.name = "b", .group = "", .shape = {17}, .samples_max = 1}};
    const auto layout = gradient_layout(tensors).value();
    ASSERT_EQ(layout.slabs.size(), 2U);
    EXPECT_EQ(layout.slabs[0].counts, 0U);
    EXPECT_EQ(layout.slabs[0].slices, 64U);
    EXPECT_EQ(layout.slabs[0].stride_bytes, 64U);  // 15 floats = 60 bytes
    EXPECT_EQ(layout.slabs[1].counts, 64U + 3 * 64U);
    EXPECT_EQ(layout.slabs[1].slices, 320U);
    EXPECT_EQ(layout.slabs[1].stride_bytes, 128U);  // 17 floats = 68 bytes
    EXPECT_EQ(layout.total_bytes, 4096U);
}

TEST(Layout, Tensor_on_a_device_has_counts_and_no_slices) {
    const std::vector<TensorEntry> tensors{
        {.name = "a", .shape = {1 << 20}, .samples_max = 17, .has_second_moment = true, .on_device = true},
        {.name = "b", .shape = {17}}};
    const auto layout = gradient_layout(tensors).value();
    EXPECT_EQ(layout.slabs[0].counts, 0U);
    EXPECT_EQ(layout.slabs[0].slices, 128U) << "17 counts of 4 bytes";
    EXPECT_EQ(layout.slabs[0].stride_bytes, 0U);
    EXPECT_EQ(layout.slabs[0].elements, 1U << 20U);
    EXPECT_TRUE(layout.slabs[0].on_device);
    EXPECT_EQ(layout.slabs[1].counts, 128U);
    EXPECT_EQ(layout.slabs[1].slices, 192U);
    EXPECT_FALSE(layout.slabs[1].on_device);
    EXPECT_EQ(layout.total_bytes, 4096U);
}

TEST(Layout, Tensor_on_a_device_is_bounded_like_any_other) {
    const std::vector<TensorEntry> tensors{{.name = "a", .shape = {kSegmentLimitBytes / 4 + 1}, .on_device = true}};
    EXPECT_EQ(gradient_layout(tensors).status().code(), StatusCode::kInvalidArgument);
}

TEST(Layout, Slabs_are_aligned_and_do_not_overlap) {
    std::vector<TensorEntry> tensors;
    for (std::uint64_t number = 0; number < 100; ++number) {
        tensors.push_back({.name = std::to_string(number),
                           .group = "",
                           .shape = {number * 7},
                           .samples_max = static_cast<std::uint32_t>(1 + number * 3 % 256),
                           .has_second_moment = number % 2 == 0});
    }
    const auto layout = gradient_layout(tensors).value();
    std::uint64_t end = 0;
    for (const auto& slab : layout.slabs) {
        EXPECT_GE(slab.counts, end);
        EXPECT_GE(slab.slices, slab.counts + slab.samples_max * 4U);
        EXPECT_GE(slab.stride_bytes, slab.elements * 4);
        EXPECT_EQ(slab.slices % 64, 0U);
        EXPECT_EQ(slab.stride_bytes % 64, 0U);
        end = slab.slices + slab.stride_bytes * (slab.samples_max + (slab.has_second_moment ? 1U : 0U));
    }
    EXPECT_LE(end, layout.total_bytes);
    EXPECT_EQ(layout.total_bytes % 4096, 0U);
}

TEST(Layout, Tensors_without_elements_still_have_a_page) {
    EXPECT_EQ(result_layout({}).value().total_bytes, 4096U);
    const std::vector<ElementCount> none{0, 0, 0};
    const auto layout = result_layout(none).value();
    EXPECT_EQ(layout.total_bytes, 4096U);
    EXPECT_EQ(layout.offsets, (std::vector<std::uint64_t>{0, 0, 0}));
}

TEST(Layout, Result_area_is_as_computed_by_hand) {
    const std::vector<ElementCount> elements{1, 16, 17, 2000};
    const auto layout = result_layout(elements).value();
    EXPECT_EQ(layout.offsets, (std::vector<std::uint64_t>{0, 64, 128, 256}));
    EXPECT_EQ(layout.total_bytes, 12'288U);  // 256 + 8000
}

TEST(Layout, Sizes_that_overflow_or_pass_the_limit_are_refused_and_the_tensor_named) {
    for (const auto elements : {UINT64_MAX, UINT64_MAX / 4, (kSegmentLimitBytes / 4) + 1}) {
        const std::vector<TensorEntry> tensors{{.name = "small", .group = "", .shape = {1}},
                                               {.name = "monster", .group = "", .shape = {elements}}};
        const auto status = gradient_layout(tensors).status();
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << elements;
        EXPECT_NE(status.text().find("tensor 'monster'"), std::string::npos) << status.text();
        const std::vector<ElementCount> counts{1, elements};
        EXPECT_EQ(result_layout(counts).status().code(), StatusCode::kInvalidArgument);
    }
    const std::vector<ElementCount> exact{kSegmentLimitBytes / 4};
    EXPECT_TRUE(result_layout(exact).is_ok());
}

TEST(Layout, Slices_count_against_the_limit_too) {
    const std::vector<TensorEntry> tensors{
        {.name = "a", .group = "", .shape = {kSegmentLimitBytes / 4 / 256}, .samples_max = 256}};
    EXPECT_EQ(gradient_layout(tensors).status().code(), StatusCode::kInvalidArgument) << "256 slices and their counts";
}

TEST(Layout, Rings_have_room_for_two_of_everything_and_powers_of_two) {
    std::vector<TensorEntry> tensors;
    for (int number = 0; number < 100; ++number) {
        tensors.push_back({.name = std::to_string(number), .group = std::to_string(number % 3), .shape = {1}});
    }
    const auto layout = control_layout(tensors);
    EXPECT_EQ(layout.submission_capacity, 256U);  // 216
    EXPECT_EQ(layout.completion_capacity, 256U);  // 238
    EXPECT_EQ(layout.submission_cells, 1024U);
    EXPECT_EQ(layout.completion_cells, 1024U + 256 * 64U);
    EXPECT_EQ(layout.ready_words, 148'480U);  // 1024 + 256 * (64 + 512)
    EXPECT_EQ(layout.ready_word_count, 100U);
    EXPECT_EQ(layout.total_bytes, 151'552U);  // and 400 bytes of ready words, in pages
    const auto one = control_layout(std::span(tensors).first(1));
    EXPECT_EQ(one.submission_capacity, 32U);
    EXPECT_EQ(one.completion_capacity, 64U);
    EXPECT_TRUE(std::has_single_bit(one.submission_capacity));
}

TEST(Layout, Ready_words_lie_behind_the_cells_and_the_segment_grows_by_whole_pages) {
    std::vector<TensorEntry> tensors;
    for (int number = 0; number < 2000; ++number)
        tensors.push_back({.name = std::to_string(number), .group = "", .shape = {1}, .on_device = number % 2 == 0});
    const auto layout = control_layout(tensors);
    EXPECT_EQ(layout.submission_capacity, 4096U);  // 4016
    EXPECT_EQ(layout.completion_capacity, 4096U);  // 4034
    EXPECT_EQ(layout.ready_words, 2'360'320U);     // 1024 + 4096 * (64 + 512)
    EXPECT_EQ(layout.ready_word_count, 2000U) << "of every tensor, wherever it lies";
    EXPECT_EQ(layout.total_bytes, 2'371'584U);  // 576 pages of cells, then 1024 + 8000 bytes
    EXPECT_EQ(layout.ready_words % 64, 0U);
}

}  // namespace
}  // namespace gradsieve::shm
