// Tensors on a device through the C ABI, against client/c_abi.cpp.
#include "device_fixture.hpp"
#include "environment.hpp"
#include "fake_daemon.hpp"
#include "gradsieve/gradsieve.h"

namespace gradsieve::client::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kPatientMs = std::chrono::milliseconds(kWatchdog).count();

class CAbiDevice : public ::testing::Test {
protected:
    CAbiDevice() {
        environment_.clear_all();
        environment_.set("GRADSIEVE_CUDA_DRIVER", FakeCuda::path());
        gradsieve_job_options options = GRADSIEVE_JOB_OPTIONS_INIT;
        options.name = "job";
        options.rank = 0;
        options.world_size = 1;
        const auto socket_path = daemon_.socket_path();
        options.socket_path = socket_path.c_str();
        EXPECT_EQ(gradsieve_job_make(&options, &job_), GRADSIEVE_OK) << gradsieve_last_error();
        gradsieve_tensor_options on_device = GRADSIEVE_TENSOR_OPTIONS_INIT;
        on_device.on_device = 1;
        const std::uint64_t shape[] = {4};
        for (auto*& tensor : tensors_) {
            const auto name = "t" + std::to_string(&tensor - tensors_);
            EXPECT_EQ(gradsieve_job_add_tensor(job_, name.c_str(), shape, 1, &on_device, &tensor), GRADSIEVE_OK);
        }
        buffer_.pointer = pointer_to(FakeMemory::kLegacy);
        buffer_.elements = 4;
        buffer_.stream = FakeCuda::stream_of(0);
        EXPECT_EQ(gradsieve_job_start(job_, kPatientMs), GRADSIEVE_OK) << gradsieve_last_error();
    }
    ~CAbiDevice() override { gradsieve_job_free(job_); }

    FakeMemory memory_;
    Environment environment_;
    FakeDaemon daemon_;
    gradsieve_job* job_ = nullptr;
    gradsieve_tensor* tensors_[2] = {nullptr, nullptr};
    gradsieve_device_buffer buffer_ = GRADSIEVE_DEVICE_BUFFER_INIT;
};

TEST_F(CAbiDevice, Tensor_is_bound_stepped_and_unbound) {
    auto* const tensor = tensors_[0];
    buffer_.element_type = GRADSIEVE_ELEMENT_BF16;
    ASSERT_EQ(gradsieve_tensor_bind_device(tensor, &buffer_, kPatientMs), GRADSIEVE_OK) << gradsieve_last_error();
    EXPECT_EQ(daemon_.await_binds(1)[0].request.bindings[0].type, shm::ElementType::kBf16);
    ASSERT_EQ(gradsieve_tensor_submit(tensor, 1, nullptr), GRADSIEVE_OK) << gradsieve_last_error();
    ASSERT_EQ(gradsieve_tensor_bind_device(tensors_[1], &buffer_, kPatientMs), GRADSIEVE_OK);
    ASSERT_EQ(gradsieve_tensor_submit(tensors_[1], 1, nullptr), GRADSIEVE_OK);
    const float poison = 7;
    const float* values = &poison;
    ASSERT_EQ(gradsieve_tensor_wait(tensor, kPatientMs, &values), GRADSIEVE_OK) << gradsieve_last_error();
    EXPECT_EQ(values, nullptr) << "the average is in the bound memory";
    ASSERT_EQ(gradsieve_job_finish(job_, 1, nullptr, kPatientMs), GRADSIEVE_OK);
    ASSERT_EQ(gradsieve_tensor_unbind_device(tensor, kPatientMs), GRADSIEVE_OK) << gradsieve_last_error();
    EXPECT_EQ(gradsieve_tensor_submit(tensor, 2, nullptr), GRADSIEVE_FAILED_PRECONDITION);
}
TEST_F(CAbiDevice, Many_tensors_are_bound_together) {
    auto second = buffer_;
    second.pointer = pointer_to(FakeMemory::kLegacy + 16);
    const gradsieve_device_buffer* const buffers[] = {&buffer_, &second};
    ASSERT_EQ(gradsieve_job_bind_devices(job_, tensors_, buffers, 2, kPatientMs), GRADSIEVE_OK)
        << gradsieve_last_error();
    const auto binds = daemon_.await_binds(1);
    ASSERT_EQ(binds[0].request.bindings.size(), 2U);
    EXPECT_EQ(binds[0].request.bindings[1].gradient.offset_bytes, 16U);
}
TEST_F(CAbiDevice, Wrong_arguments_are_named) {
    const gradsieve_device_buffer* const buffers[] = {&buffer_, nullptr};
    gradsieve_tensor* const no_tensors[] = {nullptr};
    const auto expect_named = [](gradsieve_status status, const std::string& argument) {
        EXPECT_EQ(status, GRADSIEVE_INVALID_ARGUMENT) << argument;
        EXPECT_THAT(gradsieve_last_error(), StartsWith(argument + " is NULL"));
    };
    expect_named(gradsieve_tensor_bind_device(nullptr, &buffer_, 0), "tensor");
    expect_named(gradsieve_tensor_bind_device(tensors_[0], nullptr, 0), "buffer");
    expect_named(gradsieve_tensor_unbind_device(nullptr, 0), "tensor");
    expect_named(gradsieve_job_bind_devices(nullptr, tensors_, buffers, 2, 0), "job");
    expect_named(gradsieve_job_bind_devices(job_, nullptr, buffers, 2, 0), "tensors");
    expect_named(gradsieve_job_bind_devices(job_, tensors_, nullptr, 2, 0), "buffers");
    expect_named(gradsieve_job_bind_devices(job_, tensors_, buffers, 2, 0), "buffers[1]");
    expect_named(gradsieve_job_bind_devices(job_, no_tensors, buffers, 1, 0), "tensors[0]");
    EXPECT_EQ(gradsieve_job_bind_devices(job_, nullptr, nullptr, 0, 0), GRADSIEVE_OK);
    buffer_.element_type = 3;
    EXPECT_EQ(gradsieve_tensor_bind_device(tensors_[0], &buffer_, 0), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), HasSubstr("element_type is 3: allowed is 0 (float32)"));
    buffer_.struct_size = 8;
    EXPECT_EQ(gradsieve_tensor_bind_device(tensors_[0], &buffer_, 0), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), HasSubstr("gradsieve_device_buffer.struct_size is 8"));
    gradsieve_job_options options = GRADSIEVE_JOB_OPTIONS_INIT;
    options.name = "other";
    options.rank = 0;
    options.world_size = 1;
    gradsieve_job* other = nullptr;
    ASSERT_EQ(gradsieve_job_make(&options, &other), GRADSIEVE_OK);
    EXPECT_EQ(gradsieve_job_bind_devices(other, tensors_, buffers, 1, 0), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), HasSubstr("'t0' is not of this job"));
    gradsieve_job_free(other);
}
TEST_F(CAbiDevice, Slabs_of_tensors_on_a_device_are_refused_with_words) {
    float* values = nullptr;
    EXPECT_EQ(gradsieve_tensor_gradient(tensors_[0], 0, &values), GRADSIEVE_FAILED_PRECONDITION);
    EXPECT_THAT(gradsieve_last_error(), HasSubstr("tensor 't0' is on a device and has no slab"));
}
TEST_F(CAbiDevice, Staged_tensor_says_so_and_hands_its_memory_over) {
    gradsieve_job_options options = GRADSIEVE_JOB_OPTIONS_INIT;
    FakeDaemon daemon;
    const auto socket_path = daemon.socket_path();
    options.name = "job";
    options.rank = 0;
    options.world_size = 1;
    options.socket_path = socket_path.c_str();
    gradsieve_tensor_options on_device = GRADSIEVE_TENSOR_OPTIONS_INIT;
    on_device.on_device = 1;
    const std::uint64_t shape[] = {4};
    const auto memory = FakeCuda::get().add_memory(Kind::kPool, 64);
    buffer_.pointer = pointer_to(memory);
    std::fill_n(static_cast<float*>(buffer_.pointer), 4, 3.0F);
    for (const char* const require : {"", "cuda-ipc"}) {
        options.require = require;
        gradsieve_job* job = nullptr;
        gradsieve_tensor* tensor = nullptr;
        ASSERT_EQ(gradsieve_job_make(&options, &job), GRADSIEVE_OK) << gradsieve_last_error();
        ASSERT_EQ(gradsieve_job_add_tensor(job, "w", shape, 1, &on_device, &tensor), GRADSIEVE_OK);
        ASSERT_EQ(gradsieve_tensor_bind_device(tensor, &buffer_, kPatientMs), GRADSIEVE_OK) << gradsieve_last_error();
        std::int32_t is_staged = 7;
        ASSERT_EQ(gradsieve_tensor_is_staged(tensor, &is_staged), GRADSIEVE_OK);
        EXPECT_EQ(is_staged, 1);
        const auto started = gradsieve_job_start(job, kPatientMs);
        EXPECT_EQ(started, *require == '\0' ? GRADSIEVE_OK : GRADSIEVE_FAILED_PRECONDITION);
        if (started == GRADSIEVE_OK) {
            const float* values = nullptr;
            ASSERT_EQ(gradsieve_tensor_submit(tensor, 1, nullptr), GRADSIEVE_OK) << gradsieve_last_error();
            ASSERT_EQ(gradsieve_tensor_wait(tensor, kPatientMs, &values), GRADSIEVE_OK) << gradsieve_last_error();
            EXPECT_EQ(values, nullptr);
        }
        gradsieve_job_free(job);
    }
    std::int32_t is_staged = 7;
    EXPECT_EQ(gradsieve_tensor_is_staged(tensors_[0], &is_staged), GRADSIEVE_OK);
    EXPECT_EQ(is_staged, 0);
    EXPECT_EQ(gradsieve_tensor_is_staged(nullptr, &is_staged), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_EQ(gradsieve_tensor_is_staged(tensors_[0], nullptr), GRADSIEVE_INVALID_ARGUMENT);
}
TEST(CAbiDeviceOptions, Program_of_before_on_device_has_tensors_in_host_memory) {
    struct {
        std::size_t struct_size;
        const char* group;
        std::uint32_t samples_max;
        std::int32_t has_second_moment;
    } const first_release{24, nullptr, 1, 0};
    gradsieve_job_options options = GRADSIEVE_JOB_OPTIONS_INIT;
    options.name = "job";
    options.rank = 0;
    options.world_size = 1;
    gradsieve_job* job = nullptr;
    gradsieve_tensor* tensor = nullptr;
    ASSERT_EQ(gradsieve_job_make(&options, &job), GRADSIEVE_OK);
    EXPECT_EQ(gradsieve_job_add_tensor(job, "w", nullptr, 0,
                                       reinterpret_cast<const gradsieve_tensor_options*>(&first_release), &tensor),
              GRADSIEVE_OK)
        << gradsieve_last_error();
    gradsieve_job_free(job);
}

}  // namespace
}  // namespace gradsieve::client::test
