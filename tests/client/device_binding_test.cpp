// What this process knows of its tensors on a device, against client/device_binding.cpp.
#include "client/device_binding.hpp"

#include "device_fixture.hpp"

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DeviceBindingTest : public ::testing::Test {
protected:
    Result<BindingPlan> plan(const DeviceBuffer& buffer) { return bindings_->plan(0, tensor_, buffer); }
    /// Binds as if the daemon had agreed.
    Status bind(const DeviceBuffer& buffer) {
        const auto made = plan(buffer);
        if (!made.is_ok()) return made.error();
        BindBatch batch;
        const auto added = batch.add(bindings_->driver(), *made);
        if (!added.is_ok()) return added;
        bindings_->on_sent(batch);
        bindings_->on_done(batch);
        return {};
    }
    Status write(Step step) { return bindings_->write_ready(0, "w", step); }
    [[nodiscard]] std::string write_text(Step step, int device = 0) const {
        return "cuStreamWriteValue32(" + std::to_string(0x5000 + device) + ", " +
               std::to_string(FakeCuda::device_address_of(words_->data())) + ", " + std::to_string(step) +
               ", 0) in context (" + std::to_string(0xC000 + device) + ")";
    }

    FakeMemory memory_;
    shm::TensorEntry tensor_{.name = "w", .shape = {4}, .on_device = true};
    std::shared_ptr<std::array<std::uint32_t, 1>> words_ = std::make_shared<std::array<std::uint32_t, 1>>();
    std::unique_ptr<DeviceBindings> bindings_ = std::make_unique<DeviceBindings>(load_fake(), *words_, words_);
    DeviceBuffer good_{.pointer = pointer_to(FakeMemory::kLegacy + 64),
                       .elements = 4,
                       .type = ElementType::kF32,
                       .stream = FakeCuda::stream_of(0)};
};

TEST_F(DeviceBindingTest, Plan_tells_memory_device_and_ready_word) {
    const auto made = plan(good_).value();
    EXPECT_EQ(made.binding.sample_stride_bytes, 16U);
    EXPECT_EQ(made.gradient->address, FakeMemory::kLegacy + 64);
    EXPECT_EQ(made.gradient->bytes, 16U);
    EXPECT_EQ(made.binding.device[15], std::byte{0x70});
    EXPECT_EQ(made.ready_word, FakeCuda::device_address_of(words_->data()));
    EXPECT_EQ(made.context, FakeCuda::context_of(0));
}
TEST_F(DeviceBindingTest, Slices_and_second_moment_are_covered) {
    tensor_.samples_max = 3;
    tensor_.has_second_moment = true;
    good_.type = ElementType::kBf16;
    good_.sample_stride_elements = 10;
    good_.second_moment = pointer_to(FakeMemory::kLegacy + 0x1000);
    const auto made = plan(good_).value();
    EXPECT_EQ(made.binding.sample_stride_bytes, 20U);
    EXPECT_EQ(made.gradient->bytes, 48U) << "two strides and a slice";
    EXPECT_EQ(made.second_moment->bytes, 16U) << "floats";
}
TEST_F(DeviceBindingTest, Wrong_buffers_are_refused_with_what_is_allowed) {
    const auto expect = [&](const std::string& text, auto change) {
        auto buffer = good_;
        change(buffer);
        const auto status = plan(buffer).status();
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
        EXPECT_THAT(status.text(), AllOf(HasSubstr("tensor 'w': "), HasSubstr(text), HasSubstr("allowed is")));
    };
    expect("the buffer has 5 elements: allowed is 4", [](auto& buffer) { buffer.elements = 5; });
    expect("the element type is 3", [](auto& buffer) { buffer.type = ElementType{3}; });
    expect("slices lie 3 elements apart", [](auto& buffer) { buffer.sample_stride_elements = 3; });
    expect("slices lie 2^64 bytes apart", [](auto& buffer) { buffer.sample_stride_elements = UINT64_MAX / 2; });
    expect("there is a second moment", [](auto& buffer) { buffer.second_moment = buffer.pointer; });
    expect("its gradient has the null pointer", [](auto& buffer) { buffer.pointer = nullptr; });
    expect("its gradient at 0x50000000 is host memory",
           [](auto& buffer) { buffer.pointer = pointer_to(FakeMemory::kHost); });
    expect("its gradient of 16 bytes at 0x101ffff4: allowed is what ends within its memory",
           [](auto& buffer) { buffer.pointer = pointer_to(FakeMemory::kLegacy + FakeMemory::kBytes - 12); });
    expect("its memory is on device 0 and the stream on device 1",
           [](auto& buffer) { buffer.stream = FakeCuda::stream_of(1); });
    tensor_.has_second_moment = true;
    expect("there is no second moment", [](auto&) {});
    expect("its second moment is on device 1",
           [](auto& buffer) { buffer.second_moment = pointer_to(FakeMemory::kOtherDevice); });
    expect("its second moment lies at 0x10000002",
           [](auto& buffer) { buffer.second_moment = pointer_to(FakeMemory::kLegacy + 2); });
}
TEST_F(DeviceBindingTest, Unknown_stream_gives_the_drivers_words) {
    good_.stream = pointer_to(0x9999);
    EXPECT_THAT(plan(good_).status().text(), HasSubstr("cuStreamGetCtx answered 400"));
}
TEST_F(DeviceBindingTest, Default_stream_is_of_the_memorys_context_or_else_of_the_current_one) {
    good_.stream = nullptr;
    FakeCuda::contexts().clear();
    EXPECT_EQ(plan(good_)->context, FakeCuda::context_of(0)) << "cudaMalloc'd memory has one";
    good_.pointer = pointer_to(FakeMemory::kMapped);
    const auto none = plan(good_).status();
    EXPECT_EQ(none.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(none.text(),
                AllOf(HasSubstr("no CUDA context is current on this thread"), HasSubstr("cudaSetDevice(0)")));
    FakeCuda::contexts().push_back(FakeCuda::context_of(0));
    EXPECT_EQ(plan(good_)->context, FakeCuda::context_of(0));
}
TEST_F(DeviceBindingTest, Callers_context_is_as_it_was_whatever_happens) {
    FakeCuda::contexts().assign(2, FakeCuda::context_of(1));
    const auto before = FakeCuda::contexts();
    ASSERT_TRUE(bind(good_).is_ok());
    ASSERT_TRUE(write(1).is_ok());
    for (const char* call : {"cuPointerGetAttributes", "cuMemGetAddressRange", "cuIpcGetMemHandle", "cuDeviceGetUuid",
                             "cuCtxGetDevice", "cuCtxPushCurrent", "cuMemHostGetDevicePointer"}) {
        FakeCuda::get().fail(call, 700);
        EXPECT_FALSE(plan(good_).is_ok()) << call;
    }
    FakeCuda::get().fail("cuStreamWriteValue32", 700);
    EXPECT_FALSE(write(2).is_ok());
    bindings_.reset();
    EXPECT_EQ(FakeCuda::contexts(), before);
}
TEST_F(DeviceBindingTest, Steps_write_the_word_on_the_stream_that_is_bound) {
    ASSERT_TRUE(bind(good_).is_ok());
    ASSERT_TRUE(write(1).is_ok());
    EXPECT_EQ(words_->front(), 1U);
    good_.pointer = pointer_to(FakeMemory::kOtherDevice);
    good_.stream = FakeCuda::stream_of(1);
    ASSERT_TRUE(bind(good_).is_ok());
    ASSERT_TRUE(write(2).is_ok());
    EXPECT_THAT(FakeCuda::get().log_of("cuStreamWriteValue32"), ElementsAre(write_text(1), write_text(2, 1)));
    EXPECT_EQ(FakeCuda::get().log_of("cuMemHostRegister").size(), 1U) << "once for all contexts";
}
TEST_F(DeviceBindingTest, Buffer_that_is_refused_registers_nothing) {
    good_.elements = 5;
    ASSERT_FALSE(plan(good_).is_ok());
    good_.elements = 4;
    good_.stream = FakeCuda::stream_of(1);
    ASSERT_FALSE(plan(good_).is_ok());
    EXPECT_EQ(FakeCuda::get().registered(), 0);
}
TEST_F(DeviceBindingTest, Pages_are_given_back_with_the_bindings) {
    ASSERT_TRUE(bind(good_).is_ok());
    EXPECT_EQ(FakeCuda::get().registered(), 1);
    bindings_.reset();
    EXPECT_EQ(FakeCuda::get().registered(), 0);
}
TEST_F(DeviceBindingTest, Unbound_tensor_takes_no_step) {
    ASSERT_TRUE(bind(good_).is_ok());
    BindBatch batch;
    ASSERT_TRUE(batch.add(bindings_->driver(), BindingPlan()).is_ok()) << "no gradient: unbinds tensor 0";
    bindings_->on_sent(batch);
    bindings_->on_done(batch);
    EXPECT_EQ(write(1).code(), StatusCode::kFailedPrecondition);
}
TEST_F(DeviceBindingTest, Steps_need_a_binding_that_is_not_changing) {
    const auto never = write(1);
    EXPECT_EQ(never.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(never.text(), HasSubstr("tensor 'w' is registered with on_device and not bound"));
    ASSERT_TRUE(bind(good_).is_ok());
    BindBatch batch;
    ASSERT_TRUE(batch.add(bindings_->driver(), plan(good_).value()).is_ok());
    bindings_->on_sent(batch);
    EXPECT_EQ(write(1).code(), StatusCode::kBusy);
    bindings_->on_refused(batch);
    EXPECT_TRUE(write(1).is_ok()) << "as it was";
    bindings_->on_sent(batch);
    bindings_->on_lost(batch);
    EXPECT_EQ(write(1).code(), StatusCode::kFailedPrecondition) << "nobody knows";
}

}  // namespace
}  // namespace gradsieve::client::test
