// Several threads around a staged tensor whose stream is stuck, against client/job_staging.cpp.
#include "staged_fixture.hpp"

#include <future>

namespace gradsieve::client::test {
namespace {

using ::testing::HasSubstr;
using StagedThreads = Staged;
using Floats = std::vector<float>;

/// What `call` returns, once the stream has let it go.
template <typename Call>
std::future<Status> while_held(Call call) {
    FakeCuda::get().hold_streams(true);
    auto result = std::async(std::launch::async, std::move(call));
    FakeCuda::get().await_held(1);
    return result;
}
Status released(std::future<Status>& result) {
    FakeCuda::get().hold_streams(false);
    return result.get();
}

TEST_F(StagedThreads, Submit_waits_for_the_stream_and_lets_other_calls_in) {
    FakeDaemon daemon;
    FreshJob fresh(daemon, {"w", "other"});
    ASSERT_TRUE(fresh.tensor(0).bind_device(buffer_, kPatient).is_ok());
    ASSERT_TRUE(fresh.tensor(1).bind_device(good_, kPatient).is_ok());
    ASSERT_TRUE(fresh.job.start(kPatient).is_ok());
    EXPECT_TRUE(fresh.tensor(0).is_staged());
    EXPECT_FALSE(fresh.tensor(1).is_staged()) << "each tensor has its own way";
    auto submitted = while_held([&] { return fresh.tensor(0).submit(1); });
    ASSERT_TRUE(fresh.tensor(1).submit(1).is_ok());
    ASSERT_TRUE(fresh.tensor(1).wait(kPatient).is_ok());
    EXPECT_EQ(daemon.await_submissions(1).size(), 1U) << "the other one's";
    for (const auto& busy :
         {fresh.tensor(0).submit(1), fresh.tensor(0).bind_device(buffer_, kPatient),
          fresh.tensor(0).unbind_device(kPatient), fresh.job.broadcast(fresh.tensor(0), 0, kPatient).status()}) {
        EXPECT_EQ(busy.code(), StatusCode::kBusy);
        EXPECT_THAT(busy.text(), HasSubstr("tensor 'w' is being copied by another thread"));
    }
    const auto status = released(submitted);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_TRUE(fresh.tensor(0).wait(kPatient).is_ok());
}
TEST_F(StagedThreads, Second_wait_sleeps_until_the_first_has_copied) {
    FakeDaemon daemon;
    StagedJob staged(daemon, buffer_);
    write(gradient_, Floats{1, 2, 3, 4});
    ASSERT_TRUE(staged.tensor().submit(1).is_ok());
    auto first = while_held([&] { return staged.tensor().wait(kPatient).status(); });
    EXPECT_FALSE(staged.tensor().is_ready()) << "the memory is not final";
    const auto late = staged.tensor().wait(kShort).status();
    EXPECT_EQ(late.code(), StatusCode::kTimeout);
    EXPECT_THAT(late.text(), HasSubstr("the copy of tensor 'w' to the device by another thread"));
    auto second = std::async(std::launch::async, [&] { return staged.tensor().wait(kPatient).status(); });
    EXPECT_TRUE(released(first).is_ok());
    EXPECT_TRUE(second.get().is_ok());
    EXPECT_EQ(FakeCuda::get().log_of("cuMemcpyHtoDAsync").size(), 1U);
}
TEST_F(StagedThreads, Detach_during_a_copy_cancels_the_submit) {
    FakeDaemon daemon;
    StagedJob staged(daemon, buffer_);
    auto submitted = while_held([&] { return staged.tensor().submit(1); });
    EXPECT_TRUE(staged.job.detach(kPatient).is_ok());
    EXPECT_EQ(released(submitted).code(), StatusCode::kCancelled);
    EXPECT_EQ(daemon.await_submissions(1).front().kind, shm::SubmissionKind::kDetach);
}
TEST_F(StagedThreads, Job_that_ends_during_a_copy_is_told_by_the_submit) {
    FakeDaemon daemon;
    StagedJob staged(daemon, buffer_);
    auto submitted = while_held([&] { return staged.tensor().submit(1); });
    daemon.run([](FakeDaemon& at) {
        at.answer(shm::CompletionKind::kJobEnded, 0, 0, {StatusCode::kPeerFailed, "rank 3 died"});
    });
    EXPECT_EQ(released(submitted).text(), "rank 3 died");
}
TEST_F(StagedThreads, Dropped_handles_leave_the_memory_to_the_copy) {
    FakeDaemon daemon;
    auto staged = std::make_unique<StagedJob>(daemon, buffer_);
    write(gradient_, Floats{1, 2, 3, 4});
    auto submitted = while_held([tensor = staged->tensor()]() mutable { return tensor.submit(1); });
    staged.reset();
    EXPECT_EQ(released(submitted).code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace gradsieve::client::test
