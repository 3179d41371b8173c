// What this process knows of its tensors on a device, against client/device_binding.cpp.
#include "client/device_binding.hpp"

#include "device_fixture.hpp"

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

shm::EventHandles done_of(std::uint8_t first) {
    shm::EventHandles handles{};
    handles[0][0] = std::byte{first};
    handles[1][0] = std::byte(first + 1);
    return handles;
}

class DeviceBindingTest : public ::testing::Test {
protected:
    Result<BindingPlan> plan(const DeviceBuffer& buffer) { return bindings_->plan(0, tensor_, buffer); }
    /// Binds as if the daemon had agreed with these events.
    Status bind(const DeviceBuffer& buffer, std::uint8_t done = 100) {
        const auto made = plan(buffer);
        if (!made.is_ok()) return made.error();
        BindBatch batch;
        const auto added = batch.add(bindings_->driver(), *made);
        if (!added.is_ok()) return added;
        bindings_->on_sent(batch);
        const std::vector<shm::EventHandles> events{done_of(done)};
        return bindings_->on_done(batch, events);
    }
    Status record(Step step) { return bindings_->record_ready(0, "w", step); }

    FakeMemory memory_;
    shm::TensorEntry tensor_{.name = "w", .shape = {4}, .on_device = true};
    std::unique_ptr<DeviceBindings> bindings_ = std::make_unique<DeviceBindings>(load_fake(), 1);
    DeviceBuffer good_{.pointer = pointer_to(FakeMemory::kLegacy + 64),
                       .elements = 4,
                       .type = ElementType::kF32,
                       .stream = FakeCuda::stream_of(0)};
};

TEST_F(DeviceBindingTest, Plan_tells_memory_device_and_events) {
    const auto made = plan(good_).value();
    EXPECT_EQ(made.binding.sample_stride_bytes, 16U);
    EXPECT_EQ(made.gradient->address, FakeMemory::kLegacy + 64);
    EXPECT_EQ(made.gradient->bytes, 16U);
    EXPECT_EQ(made.binding.device[15], std::byte{0x70});
    EXPECT_EQ(made.binding.ready_events[0][0], std::byte{1});
    EXPECT_EQ(made.binding.ready_events[1][0], std::byte{2});
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
    ASSERT_TRUE(record(1).is_ok());
    ASSERT_TRUE(bindings_->await_done(0, 1).is_ok());
    for (const char* call : {"cuPointerGetAttributes", "cuMemGetAddressRange", "cuIpcGetMemHandle", "cuDeviceGetUuid",
                             "cuCtxGetDevice", "cuCtxPushCurrent"}) {
        FakeCuda::get().fail(call, 700);
        EXPECT_FALSE(plan(good_).is_ok()) << call;
    }
    FakeCuda::get().fail("cuEventRecord", 700);
    EXPECT_FALSE(record(2).is_ok());
    bindings_.reset();
    EXPECT_EQ(FakeCuda::contexts(), before);
}
TEST_F(DeviceBindingTest, Events_alternate_with_the_step) {
    ASSERT_TRUE(bind(good_).is_ok());
    FakeCuda::get().clear_log();
    for (const Step step : {1, 2, 3}) {
        ASSERT_TRUE(record(step).is_ok());
        ASSERT_TRUE(bindings_->await_done(0, step).is_ok());
    }
    EXPECT_THAT(FakeCuda::get().log_of("cuEventRecord"),
                ElementsAre("cuEventRecord(2, 20480) in context (49152)", "cuEventRecord(1, 20480) in context (49152)",
                            "cuEventRecord(2, 20480) in context (49152)"));
    EXPECT_THAT(
        FakeCuda::get().log_of("cuStreamWaitEvent"),
        ElementsAre("cuStreamWaitEvent(20480, 101)", "cuStreamWaitEvent(20480, 100)", "cuStreamWaitEvent(20480, 101)"));
}
TEST_F(DeviceBindingTest, Binding_again_keeps_events_that_stay_and_replaces_those_that_do_not) {
    ASSERT_TRUE(bind(good_).is_ok());
    good_.pointer = pointer_to(FakeMemory::kLegacy + 256);
    ASSERT_TRUE(bind(good_).is_ok());
    EXPECT_EQ(FakeCuda::get().log_of("cuEventCreate").size(), 2U) << "its own are made once";
    EXPECT_EQ(FakeCuda::get().log_of("cuIpcOpenEventHandle").size(), 2U) << "the daemon's are the same";
    ASSERT_TRUE(bind(good_, 110).is_ok());
    EXPECT_THAT(FakeCuda::get().log_of("cuEventDestroy"), ElementsAre("cuEventDestroy(100)", "cuEventDestroy(101)"));
    good_.pointer = pointer_to(FakeMemory::kOtherDevice);
    good_.stream = FakeCuda::stream_of(1);
    ASSERT_TRUE(bind(good_, 120).is_ok());
    EXPECT_EQ(FakeCuda::get().log_of("cuEventCreate").size(), 4U) << "another device, other events";
    FakeCuda::get().clear_log();
    ASSERT_TRUE(record(2).is_ok());
    EXPECT_THAT(FakeCuda::get().log_of("cuEventRecord"), ElementsAre("cuEventRecord(3, 20481) in context (49153)"));
}
TEST_F(DeviceBindingTest, Steps_need_a_binding_that_is_not_changing) {
    const auto never = record(1);
    EXPECT_EQ(never.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(never.text(), HasSubstr("tensor 'w' is registered with on_device and not bound"));
    EXPECT_TRUE(bindings_->await_done(0, 1).is_ok());
    ASSERT_TRUE(bind(good_).is_ok());
    BindBatch batch;
    ASSERT_TRUE(batch.add(bindings_->driver(), plan(good_).value()).is_ok());
    bindings_->on_sent(batch);
    EXPECT_EQ(record(1).code(), StatusCode::kBusy);
    bindings_->on_refused(batch);
    EXPECT_TRUE(record(1).is_ok()) << "as it was";
    bindings_->on_sent(batch);
    bindings_->on_lost(batch);
    EXPECT_EQ(record(1).code(), StatusCode::kFailedPrecondition) << "nobody knows";
}
TEST_F(DeviceBindingTest, Events_of_the_daemon_that_do_not_open_leave_the_tensor_unbound_and_no_event_behind) {
    FakeCuda::get().fail("cuIpcOpenEventHandle", 400, 2);
    EXPECT_THAT(bind(good_).text(), HasSubstr("tensor 'w': cuIpcOpenEventHandle answered 400"));
    EXPECT_EQ(record(1).code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(FakeCuda::get().live_events(), 2) << "its own two";
    FakeCuda::get().fail("cuIpcOpenEventHandle", 0, 2);
    EXPECT_TRUE(bind(good_).is_ok());
}
TEST_F(DeviceBindingTest, Events_of_its_own_that_cannot_be_made_leave_none_behind) {
    FakeCuda::get().fail("cuIpcGetEventHandle", 801);
    EXPECT_FALSE(plan(good_).is_ok());
    EXPECT_EQ(FakeCuda::get().live_events(), 0);
}
TEST_F(DeviceBindingTest, Own_events_outlive_a_daemon_that_never_said_goodbye) {
    ASSERT_TRUE(bind(good_).is_ok());
    bindings_.reset();
    EXPECT_EQ(FakeCuda::get().live_events(), 2) << "it may still wait for them; the daemon's are closed";
    bindings_ = std::make_unique<DeviceBindings>(load_fake(), 1);
    ASSERT_TRUE(bind(good_).is_ok());
    bindings_->on_goodbye();
    bindings_.reset();
    EXPECT_EQ(FakeCuda::get().live_events(), 2) << "those of before";
}

}  // namespace
}  // namespace gradsieve::client::test
