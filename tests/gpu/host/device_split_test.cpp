// How tensors are cut for several devices.
#include "codec/cuda/device_split.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace gradsieve::codec::cuda {
namespace {

using Ranges = std::vector<std::vector<DeviceRange>>;

TEST(DeviceSplit, Large_tensors_are_cut_at_chunks_and_small_ones_go_where_least_is) {
    const std::vector<ElementCount> elements = {5000, 4 * kChunkElements + 1, 0, 3000};
    const Ranges expected = {{{0, 5000}, {5000, 0}},
                             {{0, 2 * kChunkElements}, {2 * kChunkElements, 2 * kChunkElements + 1}},
                             {{0, 0}, {0, 0}},
                             {{0, 0}, {0, 3000}}};
    EXPECT_EQ(split_over_devices(elements, 2), expected);
}

TEST(DeviceSplit, Many_tensors_of_one_size_do_not_pile_up_on_a_device) {
    for (const ElementCount size : {ElementCount{1000}, kChunkElements + 5000, 3 * kChunkElements - 7}) {
        const std::vector<ElementCount> elements(120, size);
        ElementCount first = 0;
        for (const auto& ranges : split_over_devices(elements, 3)) first += ranges[0].elements;
        EXPECT_LE(first, 40 * size + std::min(size, kChunkElements));
        EXPECT_GE(first + std::min(size, kChunkElements), 40 * size);
    }
}

TEST(DeviceSplit, What_is_not_to_be_cut_goes_where_least_is) {
    const std::vector<ElementCount> elements = {5 * kChunkElements, 6 * kChunkElements, 4 * kChunkElements};
    const std::vector<std::size_t> whole = {1, 2};
    const Ranges expected = {
        {{0, 0}, {0, 5 * kChunkElements}},
        {{0, 6 * kChunkElements}, {6 * kChunkElements, 0}},
        {{0, 4 * kChunkElements}, {4 * kChunkElements, 0}},
    };
    EXPECT_EQ(split_over_devices(std::span(elements).first(2), 2, std::span(whole).first(1)),
              (Ranges{expected[0], expected[1]}));
    const auto ranges = split_over_devices(elements, 2, whole);
    for (const std::size_t tensor : whole)
        EXPECT_TRUE(ranges[tensor][0].elements == 0 || ranges[tensor][1].elements == 0) << tensor;
}

TEST(DeviceSplit, One_device_has_everything) {
    const std::vector<ElementCount> elements = {1, 7 * kChunkElements, 0};
    EXPECT_EQ(split_over_devices(elements, 1), (Ranges{{{0, 1}}, {{0, 7 * kChunkElements}}, {{0, 0}}}));
}

TEST(DeviceSplit, Ranges_cover_every_tensor_once_begin_at_chunks_and_balance) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    for (unsigned turn = 0; turn < 200; ++turn) {
        const std::size_t devices = 1 + random() % 8;
        std::vector<ElementCount> elements(1 + random() % 40);
        for (auto& one : elements) one = random() % (random() % 3 == 0 ? 20 * kChunkElements : kChunkElements);
        const auto ranges = split_over_devices(elements, devices);
        EXPECT_EQ(ranges, split_over_devices(elements, devices)) << "the same everywhere";
        std::vector<ElementCount> loads(devices, 0);
        for (std::size_t tensor = 0; tensor < elements.size(); ++tensor) {
            ElementCount next = 0;
            for (std::size_t device = 0; device < devices; ++device) {
                const auto& range = ranges[tensor][device];
                ASSERT_EQ(range.first, next);
                ASSERT_TRUE(range.elements == 0 || range.first % kChunkElements == 0);
                next = range.end();
                loads[device] += range.elements;
            }
            ASSERT_EQ(next, elements[tensor]);
        }
        const auto [least, most] = std::ranges::minmax(loads);
        EXPECT_LE(most - least, kChunkElements + kChunkElements / 2)
            << devices << " devices, " << elements.size() << " tensors";
    }
}

}  // namespace
}  // namespace gradsieve::codec::cuda
