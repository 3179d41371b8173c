// Job::check_parameters and its C twin: when a comparison is due, what is sent then, and what a difference says.
#include "gradsieve/gradsieve.h"

#include "job_fixture.hpp"

#include <gmock/gmock.h>

#include <cstring>

namespace gradsieve::client::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A started job whose option `check_every` is given.
class CheckingJob {
public:
    explicit CheckingJob(const FakeDaemon& daemon, std::uint32_t check_every) : job(make(daemon, check_every)) {
        EXPECT_TRUE(job.add_tensor("w", {4}).is_ok());
        const auto status = job.start(kPatient);
        EXPECT_TRUE(status.is_ok()) << status.to_string();
    }
    Job job;

private:
    static Job make(const FakeDaemon& daemon, std::uint32_t check_every) {
        auto options = options_for(daemon);
        options.check_every = check_every;
        auto made = Job::make(options);
        EXPECT_TRUE(made.is_ok()) << made.status().to_string();
        return std::move(*made);
    }
};

/// The digests that arrived, after a comparison with digest 0 marks the end: what was not sent by then never is.
std::vector<std::uint64_t> digests_sent(FakeDaemon& daemon, Job& job, std::size_t expected) {
    EXPECT_TRUE(job.check_equal(0, kPatient).is_ok());
    std::vector<std::uint64_t> digests;
    for (const auto& submission : daemon.await_submissions(expected + 1))
        if (submission.kind == shm::SubmissionKind::kCheckEqual) digests.push_back(submission.digest);
    EXPECT_EQ(digests.size(), expected + 1) << "more comparisons, or fewer, than expected";
    EXPECT_EQ(digests.back(), 0U);
    digests.pop_back();
    return digests;
}
std::uint64_t digest_of_floats(const std::vector<float>& values) { return digest_of(std::as_bytes(std::span(values))); }

TEST(CheckParameters, First_call_and_every_multiple_are_compared_and_no_other_step) {
    FakeDaemon daemon;
    CheckingJob checking(daemon, 3);
    std::vector<std::uint64_t> expected;
    for (Step step = 7; step <= 13; ++step) {  // resumed: the first step is no multiple
        const std::vector<float> parameters{static_cast<float>(step), 0.5F};
        ASSERT_TRUE(checking.job.check_parameters(step, parameters, kPatient).is_ok()) << step;
        if (step == 7 || step == 9 || step == 12) expected.push_back(digest_of_floats(parameters));
    }
    EXPECT_EQ(digests_sent(daemon, checking.job, 3), expected);
}
TEST(CheckParameters, Zero_never_compares_and_one_always_does) {
    FakeDaemon daemon;
    CheckingJob never(daemon, 0);
    const std::vector<float> parameters{1, 2};
    for (Step step = 0; step < 4; ++step) ASSERT_TRUE(never.job.check_parameters(step, parameters, kPatient).is_ok());
    EXPECT_THAT(digests_sent(daemon, never.job, 0), ElementsAre());
    FakeDaemon other;
    CheckingJob always(other, 1);
    for (Step step = 5; step < 8; ++step) ASSERT_TRUE(always.job.check_parameters(step, parameters, kPatient).is_ok());
    EXPECT_EQ(digests_sent(other, always.job, 3).size(), 3U);
}
TEST(CheckParameters, List_of_spans_is_compared_like_its_concatenation) {
    FakeDaemon daemon;
    CheckingJob checking(daemon, 1);
    const std::vector<float> whole{1, 2, 3, 4, 5};
    const std::span<const float> all(whole);
    const std::vector<std::span<const float>> cut{all.first(2), {}, all.subspan(2, 1), all.subspan(3)};
    ASSERT_TRUE(checking.job.check_parameters(1, cut, kPatient).is_ok());
    const std::vector<std::span<const std::byte>> bytes{std::as_bytes(all).first(7), std::as_bytes(all).subspan(7)};
    ASSERT_TRUE(checking.job.check_parameters(2, bytes, kPatient).is_ok());
    ASSERT_TRUE(checking.job.check_parameters(3, std::span<const std::span<const float>>(), kPatient).is_ok());
    EXPECT_THAT(digests_sent(daemon, checking.job, 3),
                ElementsAre(digest_of_floats(whole), digest_of_floats(whole), digest_of({})));
}
TEST(CheckParameters, Difference_names_the_step_and_keeps_the_daemons_words) {
    FakeDaemon::Script script;
    script.on_submission = [](FakeDaemon& at, const shm::Submission& submission) {
        if (submission.kind != shm::SubmissionKind::kCheckEqual) return at.serve(submission);
        at.answer(shm::CompletionKind::kCheckEqual, 0, submission.step,
                  Status(StatusCode::kMismatch, "check 1: rank 2 on node b has 66"));
    };
    FakeDaemon daemon(script);
    CheckingJob checking(daemon, 10);
    const auto status = checking.job.check_parameters(40, std::vector<float>{1}, kPatient);
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    EXPECT_EQ(status.text(), "parameters after step 40: check 1: rank 2 on node b has 66");
}
TEST(CheckParameters, Timeout_of_the_first_call_goes_on_when_it_is_repeated) {
    FakeDaemon daemon(silent());
    CheckingJob checking(daemon, 10);
    const std::vector<float> parameters{1, 2};
    const auto late = checking.job.check_parameters(3, parameters, kShort);
    EXPECT_EQ(late.code(), StatusCode::kTimeout);
    EXPECT_THAT(late.text(), HasSubstr("parameters after step 3: "));
    const auto submission = daemon.await_submissions(1).front();
    daemon.run([&](FakeDaemon& at) { at.serve(submission); });
    EXPECT_TRUE(checking.job.check_parameters(3, parameters, kPatient).is_ok());
    daemon.run([](FakeDaemon&) {});
    EXPECT_EQ(daemon.await_submissions(1).size(), 1U) << "nothing new was sent";
}
TEST(CheckParameters, Job_that_does_not_run_says_so_even_when_nothing_is_due) {
    FakeDaemon daemon;
    auto job = make_job(daemon);
    const auto status = job.check_parameters(1, std::vector<float>{1}, kShort);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.text(), HasSubstr("is not started"));
    const Job other = std::move(job);
    EXPECT_EQ(job.check_parameters(1, std::vector<float>{1}, kShort).code(),  // NOLINT(bugprone-use-after-move)
              StatusCode::kFailedPrecondition);
}

class CheckParametersInC : public ::testing::Test {
protected:
    CheckParametersInC() {
        gradsieve_job_options options = GRADSIEVE_JOB_OPTIONS_INIT;
        options.name = "job";
        options.run_id = "run";
        options.rank = 0;
        options.world_size = 1;
        options.socket_path = daemon_.socket_path().c_str();
        options.check_every = 2;
        EXPECT_EQ(gradsieve_job_make(&options, &job_), GRADSIEVE_OK) << gradsieve_last_error();
        gradsieve_tensor* tensor = nullptr;
        EXPECT_EQ(gradsieve_job_add_tensor(job_, "w", nullptr, 0, nullptr, &tensor), GRADSIEVE_OK);
        EXPECT_EQ(gradsieve_job_start(job_, kPatient.count()), GRADSIEVE_OK) << gradsieve_last_error();
    }
    ~CheckParametersInC() override { gradsieve_job_free(job_); }
    gradsieve_status check(std::uint64_t step, const std::vector<const void*>& parameters,
                           const std::vector<std::size_t>& byte_counts) {
        return gradsieve_job_check_parameters(job_, step, parameters.data(), byte_counts.data(), parameters.size(),
                                              kPatient.count());
    }
    FakeDaemon daemon_;
    gradsieve_job* job_ = nullptr;
};

TEST_F(CheckParametersInC, Compares_the_bytes_of_all_arrays_when_due) {
    const std::vector<float> whole{1, 2, 3};
    ASSERT_EQ(check(1, {whole.data(), nullptr, whole.data() + 1}, {4, 0, 8}), GRADSIEVE_OK) << gradsieve_last_error();
    ASSERT_EQ(check(3, {whole.data()}, {4}), GRADSIEVE_OK) << "not due";
    ASSERT_EQ(check(4, {whole.data()}, {4}), GRADSIEVE_OK) << gradsieve_last_error();
    const auto submissions = daemon_.await_submissions(2);
    ASSERT_EQ(submissions.size(), 2U);
    EXPECT_EQ(submissions[0].digest, digest_of_floats(whole));
    EXPECT_EQ(submissions[1].digest, digest_of_floats({1}));
}
TEST_F(CheckParametersInC, Missing_arrays_are_named) {
    const float value = 1;
    EXPECT_EQ(gradsieve_job_check_parameters(nullptr, 2, nullptr, nullptr, 0, 0), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), StartsWith("job is NULL"));
    const std::size_t byte_count = 4;
    EXPECT_EQ(gradsieve_job_check_parameters(job_, 2, nullptr, &byte_count, 1, 0), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), StartsWith("parameters is NULL"));
    const void* parameter = &value;
    EXPECT_EQ(gradsieve_job_check_parameters(job_, 2, &parameter, nullptr, 1, 0), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), StartsWith("byte_counts is NULL"));
    EXPECT_EQ(check(2, {&value, nullptr}, {4, 4}), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), StartsWith("parameters[1] is NULL"));
}

}  // namespace
}  // namespace gradsieve::client::test
