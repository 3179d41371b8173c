// Staged tensors beside their steps, against client/job_staging.cpp: bindings that change, broadcasts, what a job
// requires, refusals, the end, and what is registered with the driver.
#include "forked.hpp"
#include "staged_fixture.hpp"

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Completions = shm::CompletionKind;
using StagedJobs = Staged;
using Floats = std::vector<float>;

TEST_F(StagedJobs, Rebound_tensor_stays_staged_whatever_the_memory) {
    FakeDaemon daemon;
    StagedJob staged(daemon, buffer_);
    const auto shareable = FakeCuda::get().add_memory(Kind::kLegacy, kBytes);
    write(shareable, Floats{1, 2, 3, 4});
    write(gradient_, Floats{9, 9, 9, 9});
    ASSERT_TRUE(staged.tensor().bind_device(buffer_at(shareable), kPatient).is_ok());
    EXPECT_TRUE(staged.tensor().is_staged());
    staged.step(1);
    EXPECT_EQ(slab_of(daemon), (Floats{1, 2, 3, 4}));
    EXPECT_EQ(read<float>(gradient_), (Floats{9, 9, 9, 9}));
    auto wrong = buffer_;
    wrong.elements = 5;
    EXPECT_THAT(staged.tensor().bind_device(wrong, kPatient).text(), HasSubstr("the buffer has 5 elements"));
    staged.step(2);
    ASSERT_TRUE(staged.tensor().unbind_device(kPatient).is_ok());
    const auto unbound = staged.tensor().submit(3);
    EXPECT_EQ(unbound.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(unbound.text(), AllOf(HasSubstr("tensor 'w'"), HasSubstr("call bind_device first")));
    ASSERT_TRUE(staged.tensor().bind_device(buffer_, kPatient).is_ok());
    staged.step(3);
    EXPECT_EQ(read<float>(gradient_), (Floats{9, 9, 9, 9}));
}
TEST_F(StagedJobs, Binding_while_a_step_is_open_is_busy) {
    FakeDaemon daemon(silent());
    StagedJob staged(daemon, buffer_);
    ASSERT_TRUE(staged.tensor().submit(1).is_ok());
    for (const auto& status :
         {staged.tensor().bind_device(buffer_, kPatient), staged.tensor().unbind_device(kPatient)}) {
        EXPECT_EQ(status.code(), StatusCode::kBusy);
        EXPECT_THAT(status.text(), HasSubstr("step 1 is open"));
    }
}
TEST_F(StagedJobs, Average_that_nobody_waited_for_is_not_written_into_another_buffer) {
    FakeDaemon daemon;
    FreshJob fresh(daemon, {"w", "other"});
    ASSERT_TRUE(fresh.tensor(0).bind_device(buffer_, kPatient).is_ok());
    ASSERT_TRUE(fresh.tensor(1).bind_device(good_, kPatient).is_ok());
    ASSERT_TRUE(fresh.job.start(kPatient).is_ok());
    for (auto& tensor : fresh.tensors) ASSERT_TRUE(tensor.submit(1).is_ok());
    ASSERT_TRUE(fresh.tensor(1).wait(kPatient).is_ok());
    const auto second = FakeCuda::get().add_memory(Kind::kPool, kBytes);
    write(second, Floats{7, 7, 7, 7});
    ASSERT_TRUE(fresh.tensor(0).bind_device(buffer_at(second), kPatient).is_ok());
    EXPECT_TRUE(fresh.tensor(0).wait(kPatient).is_ok());
    EXPECT_EQ(read<float>(second), (Floats{7, 7, 7, 7}));
}
TEST_F(StagedJobs, Unbinding_before_start_leaves_nothing_staged) {
    FakeDaemon daemon;
    FreshJob fresh(daemon);
    ASSERT_TRUE(fresh.tensor().bind_device(buffer_, kPatient).is_ok());
    EXPECT_TRUE(fresh.tensor().is_staged());
    ASSERT_TRUE(fresh.tensor().unbind_device(kPatient).is_ok());
    EXPECT_FALSE(fresh.tensor().is_staged());
    ASSERT_TRUE(fresh.job.start(kPatient).is_ok());
    EXPECT_TRUE(daemon.await_attach().tensors[0].on_device);
}
TEST_F(StagedJobs, Tensors_whose_codec_works_on_the_host_are_staged_when_the_daemon_says_so) {
    FakeDaemon::Script script;
    script.host_only = {"w"};
    FakeDaemon daemon(script);
    FreshJob fresh(daemon, {"v", "w"});
    const auto shareable = buffer_at(FakeMemory::kLegacy);
    for (auto& tensor : fresh.tensors) {
        ASSERT_TRUE(tensor.bind_device(shareable, kPatient).is_ok());
        EXPECT_FALSE(tensor.is_staged());
    }
    const auto status = fresh.job.start(kPatient);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_FALSE(fresh.tensor(0).is_staged());
    EXPECT_TRUE(fresh.tensor(1).is_staged());
    const auto asked = daemon.await_attach(2);
    EXPECT_TRUE(asked.tensors[0].on_device);
    EXPECT_TRUE(asked.tensors[1].staged && !asked.tensors[1].on_device);
}
TEST_F(StagedJobs, Tensors_staged_for_their_codec_may_be_bound_after_start) {
    FakeDaemon::Script script;
    script.host_only = {"w"};
    FakeDaemon daemon(script);
    StartedJob started(daemon, {"w"}, kOnDevice);
    EXPECT_TRUE(started.tensor().is_staged());
    ASSERT_TRUE(started.tensor().bind_device(buffer_, kPatient).is_ok()) << "memory that cannot be shared";
    write(gradient_, Floats{1, 2, 3, 4});
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    ASSERT_TRUE(started.tensor().wait(kPatient).is_ok());
    EXPECT_EQ(slab_of(daemon), (Floats{1, 2, 3, 4}));
}
TEST_F(StagedJobs, Required_cuda_ipc_forbids_staging_for_the_codec_too) {
    FakeDaemon::Script script;
    script.host_only = {"w"};
    FakeDaemon daemon(script);
    auto options = options_for(daemon);
    options.require = "cuda-ipc";
    FreshJob fresh(options, {"w"});
    ASSERT_TRUE(fresh.tensor().bind_device(buffer_at(FakeMemory::kLegacy), kPatient).is_ok());
    const auto refused = fresh.job.start(kPatient);
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.text(),
                AllOf(HasSubstr("a stage that works on the host"), HasSubstr("forbidden by require = \"cuda-ipc\"")));
    EXPECT_FALSE(fresh.tensor().is_staged());
}
TEST_F(StagedJobs, Start_that_fails_after_staging_for_the_codec_leaves_tensors_as_they_were) {
    FakeDaemon::Script script;
    script.host_only = {"w"};
    script.refusal = Status(StatusCode::kPermissionDenied, "not you");
    FakeDaemon daemon(script);
    FreshJob fresh(daemon, {"w"});
    ASSERT_TRUE(fresh.tensor().bind_device(buffer_at(FakeMemory::kLegacy), kPatient).is_ok());
    EXPECT_EQ(fresh.job.start(kPatient).code(), StatusCode::kPermissionDenied);
    EXPECT_FALSE(fresh.tensor().is_staged());
}
TEST_F(StagedJobs, Memory_bound_after_start_is_never_staged_and_the_text_says_what_would) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"w"}, kOnDevice);
    const auto status = started.tensor().bind_device(buffer_, kPatient);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("tensor 'w': the memory at"), HasSubstr("expandable_segments:False"),
                                     HasSubstr("or bind it before start, which copies it through host memory")));
    EXPECT_FALSE(started.tensor().is_staged());
}
TEST_F(StagedJobs, Required_cuda_ipc_makes_staging_an_error_of_start) {
    FakeDaemon daemon;
    auto options = options_for(daemon);
    options.require = "cuda-ipc";
    FreshJob fresh(options, {"v", "w"});
    ASSERT_TRUE(fresh.tensor(0).bind_device(good_, kPatient).is_ok());
    ASSERT_TRUE(fresh.tensor(1).bind_device(buffer_, kPatient).is_ok());
    const auto refused = fresh.job.start(kPatient);
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.text(),
                AllOf(HasSubstr("tensor 'w' would be staged through host memory, which require = \"cuda-ipc\" forbids"),
                      HasSubstr("can be shared by no kind of handle"), HasSubstr("allowed is memory of cudaMalloc")));
    ASSERT_TRUE(fresh.tensor(1).bind_device(buffer_at(FakeMemory::kLegacy), kPatient).is_ok());
    ASSERT_TRUE(fresh.job.start(kPatient).is_ok());
    EXPECT_THAT(fresh.tensor(1).bind_device(buffer_, kPatient).text(),
                AllOf(HasSubstr("expandable_segments:False"), Not(HasSubstr("before start"))));
    EXPECT_EQ(daemon.await_attach(1).tensors.size(), 2U);
}
TEST_F(StagedJobs, Broadcast_reads_slice_0_and_writes_the_values_back) {
    FakeDaemon::Script script;
    script.on_submission = [](FakeDaemon& at, const shm::Submission& submission) {
        if (submission.kind != shm::SubmissionKind::kBroadcast) return at.serve(submission);
        const auto* const slice = at.session().slice(0, 0);
        for (std::size_t element = 0; element < 4; ++element) at.result(0)[element] = slice[element] + 0.5F;
        at.answer(Completions::kBroadcast, 0, submission.step);
    };
    FakeDaemon daemon(script);
    StagedJob staged(daemon, buffer_);
    write(gradient_, Floats{1, 2, 3, 4});
    const auto done = staged.job.broadcast(staged.tensor(), 0, kPatient);
    ASSERT_TRUE(done.is_ok()) << done.status().to_string();
    EXPECT_TRUE(done->empty());
    EXPECT_EQ(read<float>(gradient_), (Floats{1.5, 2.5, 3.5, 4.5}));
    buffer_.type = ElementType::kBf16;
    ASSERT_TRUE(staged.tensor().bind_device(buffer_, kPatient).is_ok());
    write(gradient_, std::vector<std::uint16_t>{0x3F80, 0x3F80, 0x4000, 0x4080});
    ASSERT_TRUE(staged.job.broadcast(staged.tensor(), 0, kPatient).is_ok());
    EXPECT_EQ(read<std::uint16_t>(gradient_), (std::vector<std::uint16_t>{0x3FC0, 0x3FC0, 0x4020, 0x4090}));
}
TEST_F(StagedJobs, Broadcast_that_timed_out_goes_on_without_another_copy) {
    FakeDaemon daemon(silent());
    StagedJob staged(daemon, buffer_);
    write(gradient_, Floats{1, 2, 3, 4});
    EXPECT_EQ(staged.job.broadcast(staged.tensor(), 0, kShort).status().code(), StatusCode::kTimeout);
    EXPECT_EQ(staged.tensor().submit(1).code(), StatusCode::kBusy) << "in a broadcast";
    daemon.run([](FakeDaemon& at) {
        std::fill_n(at.result(0), 4, 6.0F);
        at.answer(Completions::kBroadcast, 0, 1);
    });
    EXPECT_TRUE(staged.job.broadcast(staged.tensor(), 0, kPatient).is_ok());
    EXPECT_EQ(read<float>(gradient_), four_of(6));
    EXPECT_EQ(FakeCuda::get().log_of("cuMemcpyDtoHAsync").size(), 1U);
}
TEST_F(StagedJobs, Failed_broadcast_and_errors_of_the_driver_in_it_write_nothing) {
    FakeDaemon::Script script;
    script.on_submission = [](FakeDaemon& at, const shm::Submission& submission) {
        at.answer(Completions::kBroadcast, 0, submission.step, {StatusCode::kMismatch, "another root"});
    };
    FakeDaemon daemon(script);
    StagedJob staged(daemon, buffer_);
    write(gradient_, Floats{1, 2, 3, 4});
    FakeCuda::get().fail("cuMemcpyDtoHAsync", 700);
    EXPECT_THAT(staged.job.broadcast(staged.tensor(), 0, kPatient).status().text(),
                HasSubstr("cuMemcpyDtoHAsync answered 700"));
    EXPECT_EQ(staged.job.broadcast(staged.tensor(), 0, kPatient).status().text(), "another root");
    EXPECT_EQ(read<float>(gradient_), (Floats{1, 2, 3, 4}));
    ASSERT_TRUE(staged.tensor().unbind_device(kPatient).is_ok());
    EXPECT_EQ(staged.job.broadcast(staged.tensor(), 0, kPatient).status().code(), StatusCode::kFailedPrecondition);
}
TEST_F(StagedJobs, Refusal_of_its_place_says_why_the_tensor_is_in_host_memory) {
    FakeDaemon::Script script;
    script.refusal = Status(StatusCode::kMismatch, "tensor 'w': this rank has it in host memory, the others do not");
    FakeDaemon daemon(script);
    FreshJob fresh(daemon, {"v", "w", "x"});
    for (auto& tensor : fresh.tensors) ASSERT_TRUE(tensor.bind_device(buffer_, kPatient).is_ok());
    const auto status = fresh.job.start(kPatient);
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("this rank has it in host memory, the others do not"),
                                     HasSubstr("staged on this rank, in host memory, since GPU memory cannot be "
                                               "shared: tensor 'v' and 2 others; allocate")));
}
TEST_F(StagedJobs, Detach_while_bound_keeps_results_and_gives_pages_back_with_the_handles) {
    FakeDaemon daemon;
    {
        StagedJob staged(daemon, buffer_);
        EXPECT_EQ(FakeCuda::get().registered(), 2) << "slab and result";
        write(gradient_, Floats{1, 2, 3, 4});
        ASSERT_TRUE(staged.tensor().submit(1).is_ok());
        ASSERT_TRUE(staged.job.finish(1, kPatient).is_ok());
        ASSERT_TRUE(staged.job.detach(kPatient).is_ok());
        EXPECT_TRUE(staged.tensor().wait(kPatient).is_ok());
        EXPECT_EQ(staged.tensor().submit(2).code(), StatusCode::kCancelled);
        EXPECT_EQ(staged.tensor().unbind_device(kPatient).code(), StatusCode::kCancelled);
        EXPECT_EQ(FakeCuda::get().registered(), 2);
    }
    EXPECT_EQ(FakeCuda::get().registered(), 0);
}
TEST_F(StagedJobs, Refused_registration_only_costs_time) {
    FakeCuda::get().fail("cuMemHostRegister", 801, 2);
    FakeDaemon daemon;
    StagedJob staged(daemon, buffer_);
    EXPECT_EQ(FakeCuda::get().registered(), 0);
    write(gradient_, Floats{1, 2, 3, 4});
    staged.step(1);
    EXPECT_EQ(read<float>(gradient_), (Floats{1, 2, 3, 4}));
}
TEST_F(StagedJobs, Pages_are_registered_once_for_all_tensors) {
    FakeDaemon daemon;
    FreshJob fresh(daemon, {"a", "b", "c"});
    for (auto& tensor : fresh.tensors) ASSERT_TRUE(tensor.bind_device(buffer_, kPatient).is_ok());
    ASSERT_TRUE(fresh.job.start(kPatient).is_ok());
    for (auto& tensor : fresh.tensors) ASSERT_TRUE(tensor.bind_device(buffer_, kPatient).is_ok());
    EXPECT_EQ(FakeCuda::get().log_of("cuMemHostRegister").size(), 2U) << "neighbours share pages";
}
TEST_F(StagedJobs, Forked_child_touches_no_driver) {
    FakeDaemon daemon;
    StagedJob staged(daemon, buffer_);
    const auto calls = FakeCuda::get().log().size();
    const auto code = exit_code_of_child([&] {
        auto& tensor = staged.tensor();
        for (const auto& status :
             {tensor.bind_device(buffer_, kPatient), tensor.submit(1), tensor.wait(kPatient).status()})
            if (status.code() != StatusCode::kFailedPrecondition) return 1;
        if (tensor.is_staged()) return 2;
        {
            const Job dropped = std::move(staged.job);
            staged.tensors.clear();
        }
        return FakeCuda::get().log().size() == calls ? 7 : 3;
    });
    EXPECT_EQ(code, 7);
    staged.step(1);
}

}  // namespace
}  // namespace gradsieve::client::test
