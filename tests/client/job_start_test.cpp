// Beginning and end of a job, against client/job_start.cpp.
#include "job_fixture.hpp"

#include <gmock/gmock.h>

#include <thread>

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = shm::CompletionKind;

TEST(JobStart, First_steps_come_from_the_daemon_for_each_group) {
    FakeDaemon daemon({.first_step = 8});
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("a", {1}).is_ok());
    ASSERT_TRUE(job.add_tensor("b", {1}, {.group = "g"}).is_ok());
    EXPECT_EQ(job.first_step(), 0U) << "not started";
    ASSERT_TRUE(job.start(kPatient).is_ok());
    EXPECT_EQ(job.first_step(), 8U);
    EXPECT_EQ(job.first_step("g"), 8U);
    EXPECT_EQ(job.first_step("unknown"), 0U);
    EXPECT_TRUE(job.start(kPatient).is_ok()) << "started already: nothing to do";
}
TEST(JobStart, Without_tensors_is_refused) {
    FakeDaemon daemon;
    const auto status = make_job(daemon).start(kPatient);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("0 tensors"), HasSubstr("call add_tensor before start")));
}
TEST(JobStart, Tensors_after_start_are_refused) {
    FakeDaemon daemon;
    StartedJob started(daemon);
    const auto status = started.job.add_tensor("late", {1}).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.text(),
              "tensor 'late': job 'job' (run 'run', rank 0 of 1) is started with 1 tensors, and adding to them is not "
              "supported yet: allowed is add_tensor before start; register all first (one that may come later in a "
              "group of its own), or make a new job");
    ASSERT_TRUE(started.job.detach(kPatient).is_ok());
}
TEST(JobStart, Tensors_after_detach_are_refused) {
    FakeDaemon daemon;
    auto job = make_job(daemon);
    ASSERT_TRUE(job.detach(kPatient).is_ok());
    const auto status = job.add_tensor("late", {1}).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.text(),
              "tensor 'late': the job was left with detach: allowed is detach as the last call; make a new job");
}
TEST(JobStart, Busy_daemon_is_asked_again_until_it_takes_the_job) {
    FakeDaemon daemon({.refusal = Status(StatusCode::kBusy, "the last run is still leaving")});
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    std::thread later([&] {
        daemon.await_attach(3);
        daemon.run([](FakeDaemon& at) { at.set_refusal({}); });
    });
    const auto status = job.start(kPatient);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    later.join();
}
TEST(JobStart, Busy_daemon_is_said_at_the_deadline_and_start_may_be_called_again) {
    FakeDaemon daemon({.refusal = Status(StatusCode::kBusy, "the last run is still leaving")});
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    auto status = job.start(kShort);
    while (status.code() == StatusCode::kTimeout) status = job.start(kShort);  // the answer was not here by then
    EXPECT_EQ(status.code(), StatusCode::kBusy);
    EXPECT_EQ(status.text(), "job 'job' (run 'run', rank 0 of 1): the last run is still leaving");
    daemon.run([](FakeDaemon& at) { at.set_refusal({}); });
    EXPECT_TRUE(job.start(kPatient).is_ok());
}
TEST(JobStart, Detach_ends_a_start_that_waits_for_the_last_run) {
    FakeDaemon daemon({.refusal = Status(StatusCode::kBusy, "the last run is still leaving")});
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    std::thread other([&] {
        daemon.await_attach(2);
        EXPECT_TRUE(job.detach(kPatient).is_ok());
    });
    EXPECT_EQ(job.start(kPatient).code(), StatusCode::kCancelled);
    other.join();
}
TEST(JobStart, No_daemon_names_the_socket_and_leaves_the_job_as_it_was) {
    std::string path;
    {
        FakeDaemon daemon;
        path = daemon.socket_path();
    }
    JobOptions options;
    options.name = "job";
    options.rank = 0;
    options.world_size = 1;
    options.socket_path = path;
    auto job = Job::make(options).value();
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    const auto status = job.start(kPatient);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("job 'job'"), HasSubstr(path), HasSubstr("systemctl start gradsieved")));
    EXPECT_TRUE(job.add_tensor("another", {1}).is_ok());
}
TEST(JobStart, Refusal_is_told_and_start_may_be_tried_again) {
    FakeDaemon daemon({.refusal = {StatusCode::kAlreadyExists, "rank 0 is taken by process 7"}});
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    for (std::size_t attempt = 1; attempt <= 2; ++attempt) {
        const auto status = job.start(kPatient);
        EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
        EXPECT_THAT(status.text(), AllOf(HasSubstr("rank 0 of 1"), HasSubstr("rank 0 is taken by process 7")));
        daemon.await_attach(attempt);
    }
}
TEST(JobStart, Timeout_before_the_reply_keeps_the_attachment) {
    FakeDaemon daemon({.is_replying = false});
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    const auto late = job.start(kShort);
    EXPECT_EQ(late.code(), StatusCode::kTimeout);
    EXPECT_THAT(late.text(),
                AllOf(HasSubstr("20 ms for gradsieved's answer"), HasSubstr("is alive"), HasSubstr("call again")));
    daemon.await_attach();
    daemon.run([](FakeDaemon& at) { at.reply(); });
    EXPECT_TRUE(job.start(kPatient).is_ok());
    daemon.run([](FakeDaemon&) {});
    EXPECT_EQ(daemon.await_attach(1).job_name, "job");
}
TEST(JobStart, Timeout_while_ranks_are_missing_keeps_the_attachment) {
    FakeDaemon daemon({.is_starting = false});
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    const auto late = job.start(kShort);
    EXPECT_EQ(late.code(), StatusCode::kTimeout);
    EXPECT_THAT(late.text(),
                AllOf(HasSubstr("job 'job' (run 'run', rank 0 of 1)"), HasSubstr("for all ranks of the job"),
                      HasSubstr("`gradsieve status` names who is late")));
    EXPECT_FALSE(job.add_tensor("late", {1}).is_ok());
    daemon.run([](FakeDaemon& at) { at.start_groups(); });
    EXPECT_TRUE(job.start(kPatient).is_ok());
}
TEST(JobStart, Zero_and_endless_timeouts_do_what_they_say) {
    FakeDaemon daemon({.is_starting = false});
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    EXPECT_EQ(job.start(Timeout(-5)).code(), StatusCode::kTimeout);
    std::thread starter([&] { EXPECT_TRUE(job.start(Timeout::max()).is_ok()); });
    daemon.await_attach();
    daemon.run([](FakeDaemon& at) { at.start_groups(); });
    starter.join();
}
TEST(JobStart, Difference_between_ranks_ends_the_attempt_with_its_text) {
    FakeDaemon daemon({.is_starting = false});
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    EXPECT_EQ(job.start(kShort).code(), StatusCode::kTimeout);
    daemon.run([](FakeDaemon& at) {
        at.answer(Kind::kJobEnded, 0, 0, {StatusCode::kMismatch, "tensor 'w': shape [1] on a, [2] on b"});
    });
    const auto status = job.start(kPatient);
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    EXPECT_THAT(status.text(), HasSubstr("tensor 'w': shape [1] on a, [2] on b"));
    EXPECT_TRUE(job.add_tensor("v", {1}).is_ok()) << "nothing is attached: the job may be corrected";
    EXPECT_EQ(job.start(kShort).code(), StatusCode::kTimeout);
    EXPECT_EQ(daemon.await_attach(2).tensors.size(), 2U);
}
TEST(JobStart, Daemon_that_dies_while_ranks_are_missing_is_noticed) {
    FakeDaemon daemon({.is_starting = false});
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    std::thread killer([&] {
        daemon.await_attach();
        daemon.run([](FakeDaemon& at) { at.hang_up(); });
    });
    const auto status = job.start(kPatient);
    killer.join();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("is gone"), HasSubstr("make a new job")));
}
TEST(JobStart, Second_thread_in_start_is_told_to_wait) {
    FakeDaemon daemon({.is_replying = false});
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    std::thread starter([&] { EXPECT_TRUE(job.start(kPatient).is_ok()); });
    daemon.await_attach();
    EXPECT_EQ(job.start(kShort).code(), StatusCode::kBusy);
    daemon.run([](FakeDaemon& at) { at.reply(); });
    starter.join();
}
TEST(JobStart, Calls_before_start_say_so) {
    FakeDaemon daemon;
    auto job = make_job(daemon);
    auto tensor = job.add_tensor("w", {1}).value();
    EXPECT_TRUE(tensor.gradient().empty());
    EXPECT_TRUE(tensor.is_ready()) << "wait would not sleep, but say what is missing";
    for (const auto& status : {tensor.submit(1), tensor.wait(kPatient).status(), job.finish(1, kPatient),
                               job.check_equal(1, kPatient), job.broadcast(tensor, 0, kPatient).status()}) {
        EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
        EXPECT_THAT(status.text(), AllOf(HasSubstr("is not started"), HasSubstr("call start")));
    }
}

TEST(JobDetach, Goodbye_is_sent_once_and_ends_the_job) {
    FakeDaemon daemon;
    StartedJob started(daemon);
    EXPECT_TRUE(started.job.detach(kPatient).is_ok());
    EXPECT_TRUE(started.job.detach(kPatient).is_ok()) << "idempotent";
    EXPECT_EQ(daemon.await_submissions(1).size(), 1U);
    EXPECT_EQ(daemon.await_submissions(1)[0].kind, shm::SubmissionKind::kDetach);
    const auto status = started.tensor().submit(1);
    EXPECT_EQ(status.code(), StatusCode::kCancelled);
    EXPECT_THAT(status.text(), HasSubstr("make a new job"));
    EXPECT_EQ(started.tensor().gradient().size(), 4U) << "memory stays until the handles go";
}
TEST(JobDetach, Timeout_loses_nothing) {
    FakeDaemon daemon(mute());
    StartedJob started(daemon);
    const auto late = started.job.detach(kShort);
    EXPECT_EQ(late.code(), StatusCode::kTimeout);
    EXPECT_THAT(late.text(), HasSubstr("goodbye"));
    daemon.await_submissions(1);
    daemon.run([](FakeDaemon& at) { at.answer(Kind::kJobEnded, 0, 0); });
    EXPECT_TRUE(started.job.detach(kPatient).is_ok());
    EXPECT_EQ(daemon.await_submissions(1).size(), 1U) << "not sent twice";
}
TEST(JobDetach, Destructor_says_goodbye) {
    FakeDaemon daemon;
    { const StartedJob started(daemon); }
    EXPECT_EQ(daemon.await_submissions(1)[0].kind, shm::SubmissionKind::kDetach);
}
TEST(JobDetach, Before_start_there_is_nobody_to_tell) {
    FakeDaemon daemon;
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    EXPECT_TRUE(job.detach(kPatient).is_ok());
    const auto status = job.start(kPatient);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.text(), HasSubstr("was left with detach"));
}
TEST(JobDetach, During_start_ends_the_start) {
    FakeDaemon daemon({.is_replying = false});
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    std::thread starter([&] { EXPECT_EQ(job.start(kPatient).code(), StatusCode::kCancelled); });
    daemon.await_attach();
    EXPECT_TRUE(job.detach(kPatient).is_ok());
    daemon.run([](FakeDaemon& at) { at.reply(); });
    starter.join();
}
TEST(JobDetach, While_ranks_are_missing_says_goodbye) {
    FakeDaemon daemon({.is_starting = false});
    auto job = make_job(daemon);
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    EXPECT_EQ(job.start(kShort).code(), StatusCode::kTimeout);
    EXPECT_TRUE(job.detach(kPatient).is_ok());
    EXPECT_EQ(daemon.await_submissions(1)[0].kind, shm::SubmissionKind::kDetach);
    EXPECT_EQ(job.start(kPatient).code(), StatusCode::kCancelled);
}
TEST(JobDetach, After_the_job_failed_tells_why_it_ended) {
    FakeDaemon daemon;
    StartedJob started(daemon);
    daemon.run([](FakeDaemon& at) { at.answer(Kind::kJobEnded, 0, 0, {StatusCode::kPeerFailed, "rank 3 died"}); });
    EXPECT_EQ(started.job.detach(kPatient).code(), StatusCode::kPeerFailed);
    EXPECT_EQ(started.job.detach(kPatient).text(), "rank 3 died");
}

}  // namespace
}  // namespace gradsieve::client::test
