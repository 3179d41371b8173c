// Steps of tensors on a device from submit to wait, against client/job_devices.cpp: a fake driver, a fake daemon, and
// one log of what happened in which order.
#include "job_device_fixture.hpp"

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Completions = shm::CompletionKind;
using JobDeviceSteps = JobDevices;

/// Writes into the log when a submission arrives, and leaves the answer to the test.
FakeDaemon::Script noting() {
    FakeDaemon::Script script;
    script.on_submission = [](FakeDaemon& at, const shm::Submission& submission) {
        if (submission.kind != shm::SubmissionKind::kAverage) return at.serve(submission);
        FakeCuda::get().note("popped " + std::to_string(submission.step));
    };
    return script;
}
TEST_F(JobDeviceSteps, Ready_word_is_written_before_the_push_and_wait_leaves_the_stream_alone) {
    FakeDaemon daemon(noting());
    StartedJob started(daemon, {"v", "w"}, kOnDevice);
    ASSERT_TRUE(started.tensor(1).bind_device(good_, kPatient).is_ok());
    for (Step step = 1; step <= 2; ++step) {
        FakeCuda::get().clear_log();
        ASSERT_TRUE(started.tensor(1).submit(step).is_ok());
        daemon.await_submissions(step);
        daemon.run([&](FakeDaemon& at) {
            EXPECT_EQ(at.session().ready_word(1), step);
            EXPECT_EQ(at.session().ready_word(0), 0U) << "the other tensor's";
            at.answer(Completions::kTensor, 1, step);
            at.answer(Completions::kStepDone, 0, step);
        });
        const auto result = started.tensor(1).wait(kPatient);
        ASSERT_TRUE(result.is_ok()) << result.status().to_string();
        EXPECT_TRUE(result->empty()) << "the average is in the bound memory";
        auto lines = FakeCuda::get().log();
        std::erase_if(lines, [](const std::string& line) { return line.starts_with("cuCtx"); });
        ASSERT_EQ(lines.size(), 2U);
        EXPECT_THAT(lines[0], AllOf(StartsWith("cuStreamWriteValue32(20480, "),
                                    HasSubstr(", " + std::to_string(step) + ", 0) in context (49152")));
        EXPECT_EQ(lines[1], "popped " + std::to_string(step));
    }
}
TEST_F(JobDeviceSteps, Submit_does_not_wait_for_the_stream) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon, {"w"}, kOnDevice);
    ASSERT_TRUE(started.tensor().bind_device(good_, kPatient).is_ok());
    FakeCuda::get().hold_writes(true);
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    const auto submission = daemon.await_submissions(1).front();
    daemon.run([&](FakeDaemon& at) { EXPECT_FALSE(at.is_made(submission)) << "the stream is stuck"; });
    EXPECT_EQ(started.tensor().wait(kShort).status().code(), StatusCode::kTimeout);
    FakeCuda::get().hold_writes(false);
    daemon.run([&](FakeDaemon& at) {
        EXPECT_TRUE(at.is_made(submission));
        at.serve(submission);
    });
    EXPECT_TRUE(started.tensor().wait(kPatient).is_ok());
}
TEST_F(JobDeviceSteps, Failed_step_is_followed_by_the_next) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon, {"w"}, kOnDevice);
    ASSERT_TRUE(started.tensor().bind_device(good_, kPatient).is_ok());
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    daemon.await_submissions(1);
    daemon.run([](FakeDaemon& at) { at.answer(Completions::kStepDone, 0, 1, {StatusCode::kNonFinite, "a NaN"}); });
    EXPECT_EQ(started.tensor().wait(kPatient).status().text(), "a NaN");
    ASSERT_TRUE(started.tensor().submit(2).is_ok());
    const auto next = daemon.await_submissions(2).back();
    daemon.run([&](FakeDaemon& at) { at.serve(next); });
    EXPECT_TRUE(started.tensor().wait(kPatient).is_ok());
}
TEST_F(JobDeviceSteps, Errors_of_the_driver_in_a_step_hand_nothing_in_and_say_why) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"w"}, kOnDevice);
    ASSERT_TRUE(started.tensor().bind_device(good_, kPatient).is_ok());
    FakeCuda::get().fail("cuStreamWriteValue32", 700);
    const auto status = started.tensor().submit(1);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("job 'job'"), HasSubstr("cuStreamWriteValue32 answered 700")));
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    EXPECT_EQ(daemon.await_submissions(1).size(), 1U);
    EXPECT_TRUE(started.tensor().wait(kPatient).is_ok());
}
TEST_F(JobDeviceSteps, Many_bindings_register_once_and_the_end_gives_back) {
    {
        FakeDaemon daemon;
        StartedJob started(daemon, {"a", "b"}, kOnDevice);
        ASSERT_TRUE(started.tensor(0).bind_device(good_, kPatient).is_ok());
        ASSERT_TRUE(started.tensor(1).bind_device(buffer_at(FakeMemory::kLegacy), kPatient).is_ok());
        ASSERT_TRUE(started.tensor(1).bind_device(buffer_at(FakeMemory::kLegacy + 256), kPatient).is_ok());
        EXPECT_EQ(FakeCuda::get().log_of("cuMemHostRegister").size(), 1U);
        for (auto& tensor : started.tensors) ASSERT_TRUE(tensor.submit(1).is_ok());
        ASSERT_TRUE(started.job.finish(1, kPatient).is_ok());
        ASSERT_TRUE(started.job.detach(kPatient).is_ok());
        EXPECT_TRUE(started.tensor(1).wait(kPatient).is_ok()) << "results stay";
        EXPECT_EQ(FakeCuda::get().registered(), 1) << "as the memory does";
    }
    EXPECT_EQ(FakeCuda::get().registered(), 0);
    EXPECT_EQ(FakeCuda::get().log_of("cuMemHostUnregister").size(), 1U);
}
TEST_F(JobDeviceSteps, Job_that_ends_under_a_stuck_stream_leaves_its_words_to_it) {
    FakeDaemon daemon(silent());
    {
        StartedJob started(daemon, {"w"}, kOnDevice);
        ASSERT_TRUE(started.tensor().bind_device(good_, kPatient).is_ok());
        FakeCuda::get().hold_writes(true);
        ASSERT_TRUE(started.tensor().submit(1).is_ok());
        daemon.await_submissions(1);
        daemon.run([](FakeDaemon& at) { at.answer(Completions::kJobEnded, 0, 0, {StatusCode::kPeerFailed, "gone"}); });
        EXPECT_EQ(started.tensor().wait(kPatient).status().text(), "gone");
    }
    EXPECT_EQ(FakeCuda::get().registered(), 1);
    FakeCuda::get().hold_writes(false);  // into memory that is mapped still
}

}  // namespace
}  // namespace gradsieve::client::test
