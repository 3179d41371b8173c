// The driver at run time, against client/cuda_driver.cpp.
#include "client/cuda_driver.hpp"

#include "device_fixture.hpp"

#include <fcntl.h>

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaDriverTest : public ::testing::Test {
protected:
    FakeMemory memory_;
    std::unique_ptr<CudaDriver> driver_ = load_fake();
};

TEST_F(CudaDriverTest, Missing_library_says_what_to_do) {
    const auto status = CudaDriver::load("/nowhere/libcuda.so.1").status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.text(),
                AllOf(HasSubstr("the CUDA driver /nowhere/libcuda.so.1 cannot be loaded ("),
                      HasSubstr("allowed is a host with NVIDIA's driver"), HasSubstr("without on_device")));
}
TEST_F(CudaDriverTest, Library_that_is_no_driver_names_the_missing_call) {
    const auto status = CudaDriver::load("libc.so.6").status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("libc.so.6 has no cuInit"), HasSubstr("CUDA 11 or later")));
}
TEST_F(CudaDriverTest, Driver_without_a_device_is_told_with_its_own_words) {
    FakeCuda::get().fail("cuInit", 100);
    const auto status = CudaDriver::load(FakeCuda::path()).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.text(), HasSubstr("cuInit answered 100, CUDA_ERROR_FAKE (a fake error): allowed is success"));
}
TEST_F(CudaDriverTest, Lack_of_memory_has_its_own_code_and_unknown_errors_keep_their_number) {
    FakeCuda::get().fail("cuDeviceGetUuid", 2);
    EXPECT_EQ(driver_->device_uuid(0).status().code(), StatusCode::kResourceExhausted);
    FakeCuda::get().fail("cuDeviceGetUuid", 999);
    EXPECT_THAT(driver_->device_uuid(0).status().text(),
                HasSubstr("cuDeviceGetUuid answered 999, an unknown error (no description)"));
}
TEST_F(CudaDriverTest, Pointers_are_of_the_kind_that_the_driver_says) {
    using Type = CudaDriver::MemoryType;
    const auto legacy = driver_->describe(FakeMemory::kLegacy + 4).value();
    EXPECT_EQ(legacy.type, Type::kDevice);
    EXPECT_EQ(legacy.context, FakeCuda::context_of(0));
    EXPECT_EQ(driver_->describe(FakeMemory::kOtherDevice)->device, 1);
    EXPECT_EQ(driver_->describe(FakeMemory::kMapped)->type, Type::kDevice);
    EXPECT_EQ(driver_->describe(FakeMemory::kMapped)->context, nullptr);
    EXPECT_EQ(driver_->describe(FakeMemory::kHost)->type, Type::kHost);
    EXPECT_EQ(driver_->describe(FakeMemory::kManaged)->type, Type::kManaged);
    EXPECT_EQ(driver_->describe(0x123)->type, Type::kUnknown);
}
TEST_F(CudaDriverTest, Only_memory_of_cudaMalloc_has_a_handle) {
    EXPECT_TRUE(driver_->memory_handle(FakeMemory::kLegacy)->has_value());
    for (const auto base : {FakeMemory::kMapped, FakeMemory::kPool})
        EXPECT_FALSE(driver_->memory_handle(base)->has_value());
    FakeCuda::get().fail("cuIpcGetMemHandle", 801);
    EXPECT_FALSE(driver_->memory_handle(FakeMemory::kLegacy)->has_value()) << "not supported";
    FakeCuda::get().fail("cuIpcGetMemHandle", 700);
    EXPECT_EQ(driver_->memory_handle(FakeMemory::kLegacy).status().code(), StatusCode::kUnavailable);
}
TEST_F(CudaDriverTest, Exported_descriptor_closes_on_exec_and_its_handle_is_released) {
    const auto descriptor = driver_->export_allocation(FakeMemory::kMapped);
    ASSERT_TRUE(descriptor.is_ok());
    EXPECT_EQ(::fcntl(descriptor->get(), F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(FakeCuda::get().log_of("cuMemRelease").size(), 1U);
}
TEST_F(CudaDriverTest, Memory_that_cannot_be_shared_names_the_remedy) {
    const auto closed = driver_->export_allocation(FakeMemory::kUnexported).status();
    EXPECT_EQ(closed.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(closed.text(),
                AllOf(HasSubstr("the memory at 0x30000000 was not created to be shared"), HasSubstr("cudaMalloc"),
                      HasSubstr("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"), HasSubstr("host memory")));
    EXPECT_EQ(FakeCuda::get().log_of("cuMemRelease").size(), 1U);
    EXPECT_THAT(driver_->export_allocation(FakeMemory::kPool).status().text(),
                HasSubstr("the memory at 0x40000000 can be shared by no kind of handle"));
}
TEST_F(CudaDriverTest, Scope_puts_the_callers_context_back_and_only_if_it_changed) {
    const auto before = FakeCuda::contexts();
    {
        const ContextScope scope(*driver_, FakeCuda::context_of(1));
        EXPECT_TRUE(scope.status().is_ok());
        EXPECT_EQ(FakeCuda::contexts().back(), FakeCuda::context_of(1));
    }
    EXPECT_EQ(FakeCuda::contexts(), before);
    FakeCuda::get().fail("cuCtxPushCurrent", 709);
    {
        const ContextScope scope(*driver_, FakeCuda::context_of(1));
        EXPECT_FALSE(scope.status().is_ok());
    }
    EXPECT_EQ(FakeCuda::contexts(), before);
}
TEST(AddressText, Is_hexadecimal) {
    EXPECT_EQ(address_text(0), "0x0");
    EXPECT_EQ(address_text(0x7F001200000FULL), "0x7f001200000f");
    EXPECT_EQ(address_text(UINT64_MAX), "0xffffffffffffffff");
}

}  // namespace
}  // namespace gradsieve::client::test
