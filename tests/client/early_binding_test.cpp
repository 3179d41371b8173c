// Device memory that is bound before the job starts, against client/job_staging.cpp: a fake driver on one side, a fake
// daemon on the other.
#include "job_device_fixture.hpp"

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using EarlyBinding = JobDevices;

/// Refuses the first request to bind, or says nothing to it.
FakeDaemon::Script stubborn(bool is_answering) {
    FakeDaemon::Script script;
    script.on_bind = [is_answering](FakeDaemon& at, const shm::BindRequest& request) {
        if (request.number > 1) return at.serve_bind(request);
        if (!is_answering) return;
        shm::BindReply refusal;
        refusal.number = request.number;
        refusal.status = Status(StatusCode::kResourceExhausted, "gpu.memory_limit_mib is 1");
        at.reply_bind(refusal);
    };
    return script;
}

TEST_F(EarlyBinding, Start_binds_all_in_one_round_trip) {
    FakeDaemon daemon;
    FreshJob fresh(daemon, {"a", "b", "c"});
    ASSERT_TRUE(fresh.tensor(0).bind_device(good_, kPatient).is_ok());
    const std::vector<DeviceBinding> others{{fresh.tensor(1), buffer_at(FakeMemory::kLegacy + 256)},
                                            {fresh.tensor(2), buffer_at(FakeMemory::kMapped)}};
    ASSERT_TRUE(fresh.job.bind_devices(others, kPatient).is_ok());
    ASSERT_TRUE(fresh.job.start(kPatient).is_ok());
    const auto binds = daemon.await_binds(1);
    ASSERT_EQ(binds.size(), 1U);
    ASSERT_EQ(binds[0].request.bindings.size(), 3U);
    EXPECT_EQ(binds[0].request.bindings[0].gradient.offset_bytes, 64U);
    EXPECT_EQ(binds[0].request.bindings[1].gradient.offset_bytes, 256U);
    EXPECT_EQ(binds[0].descriptor_words, std::vector<std::uint64_t>{FakeMemory::kMapped});
    for (auto& tensor : fresh.tensors) {
        EXPECT_FALSE(tensor.is_staged());
        ASSERT_TRUE(tensor.submit(1).is_ok());
    }
    for (auto& tensor : fresh.tensors) EXPECT_TRUE(tensor.wait(kPatient).is_ok());
    EXPECT_TRUE(fresh.job.start(kPatient).is_ok()) << "again";
    EXPECT_EQ(daemon.await_binds(1).size(), 1U) << "nothing is left to bind";
}
TEST_F(EarlyBinding, Last_buffer_counts_and_unbinding_forgets) {
    FakeDaemon daemon;
    FreshJob fresh(daemon, {"a", "b"});
    ASSERT_TRUE(fresh.tensor(0).unbind_device(kPatient).is_ok()) << "nothing to do";
    for (auto& tensor : fresh.tensors) ASSERT_TRUE(tensor.bind_device(good_, kPatient).is_ok());
    ASSERT_TRUE(fresh.tensor(0).bind_device(buffer_at(FakeMemory::kLegacy + 512), kPatient).is_ok());
    ASSERT_TRUE(fresh.tensor(1).unbind_device(kPatient).is_ok());
    ASSERT_TRUE(fresh.job.start(kPatient).is_ok());
    const auto binds = daemon.await_binds(1);
    ASSERT_EQ(binds[0].request.bindings.size(), 1U);
    EXPECT_EQ(binds[0].request.bindings[0].gradient.offset_bytes, 512U);
    EXPECT_EQ(fresh.tensor(1).submit(1).code(), StatusCode::kFailedPrecondition);
    ASSERT_TRUE(fresh.tensor(1).bind_device(good_, kPatient).is_ok()) << "after start as ever";
    EXPECT_TRUE(fresh.tensor(1).submit(1).is_ok());
}
TEST_F(EarlyBinding, What_is_wrong_with_a_buffer_is_told_at_once_and_none_of_many_is_remembered) {
    FakeDaemon daemon;
    FreshJob fresh(daemon, {"a", "b"});
    auto short_buffer = good_;
    short_buffer.elements = 3;
    EXPECT_THAT(fresh.tensor(0).bind_device(short_buffer, kPatient).text(),
                HasSubstr("tensor 'a': the buffer has 3 elements: allowed is 4"));
    const std::vector<DeviceBinding> wrong{{fresh.tensor(0), good_}, {fresh.tensor(1), buffer_at(FakeMemory::kHost)}};
    EXPECT_THAT(fresh.job.bind_devices(wrong, kPatient).text(), HasSubstr("tensor 'b': its gradient"));
    const std::vector<DeviceBinding> twice{{fresh.tensor(0), good_}, {fresh.tensor(0), good_}};
    EXPECT_THAT(fresh.job.bind_devices(twice, kPatient).text(), HasSubstr("tensor 'a' is named twice"));
    FakeCuda::get().fail("cuIpcGetMemHandle", 719);
    const auto failed = fresh.tensor(0).bind_device(good_, kPatient);
    EXPECT_EQ(failed.code(), StatusCode::kUnavailable) << "an error of the driver is no reason to stage";
    ASSERT_TRUE(fresh.job.start(kPatient).is_ok());
    EXPECT_EQ(fresh.tensor(0).submit(1).code(), StatusCode::kFailedPrecondition);
    FreshJob host(daemon, {"h"}, {});
    EXPECT_THAT(host.tensor().bind_device(good_, kPatient).text(), HasSubstr("is in host memory"));
}
TEST_F(EarlyBinding, Too_many_physical_allocations_are_refused_and_not_staged) {
    FakeDaemon daemon;
    auto job = make_job(daemon);
    const auto elements = 9 * FakeMemory::kBytes / 4;
    auto tensor = job.add_tensor("large", {elements}, kOnDevice).value();
    auto buffer = buffer_at(FakeMemory::kMapped);
    buffer.elements = elements;
    const auto status = tensor.bind_device(buffer, kPatient);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.text(), HasSubstr("tensor 'large' lies in 9 physical allocations"));
    EXPECT_FALSE(tensor.is_staged());
}
TEST_F(EarlyBinding, Refusal_comes_back_from_start_and_start_tries_again) {
    FakeDaemon daemon(stubborn(true));
    FreshJob fresh(daemon, {"a", "b"});
    for (auto& tensor : fresh.tensors) ASSERT_TRUE(tensor.bind_device(good_, kPatient).is_ok());
    const auto refused = fresh.job.start(kPatient);
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(refused.text(), AllOf(HasSubstr("job 'job'"), HasSubstr("binding tensor 'a' and 1 other: "),
                                      HasSubstr("gpu.memory_limit_mib is 1")));
    EXPECT_EQ(fresh.job.first_step(), 1U) << "the job runs";
    const auto again = fresh.job.start(kPatient);
    ASSERT_TRUE(again.is_ok()) << again.to_string();
    EXPECT_EQ(daemon.await_attach().rank, 0U);
    EXPECT_EQ(daemon.await_binds(2)[1].request.bindings.size(), 2U);
    EXPECT_TRUE(fresh.tensor(1).submit(1).is_ok());
}
TEST_F(EarlyBinding, Binding_anew_after_a_refusal_is_as_good) {
    FakeDaemon daemon(stubborn(true));
    FreshJob fresh(daemon);
    ASSERT_TRUE(fresh.tensor().bind_device(good_, kPatient).is_ok());
    EXPECT_EQ(fresh.job.start(kPatient).code(), StatusCode::kResourceExhausted);
    ASSERT_TRUE(fresh.tensor().bind_device(buffer_at(FakeMemory::kLegacy), kPatient).is_ok());
    EXPECT_TRUE(fresh.job.start(kPatient).is_ok());
    const auto binds = daemon.await_binds(2);
    EXPECT_EQ(binds.size(), 2U) << "what was remembered is overtaken";
    EXPECT_EQ(binds[1].request.bindings[0].gradient.offset_bytes, 0U);
}
TEST_F(EarlyBinding, Late_answer_is_a_timeout_of_start_that_names_the_tensor) {
    FakeDaemon daemon(stubborn(false));
    FreshJob fresh(daemon);
    ASSERT_TRUE(fresh.tensor().bind_device(good_, kPatient).is_ok());
    const auto late = fresh.job.start(Timeout(300));
    EXPECT_EQ(late.code(), StatusCode::kTimeout);
    EXPECT_THAT(late.text(), HasSubstr("to the request to bind device memory of tensor 'w'"));
    const auto request = daemon.await_binds(1).front().request;
    daemon.run([&](FakeDaemon& at) { at.serve_bind(request); });
    EXPECT_TRUE(fresh.job.start(kPatient).is_ok());
    EXPECT_EQ(daemon.await_binds(1).size(), 1U);
}
TEST_F(EarlyBinding, Memory_that_went_meanwhile_is_named_by_start) {
    FakeDaemon daemon;
    FreshJob fresh(daemon);
    ASSERT_TRUE(fresh.tensor().bind_device(good_, kPatient).is_ok());
    FakeCuda::get().reset();
    const auto status = fresh.job.start(kPatient);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("tensor 'w': its gradient"), HasSubstr("no memory that CUDA knows")));
}
TEST_F(EarlyBinding, Refused_start_keeps_what_was_bound_and_allows_another_buffer) {
    FakeDaemon::Script script;
    script.refusal = Status(StatusCode::kAlreadyExists, "rank 0 is taken");
    FakeDaemon daemon(script);
    FreshJob fresh(daemon, {"a", "b"});
    ASSERT_TRUE(fresh.tensor(0).bind_device(buffer_at(FakeMemory::kPool), kPatient).is_ok());
    ASSERT_TRUE(fresh.tensor(1).bind_device(good_, kPatient).is_ok());
    EXPECT_EQ(fresh.job.start(kPatient).code(), StatusCode::kAlreadyExists);
    EXPECT_TRUE(daemon.await_attach(1).tensors[0].staged);
    ASSERT_TRUE(fresh.tensor(0).bind_device(buffer_at(FakeMemory::kLegacy), kPatient).is_ok());
    daemon.run([](FakeDaemon& at) { at.set_refusal({}); });
    ASSERT_TRUE(fresh.job.start(kPatient).is_ok());
    const auto request = daemon.await_attach(2);
    EXPECT_FALSE(request.tensors[0].staged);
    EXPECT_TRUE(request.tensors[0].on_device);
    EXPECT_EQ(daemon.await_binds(1)[0].request.bindings.size(), 2U);
}
TEST_F(EarlyBinding, Nothing_is_bound_while_start_is_under_way) {
    FakeDaemon::Script script;
    script.is_starting = false;
    FakeDaemon daemon(script);
    FreshJob fresh(daemon);
    ASSERT_TRUE(fresh.tensor().bind_device(good_, kPatient).is_ok());
    EXPECT_EQ(fresh.job.start(kShort).code(), StatusCode::kTimeout);
    EXPECT_THAT(fresh.tensor().bind_device(good_, kPatient).text(), HasSubstr("is not started"));
    daemon.run([](FakeDaemon& at) { at.start_groups(); });
    ASSERT_TRUE(fresh.job.start(kPatient).is_ok());
    EXPECT_EQ(daemon.await_binds(1).size(), 1U);
}
TEST_F(EarlyBinding, Host_without_a_driver_says_so_at_once) {
    environment_.set("GRADSIEVE_CUDA_DRIVER", "/nowhere/libcuda.so.1");
    FakeDaemon daemon;
    FreshJob fresh(daemon);
    EXPECT_THAT(fresh.tensor().bind_device(good_, kPatient).text(), HasSubstr("/nowhere/libcuda.so.1"));
    EXPECT_TRUE(fresh.job.start(kPatient).is_ok());
}

}  // namespace
}  // namespace gradsieve::client::test
