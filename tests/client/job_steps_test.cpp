// Handing in and what comes of it, against client/job_steps.cpp.
#include "job_fixture.hpp"

#include <gmock/gmock.h>

#include <array>
#include <limits>
#include <random>
#include <thread>

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using Kind = shm::CompletionKind;

TEST(JobSteps, Values_go_out_and_come_back_step_after_step) {
    FakeDaemon daemon({.first_step = 3});
    StartedJob started(daemon);
    for (Step step = started.job.first_step(); step < 6; ++step) {
        fill(started.tensor(), static_cast<float>(step));
        ASSERT_TRUE(started.tensor().submit(step, {.scale = 0.5}).is_ok());
        EXPECT_EQ(values_of(started.tensor().wait(kPatient)), four_of(static_cast<float>(step)));
        EXPECT_TRUE(started.job.finish(step, kPatient).is_ok());
    }
    const auto submissions = daemon.await_submissions(3);
    EXPECT_EQ(submissions[0].step, 3U);
    EXPECT_EQ(submissions[2].step, 5U);
    EXPECT_EQ(submissions[0].sample_count, 1U);
    EXPECT_EQ(submissions[0].batch_samples, 0U) << "unknown";
    EXPECT_EQ(submissions[0].scale, 0.5);
}
TEST(JobSteps, Order_of_tensors_differs_from_step_to_step) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"a", "b", "c", "d", "e"});
    const auto seed = std::random_device{}();
    RecordProperty("seed", static_cast<int>(seed));
    std::mt19937 random(seed);
    std::vector<std::size_t> order{0, 1, 2, 3, 4};
    for (Step step = 1; step <= 20; ++step) {
        std::ranges::shuffle(order, random);
        for (const auto index : order) {
            fill(started.tensor(index), static_cast<float>(step * 10 + index));
            ASSERT_TRUE(started.tensor(index).submit(step).is_ok()) << "seed " << seed;
        }
        std::ranges::shuffle(order, random);
        for (const auto index : order)
            ASSERT_EQ(values_of(started.tensor(index).wait(kPatient)), four_of(static_cast<float>(step * 10 + index)))
                << "seed " << seed;
    }
}
TEST(JobSteps, Groups_step_on_their_own) {
    FakeDaemon daemon;
    auto job = make_job(daemon);
    auto generator = job.add_tensor("g", {2, 2}, {.group = "generator"}).value();
    auto critic = job.add_tensor("d", {2, 2}, {.group = "critic"}).value();
    ASSERT_TRUE(job.start(kPatient).is_ok());
    for (Step step = 1; step <= 5; ++step) {
        ASSERT_TRUE(critic.submit(step).is_ok());
        ASSERT_TRUE(critic.wait(kPatient).is_ok());
    }
    EXPECT_TRUE(generator.submit(1).is_ok());
    EXPECT_TRUE(job.finish(5, kPatient, "critic").is_ok());
    EXPECT_TRUE(job.finish(1, kPatient, "generator").is_ok());
    const auto unknown = job.finish(1, kPatient);
    EXPECT_EQ(unknown.code(), StatusCode::kNotFound);
    EXPECT_THAT(unknown.text(), AllOf(HasSubstr("group ''"), HasSubstr("'generator', 'critic'")));
}
TEST(JobSteps, Several_samples_go_in_with_their_counts) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"w"}, {.samples_max = 3});
    fill(started.tensor(), 1, 0);
    fill(started.tensor(), 5, 1);
    fill(started.tensor(), 100, 2);  // not handed in
    const std::array<std::uint32_t, 2> samples{16, 7};
    ASSERT_TRUE(started.tensor().submit(1, {.sample_count = 2, .samples = samples}).is_ok());
    EXPECT_EQ(values_of(started.tensor().wait(kPatient)), four_of(3));
    const auto submission = daemon.await_submissions(1).front();
    EXPECT_EQ(submission.sample_count, 2U);
    EXPECT_EQ(submission.batch_samples, 23U);
    daemon.run([](FakeDaemon& at) {
        std::array<std::uint32_t, 2> counts{};
        at.session().slice_samples(0, counts);
        EXPECT_EQ(counts, (std::array<std::uint32_t, 2>{16, 7}));
    });
    ASSERT_TRUE(started.tensor().submit(2, {.sample_count = 3}).is_ok());
    daemon.await_submissions(2);
    daemon.run([](FakeDaemon& at) {
        std::array<std::uint32_t, 3> counts{9, 9, 9};
        at.session().slice_samples(0, counts);
        EXPECT_THAT(counts, Each(0)) << "unknown this time: the former step's counts are gone";
    });
}
TEST(JobSteps, Largest_sample_counts_do_not_overflow) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"w"}, {.samples_max = 2});
    const std::array<std::uint32_t, 2> samples{0xFFFFFFFFU, 0xFFFFFFFFU};
    ASSERT_TRUE(started.tensor().submit(1, {.sample_count = 2, .samples = samples}).is_ok());
    EXPECT_EQ(daemon.await_submissions(1).front().batch_samples, 0x1FFFFFFFEU);
}
TEST(JobSteps, Second_moment_has_a_slab_of_its_own) {
    FakeDaemon daemon;
    StartedJob with(daemon, {"w"}, {.samples_max = 2, .has_second_moment = true});
    fill(with.tensor(), 1, 0);
    fill(with.tensor(), 2, 1);
    ASSERT_EQ(with.tensor().second_moment().size(), 4U);
    std::ranges::fill(with.tensor().second_moment(), 9.0F);
    daemon.run([](FakeDaemon& at) {
        EXPECT_EQ(at.session().slice(0, 1)[3], 2);
        EXPECT_EQ(at.session().second_moment(0)[0], 9);
    });
    FakeDaemon other;
    StartedJob without(other);
    EXPECT_TRUE(without.tensor().second_moment().empty());
}
TEST(JobSteps, Options_out_of_range_are_refused_and_hand_nothing_in) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"w"}, {.samples_max = 2});
    auto& tensor = started.tensor();
    const std::array<std::uint32_t, 3> three{1, 1, 1};
    const std::array<std::uint32_t, 2> with_zero{1, 0};
    const double infinity = std::numeric_limits<double>::infinity();
    const std::vector<std::pair<SubmitOptions, std::string>> cases{
        {{.sample_count = 0}, "sample_count is 0: allowed is 1 .. 2"},
        {{.sample_count = 3}, "sample_count is 3: allowed is 1 .. 2"},
        {{.sample_count = 2, .samples = three}, "samples has 3 numbers: allowed is one for each of the 2 slices"},
        {{.sample_count = 2, .samples = with_zero}, "samples[1] is 0"},
        {{.scale = 0}, "scale is 0"},
        {{.scale = -1}, "scale is -1"},
        {{.scale = infinity}, "scale is inf"},
        {{.scale = std::numeric_limits<double>::quiet_NaN()}, "scale is"},
    };
    for (const auto& [options, text] : cases) {
        const auto status = tensor.submit(1, options);
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(status.text(), AllOf(HasSubstr("tensor 'w'"), HasSubstr(text)));
    }
    EXPECT_TRUE(tensor.submit(1).is_ok());
    EXPECT_EQ(daemon.await_submissions(1).size(), 1U);
    EXPECT_TRUE(tensor.gradient(2).empty()) << "no such slice";
}
TEST(JobSteps, Early_next_step_is_busy_until_the_step_is_settled) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon, {"a", "b"});
    ASSERT_TRUE(started.tensor(0).submit(1).is_ok());
    ASSERT_TRUE(started.tensor(1).submit(1).is_ok());
    daemon.await_submissions(2);
    daemon.run([](FakeDaemon& at) { at.answer(Kind::kTensor, 0, 1); });
    ASSERT_TRUE(started.tensor(0).wait(kPatient).is_ok());
    const auto busy = started.tensor(0).submit(2);
    EXPECT_EQ(busy.code(), StatusCode::kBusy);
    EXPECT_THAT(busy.text(), AllOf(HasSubstr("tensor 'a': step 2"), HasSubstr("wait for that step")));
    EXPECT_EQ(started.job.finish(1, kShort).code(), StatusCode::kTimeout);
    daemon.run([](FakeDaemon& at) {
        at.answer(Kind::kStepDone, 0, 1);
        at.answer(Kind::kTensor, 1, 1);
    });
    EXPECT_TRUE(started.job.finish(1, kPatient).is_ok());
    EXPECT_TRUE(started.tensor(0).submit(2).is_ok());
}
TEST(JobSteps, Failed_step_fails_everywhere_and_the_next_one_may_follow) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon, {"a", "b", "c"});
    ASSERT_TRUE(started.tensor(0).submit(1).is_ok());
    ASSERT_TRUE(started.tensor(1).submit(1).is_ok());
    daemon.await_submissions(2);
    daemon.run([](FakeDaemon& at) {
        at.answer(Kind::kStepDone, 0, 1, {StatusCode::kNonFinite, "tensor 'b' on rank 3 holds a NaN"});
    });
    const auto finished = started.job.finish(1, kPatient);
    EXPECT_EQ(finished.code(), StatusCode::kNonFinite);
    EXPECT_TRUE(started.tensor(2).submit(1).is_ok()) << "late for a failed step: wait tells";
    for (auto& tensor : started.tensors) {
        const auto status = tensor.wait(kPatient).status();
        EXPECT_EQ(status.code(), StatusCode::kNonFinite);
        EXPECT_EQ(status.text(), "tensor 'b' on rank 3 holds a NaN");
    }
    EXPECT_EQ(daemon.await_submissions(2).size(), 2U) << "the late one was not sent";
    EXPECT_TRUE(started.tensor(0).submit(2).is_ok());
}
TEST(JobSteps, Results_that_arrived_before_the_end_are_kept) {
    FakeDaemon daemon;
    StartedJob started(daemon);
    fill(started.tensor(), 4);
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    daemon.await_submissions(1);
    daemon.run([](FakeDaemon& at) { at.answer(Kind::kJobEnded, 0, 0, {StatusCode::kPeerFailed, "rank 3 died"}); });
    EXPECT_EQ(values_of(started.tensor().wait(kPatient)), four_of(4));
    EXPECT_TRUE(started.job.finish(1, kPatient).is_ok());
    EXPECT_EQ(started.tensor().submit(2).text(), "rank 3 died");
}

TEST(JobBroadcast, Root_value_comes_back_and_calls_are_numbered) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"a", "b"});
    for (std::uint32_t index = 0; index < 2; ++index) {
        fill(started.tensor(index), 0.1F);
        EXPECT_EQ(values_of(started.job.broadcast(started.tensor(index), 0, kPatient)), four_of(0.1F));
    }
    const auto submissions = daemon.await_submissions(2);
    EXPECT_EQ(submissions[0].kind, shm::SubmissionKind::kBroadcast);
    EXPECT_EQ(submissions[0].step, 1U);
    EXPECT_EQ(submissions[1].step, 2U);
    EXPECT_EQ(submissions[1].tensor_index, 1U);
    EXPECT_TRUE(started.tensor().submit(1).is_ok()) << "steps go on as if nothing had been";
}
TEST(JobBroadcast, Timeout_is_continued_by_the_same_call_and_blocks_others) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon, {"a", "b"});
    fill(started.tensor(0), 6);
    const auto late = started.job.broadcast(started.tensor(0), 0, kShort).status();
    EXPECT_EQ(late.code(), StatusCode::kTimeout);
    EXPECT_THAT(late.text(), HasSubstr("the broadcast of tensor 'a'"));
    EXPECT_EQ(started.job.broadcast(started.tensor(1), 0, kShort).status().code(), StatusCode::kBusy);
    EXPECT_EQ(started.tensor(0).submit(1).code(), StatusCode::kBusy);
    EXPECT_TRUE(started.tensor(1).submit(1).is_ok());
    const auto submission = daemon.await_submissions(2).front();
    daemon.run([&](FakeDaemon& at) { at.serve(submission); });
    EXPECT_EQ(values_of(started.job.broadcast(started.tensor(0), 0, kPatient)), four_of(6));
    EXPECT_EQ(daemon.await_submissions(2).size(), 2U) << "continued, not sent again";
    EXPECT_TRUE(started.tensor(0).submit(1).is_ok());
}
TEST(JobBroadcast, Open_step_wrong_root_and_foreign_tensor_are_refused) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon);
    const auto root = started.job.broadcast(started.tensor(), 1, kPatient).status();
    EXPECT_EQ(root.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(root.text(), AllOf(HasSubstr("root is 1"), HasSubstr("0 .. 0")));
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    const auto open = started.job.broadcast(started.tensor(), 0, kPatient).status();
    EXPECT_EQ(open.code(), StatusCode::kBusy);
    EXPECT_THAT(open.text(), HasSubstr("step 1 is open"));
    FakeDaemon second;
    StartedJob other(second, {"theirs"});
    const auto foreign = started.job.broadcast(other.tensor(), 0, kPatient).status();
    EXPECT_EQ(foreign.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(foreign.text(), HasSubstr("'theirs' is not of this job"));
}
TEST(JobCheckEqual, Digest_goes_out_and_the_verdict_comes_back) {
    FakeDaemon::Script script;
    script.on_submission = [](FakeDaemon& at, const shm::Submission& submission) {
        if (submission.kind != shm::SubmissionKind::kCheckEqual) return at.serve(submission);
        const bool is_equal = submission.digest == 0x1234U;
        at.answer(Kind::kCheckEqual, 0, submission.step,
                  is_equal ? Status() : Status(StatusCode::kMismatch, "rank 2 has another digest"));
    };
    FakeDaemon daemon(script);
    StartedJob started(daemon);
    EXPECT_TRUE(started.job.check_equal(0x1234, kPatient).is_ok());
    const auto differs = started.job.check_equal(0x1235, kPatient);
    EXPECT_EQ(differs.code(), StatusCode::kMismatch);
    EXPECT_EQ(differs.text(), "rank 2 has another digest");
    const auto submissions = daemon.await_submissions(2);
    EXPECT_EQ(submissions[0].step, 1U);
    EXPECT_EQ(submissions[1].step, 2U);
    EXPECT_EQ(submissions[1].digest, 0x1235U);
}
TEST(JobCheckEqual, Timeout_then_success) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon);
    EXPECT_EQ(started.job.check_equal(1, kShort).code(), StatusCode::kTimeout);
    EXPECT_EQ(started.job.check_equal(2, kShort).code(), StatusCode::kBusy) << "another digest is another call";
    const auto submission = daemon.await_submissions(1).front();
    daemon.run([&](FakeDaemon& at) { at.serve(submission); });
    EXPECT_TRUE(started.job.check_equal(1, kPatient).is_ok());
}

}  // namespace
}  // namespace gradsieve::client::test
