// Where memory lies, against client/device_memory.cpp.
#include "client/device_memory.hpp"

#include "device_fixture.hpp"

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DeviceMemoryTest : public ::testing::Test {
protected:
    Result<LocatedMemory> locate(DeviceAddress address, ByteCount bytes) {
        return locate_device_memory(*driver_, "tensor 'w': its gradient", address, bytes);
    }
    Status describe(DeviceAddress address, ByteCount alignment = 4) {
        return describe_device_memory(*driver_, "tensor 'w': its gradient", address, alignment).status();
    }
    FakeMemory memory_;
    std::unique_ptr<CudaDriver> driver_ = load_fake();
};

TEST_F(DeviceMemoryTest, Pointer_inside_a_larger_allocation_has_that_allocations_handle) {
    const auto located = locate(FakeMemory::kLegacy + 512, 100).value();
    EXPECT_TRUE(located.handle.has_value());
    ASSERT_EQ(located.ranges.size(), 1U);
    EXPECT_EQ(located.ranges[0].base, FakeMemory::kLegacy);
    EXPECT_EQ(located.ranges[0].bytes, FakeMemory::kBytes);
}
TEST_F(DeviceMemoryTest, Bytes_up_to_the_last_are_inside_and_one_more_is_not) {
    EXPECT_TRUE(locate(FakeMemory::kLegacy + 512, FakeMemory::kBytes - 512).is_ok());
    const auto status = locate(FakeMemory::kLegacy + 512, FakeMemory::kBytes - 511).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("tensor 'w': its gradient of 2096641 bytes at 0x10000200"),
                                     HasSubstr("ends within its memory, at 0x10200000"), HasSubstr("sample stride")));
    EXPECT_EQ(locate(FakeMemory::kLegacy, UINT64_MAX).status().code(), StatusCode::kInvalidArgument) << "wraps";
}
TEST_F(DeviceMemoryTest, Mapped_memory_may_span_physical_allocations_up_to_a_gap) {
    const auto located = locate(FakeMemory::kMapped + 8, 2 * FakeMemory::kBytes).value();
    EXPECT_FALSE(located.handle.has_value());
    ASSERT_EQ(located.ranges.size(), 3U);
    EXPECT_EQ(located.ranges[2].base, FakeMemory::kMapped + 2 * FakeMemory::kBytes);
    EXPECT_THAT(locate(FakeMemory::kMapped, 11 * FakeMemory::kBytes).status().text(), HasSubstr("at 0x21400000"));
}
TEST_F(DeviceMemoryTest, Other_memory_is_refused_by_its_name) {
    EXPECT_TRUE(describe(FakeMemory::kLegacy).is_ok());
    EXPECT_TRUE(describe(FakeMemory::kLegacy + 2, 2).is_ok());
    const std::vector<std::pair<DeviceAddress, std::string>> cases{
        {0, "has the null pointer: allowed is device memory"},
        {FakeMemory::kLegacy + 2, "lies at 0x10000002: allowed is a multiple of its element's 4 bytes"},
        {FakeMemory::kHost, "at 0x50000000 is host memory"},
        {FakeMemory::kManaged, "is managed memory (cudaMallocManaged)"},
        {0x1000, "at 0x1000 is no memory that CUDA knows"}};
    for (const auto& [address, text] : cases) {
        const auto status = describe(address);
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(status.text(), AllOf(HasSubstr("tensor 'w': its gradient "), HasSubstr(text)));
    }
}
TEST_F(DeviceMemoryTest, Errors_of_the_driver_come_through) {
    FakeCuda::get().fail("cuPointerGetAttributes", 700);
    EXPECT_THAT(describe(FakeMemory::kLegacy).text(), HasSubstr("cuPointerGetAttributes answered 700"));
    FakeCuda::get().fail("cuMemGetAddressRange", 700);
    EXPECT_THAT(locate(FakeMemory::kLegacy, 4).status().text(), HasSubstr("cuMemGetAddressRange answered 700"));
}

}  // namespace
}  // namespace gradsieve::client::test
