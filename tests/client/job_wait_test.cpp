// Waiting, alone and in many threads, against client/job_wait.cpp.
#include "job_fixture.hpp"

#include <gmock/gmock.h>

#include <thread>

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = shm::CompletionKind;

TEST(JobWait, Timeout_then_success_loses_nothing) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon);
    fill(started.tensor(), 3);
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    const auto late = started.tensor().wait(kShort).status();
    EXPECT_EQ(late.code(), StatusCode::kTimeout);
    EXPECT_THAT(late.text(),
                AllOf(HasSubstr("job 'job' (run 'run', rank 0 of 1)"), HasSubstr("20 ms for tensor 'w', step 1"),
                      HasSubstr("is alive"), HasSubstr("call again")));
    EXPECT_FALSE(started.tensor().is_ready());
    const auto submission = daemon.await_submissions(1).front();
    daemon.run([&](FakeDaemon& at) { at.serve(submission); });
    EXPECT_TRUE(started.tensor().is_ready());
    EXPECT_EQ(values_of(started.tensor().wait(kPatient)), four_of(3));
    EXPECT_EQ(values_of(started.tensor().wait(Timeout(0))), four_of(3)) << "waiting again gives the same";
}
TEST(JobWait, Zero_timeout_looks_without_sleeping) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon);
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    EXPECT_EQ(started.tensor().wait(Timeout(0)).status().code(), StatusCode::kTimeout);
    const auto submission = daemon.await_submissions(1).front();
    daemon.run([&](FakeDaemon& at) { at.serve(submission); });
    EXPECT_TRUE(started.tensor().wait(Timeout(0)).is_ok());
}
TEST(JobWait, Daemon_that_dies_ends_a_long_wait) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon, {"a", "b"});
    ASSERT_TRUE(started.tensor(0).submit(1).is_ok());
    std::thread killer([&] {
        daemon.await_submissions(1);
        daemon.run([](FakeDaemon& at) { at.hang_up(); });
    });
    const auto status = started.tensor(0).wait(kPatient).status();
    killer.join();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("job 'job'"), HasSubstr("is gone"), HasSubstr(daemon.socket_path()),
                                     HasSubstr("make a new job")));
    EXPECT_EQ(started.tensor(1).submit(1).text(), status.text()) << "every later call says the same";
    EXPECT_EQ(started.job.check_equal(1, kPatient).text(), status.text());
}
TEST(JobWait, Daemon_that_dies_is_noticed_by_who_only_asks_is_ready) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon);
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    daemon.await_submissions(1);
    EXPECT_FALSE(started.tensor().is_ready());
    daemon.run([](FakeDaemon& at) { at.hang_up(); });
    const auto give_up = std::chrono::steady_clock::now() + kWatchdog;
    while (!started.tensor().is_ready() && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
    EXPECT_EQ(started.tensor().wait(Timeout(0)).status().code(), StatusCode::kUnavailable);
}
TEST(JobWait, Last_words_of_a_daemon_explain_more_than_its_silence) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon);
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    daemon.run([](FakeDaemon& at) {
        at.answer(Kind::kJobEnded, 0, 0, {StatusCode::kUnavailable, "gradsieved stops on request"});
        at.hang_up();
    });
    EXPECT_EQ(started.tensor().wait(kPatient).status().text(), "gradsieved stops on request");
}
TEST(JobWait, End_of_the_job_wakes_all_threads) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon, {"a", "b", "c", "d"});
    for (auto& tensor : started.tensors) ASSERT_TRUE(tensor.submit(1).is_ok());
    std::vector<std::thread> waiters;
    for (auto& tensor : started.tensors)
        waiters.emplace_back([&tensor] { EXPECT_EQ(tensor.wait(kPatient).status().code(), StatusCode::kPeerFailed); });
    waiters.emplace_back([&] { EXPECT_EQ(started.job.finish(1, kPatient).code(), StatusCode::kPeerFailed); });
    daemon.await_submissions(4);
    daemon.run([](FakeDaemon& at) { at.answer(Kind::kJobEnded, 0, 0, {StatusCode::kPeerFailed, "rank 3 died"}); });
    for (auto& waiter : waiters) waiter.join();
}
TEST(JobWait, Threads_wait_for_different_tensors_and_each_gets_its_own) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon, {"a", "b", "c"});
    std::vector<std::thread> waiters;
    for (std::size_t index = 0; index < 3; ++index) {
        fill(started.tensor(index), static_cast<float>(index));
        ASSERT_TRUE(started.tensor(index).submit(1).is_ok());
        waiters.emplace_back([&started, index] {
            EXPECT_EQ(values_of(started.tensor(index).wait(kPatient)), four_of(static_cast<float>(index)));
        });
    }
    const auto submissions = daemon.await_submissions(3);
    for (const std::size_t index : {2U, 0U, 1U}) daemon.run([&](FakeDaemon& at) { at.serve(submissions[index]); });
    for (auto& waiter : waiters) waiter.join();
}
TEST(JobWait, Many_threads_many_steps_lose_no_wake_up) {
    // Each thread steps one tensor; all step together, so one lost wake-up stops them all until the watchdog.
    constexpr std::size_t kThreads = 4;
    constexpr Step kSteps = 150;
    FakeDaemon daemon;
    StartedJob started(daemon, {"a", "b", "c", "d"});
    std::vector<std::thread> threads;
    for (std::size_t index = 0; index < kThreads; ++index)
        threads.emplace_back([&started, index] {
            auto& tensor = started.tensor(index);
            for (Step step = 1; step <= kSteps; ++step) {
                const auto value = static_cast<float>(step * kThreads + index);
                std::ranges::fill(tensor.gradient(), value);
                const auto submitted = tensor.submit(step);
                ASSERT_TRUE(submitted.is_ok()) << submitted.to_string();
                ASSERT_EQ(values_of(tensor.wait(kPatient)), four_of(value));
                ASSERT_TRUE(started.job.finish(step, kPatient).is_ok());
            }
        });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(daemon.await_submissions(kThreads * kSteps).size(), kThreads * kSteps);
}
TEST(JobWait, Detach_in_one_thread_ends_waits_in_others) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon);
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    std::thread waiter([&] { EXPECT_EQ(started.tensor().wait(kPatient).status().code(), StatusCode::kCancelled); });
    EXPECT_TRUE(started.job.detach(kPatient).is_ok());
    waiter.join();
}

}  // namespace
}  // namespace gradsieve::client::test
