// What a job keeps on GPUs: places, names and claims follow from the tensors and the GPUs alone.
#include "daemon/device_parts.hpp"

#include "tests/shm/state_testing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace gradsieve::daemon {
namespace {

using codec::cuda::DeviceRange;
using testing::HasSubstr;

const std::vector<std::string> kGpus = {"GPU-aa", "GPU-bb"};
const exchange::JobKey kKey{"a:b\n", "run"};

/// Tensor "a" on the first GPU alone, "b" on both, "c" keeps nothing.
std::vector<std::vector<DeviceRange>> ranges() { return {{{0, 300}, {300, 0}}, {{0, 1200}, {1200, 800}}, {}}; }

TEST(DeviceParts, Arrays_follow_one_another_in_each_part_behind_its_mark) {
    const auto placement = place_on_devices(shm::gpu_table(), kGpus, ranges(), 5);
    ASSERT_EQ(placement.parts.size(), 2U);
    EXPECT_EQ(placement.parts[0].gpu, "GPU-aa");
    EXPECT_EQ(placement.parts[0].bytes, shm::kDevicePageBytes) << "whole pages";
    const auto& first = placement.tensors[0][0];
    // residual, variance; then the same of the other generation; 1,200 bytes take 1,280
    EXPECT_EQ(first.offset_bytes[0][0], 256U);
    EXPECT_EQ(first.offset_bytes[1][0], 256U + 1280);
    EXPECT_EQ(first.offset_bytes[0][1], 256U + 2 * 1280);
    EXPECT_EQ(placement.tensors[1][0].offset_bytes[0][0], 256U + 4 * 1280);
    EXPECT_EQ(placement.tensors[1][1].offset_bytes[0][0], 256U) << "the other GPU has nothing of tensor a";
    EXPECT_EQ(placement.tensors[1][1].offset_bytes[0][1], 256U + 3328);
    EXPECT_TRUE(placement.tensors[2].empty());
    const auto parsed = shm::parse_placement(shm::build_placement(placement), shm::gpu_table());
    ASSERT_TRUE(parsed.is_ok()) << parsed.error().to_string();
}
TEST(DeviceParts, Arrays_on_the_host_have_no_place) {
    auto table = shm::gpu_table();
    table.tensors[0].arrays.push_back({.name = "factor", .part = shm::kHostPart, .bytes = 40});
    const auto placement = place_on_devices(table, kGpus, ranges(), 5);
    EXPECT_EQ(placement.tensors[0][0].offset_bytes[2], (std::array<std::uint64_t, 2>{0, 0}));
    EXPECT_EQ(placement.tensors[1], place_on_devices(shm::gpu_table(), kGpus, ranges(), 5).tensors[1]);
    const auto parsed = shm::parse_placement(shm::build_placement(placement), table);
    ASSERT_TRUE(parsed.is_ok()) << parsed.error().to_string();
}
TEST(DeviceParts, Without_ranges_a_tensor_lies_on_the_only_gpu) {
    const std::vector<std::vector<DeviceRange>> none(3);
    const auto placement = place_on_devices(shm::gpu_table(), std::span(kGpus).first(1), none, 5);
    ASSERT_EQ(placement.tensors[1].size(), 1U);
    EXPECT_EQ(placement.tensors[1][0].elements, 2000U);
    EXPECT_TRUE(place_on_devices(shm::gpu_table(), std::span(kGpus).first(1), none, 6).is_laid_out_like(placement));
    EXPECT_NE(place_on_devices(shm::gpu_table(), std::span(kGpus).first(1), none, 6).parts[0].key,
              placement.parts[0].key);
}
TEST(DeviceParts, Claims_count_whole_pages_of_each_gpu) {
    auto table = shm::gpu_table();
    table.tensors[1].elements = 300'000;
    table.tensors[1].arrays[0].bytes = 1'200'000;
    const auto placement = place_on_devices(
        table, kGpus, std::vector<std::vector<DeviceRange>>{{{0, 300}, {300, 0}}, {{0, 300'000}, {300'000, 0}}, {}}, 1);
    const std::vector<int> ordinals = {3, 1};
    const auto claims = claims_of(placement, ordinals);
    ASSERT_EQ(claims.size(), 2U);
    EXPECT_EQ(claims[0].device, 3);
    EXPECT_EQ(claims[0].bytes, 2 * shm::kDevicePageBytes) << "2.4 MB and a little";
    EXPECT_EQ(claims[1].uuid, "GPU-bb");
    EXPECT_EQ(claims[1].bytes, shm::kDevicePageBytes) << "its mark takes a page";
}
TEST(DeviceParts, Ordinals_come_from_the_gpus_that_are_seen) {
    const auto placement = place_on_devices(shm::gpu_table(), kGpus, ranges(), 5);
    std::vector<codec::cuda::DeviceInfo> devices(2);
    devices[0].ordinal = 0;
    devices[0].uuid = "GPU-bb";
    devices[1].ordinal = 1;
    devices[1].uuid = "GPU-aa";
    EXPECT_EQ(*ordinals_of(placement, devices), (std::vector<int>{1, 0}));
    devices.pop_back();
    const auto status = ordinals_of(placement, devices).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.text(), HasSubstr("kept state on GPU GPU-aa: this daemon sees GPU-bb; it is dropped"));
}
TEST(DeviceParts, Names_are_what_a_service_manager_takes) {
    auto placement = place_on_devices(shm::gpu_table(), kGpus, ranges(), 5);
    placement.parts[1].gpu = "GPU-e0e1e2e3-e4e5-e6e7-e8e9-eaebecedeeef";
    std::set<std::string> names;
    for (std::size_t place = 0; place < 2; ++place) {
        const auto name = parked_name(kKey, placement, place);
        names.insert(name);
        EXPECT_TRUE(is_parked_name(name) && is_parked_part_name(name));
        EXPECT_LT(name.size(), 255U);
        for (const char letter : name) EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(letter)) || letter == '-');
    }
    EXPECT_EQ(names.size(), 2U);
    EXPECT_THAT(parked_name(kKey, placement, 1), HasSubstr("-gpu-2of2-GPU-e0e1e2e3-"));
    EXPECT_FALSE(is_parked_part_name(parked_name(kKey)));
    EXPECT_TRUE(is_parked_name(parked_name(kKey)));
    EXPECT_FALSE(is_parked_part_name("gradsieve-state-"));
}

}  // namespace
}  // namespace gradsieve::daemon
