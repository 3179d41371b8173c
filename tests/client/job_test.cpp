// The Job handle itself, against client/job.cpp: identity, moves, forked children.
#include "environment.hpp"
#include "forked.hpp"
#include "job_fixture.hpp"

#include <gmock/gmock.h>

#include <optional>

namespace gradsieve::client::test {
namespace {

using ::testing::HasSubstr;

TEST(Job, Identity_comes_from_the_options) {
    JobOptions options;
    options.name = "job";
    options.rank = 2;
    options.world_size = 4;
    const auto job = Job::make(options);
    ASSERT_TRUE(job.is_ok()) << job.status().to_string();
    EXPECT_EQ(job->rank(), 2U);
    EXPECT_EQ(job->world_size(), 4U);
}
TEST(Job, Wrong_options_make_no_job) {
    const auto status = Job::make({}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.text(), HasSubstr("JobOptions.name is empty"));
}
TEST(Job, Codec_from_the_environment_reaches_the_daemon) {
    Environment environment;
    environment.set("GRADSIEVE_CODEC", "topk(0.5) | f32");
    FakeDaemon daemon;
    auto options = options_for(daemon);
    options.codec.clear();
    auto job = Job::make(options).value();
    ASSERT_TRUE(job.add_tensor("w", {1}).is_ok());
    ASSERT_TRUE(job.start(kPatient).is_ok());
    EXPECT_EQ(daemon.await_attach().codec, "topk(0.5) | f32");
}
TEST(Job, Moves_keep_the_job_and_assignment_leaves_the_former_one) {
    FakeDaemon first;
    FakeDaemon second;
    StartedJob one(first);
    StartedJob two(second);
    Job moved = std::move(one.job);
    EXPECT_TRUE(moved.check_equal(1, kPatient).is_ok());
    EXPECT_EQ(one.job.start(kPatient).code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(one.job.add_tensor("x", {1}).status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(one.job.first_step(), 0U);
    moved = std::move(two.job);
    EXPECT_EQ(first.await_submissions(2).back().kind, shm::SubmissionKind::kDetach);
    EXPECT_TRUE(moved.check_equal(1, kPatient).is_ok());
    EXPECT_EQ(second.await_submissions(1).back().kind, shm::SubmissionKind::kCheckEqual);
}
TEST(Job, Forked_child_gets_words_from_every_call_and_harms_nothing) {
    FakeDaemon daemon(silent());
    std::optional<StartedJob> started(std::in_place, daemon);
    auto& tensor = started->tensor();
    fill(tensor, 2);
    ASSERT_TRUE(tensor.submit(1).is_ok());
    const auto code = exit_code_of_child([&] {
        auto& job = started->job;
        for (const auto& status :
             {tensor.submit(2), tensor.wait(kPatient).status(), job.finish(1, kPatient), job.start(kPatient),
              job.check_equal(1, kPatient), job.broadcast(tensor, 0, kPatient).status(), job.detach(kPatient),
              job.add_tensor("x", {1}).status()}) {
            if (status.code() != StatusCode::kFailedPrecondition) return 1;
            if (status.text().find("open a job in the forked process itself") == std::string::npos) return 2;
        }
        if (!tensor.gradient().empty() || !tensor.second_moment().empty() || !tensor.is_ready() ||
            job.first_step() != 0)
            return 3;
        started.reset();
        return 7;
    });
    EXPECT_EQ(code, 7);
    const auto submission = daemon.await_submissions(1).front();
    daemon.run([&](FakeDaemon& at) { at.serve(submission); });
    EXPECT_EQ(values_of(tensor.wait(kPatient)), four_of(2)) << "the parent goes on";
    EXPECT_EQ(daemon.await_submissions(1).size(), 1U) << "the child said no goodbye";
}
TEST(Job, Forked_child_destroys_nothing_that_it_mapped_where_the_parent_has_its_memory) {
    FakeDaemon daemon;
    std::optional<StartedJob> started(std::in_place, daemon);
    float* const slab = started->tensor().gradient().data();
    const auto code = exit_code_of_child([&] {
        char* const page = map_page_at(slab);  // free in the child: MADV_DONTFORK
        if (page == nullptr) return 1;
        *page = 42;
        started.reset();
        return *page == 42 ? 7 : 2;
    });
    EXPECT_EQ(code, 7);
    fill(started->tensor(), 1);
    ASSERT_TRUE(started->tensor().submit(1).is_ok());
    EXPECT_TRUE(started->tensor().wait(kPatient).is_ok());
}
TEST(Job, Forked_child_may_open_a_job_of_its_own) {
    FakeDaemon daemon;
    FakeDaemon for_child;
    StartedJob started(daemon);
    const auto code = exit_code_of_child([&] {
        auto job = Job::make(options_for(for_child)).value();
        auto tensor = job.add_tensor("w", {2, 2}).value();
        if (!job.start(kPatient).is_ok()) return 1;
        fill(tensor, 5);
        if (!tensor.submit(1).is_ok() || values_of(tensor.wait(kPatient)) != four_of(5)) return 2;
        return job.detach(kPatient).is_ok() ? 7 : 3;
    });
    EXPECT_EQ(code, 7);
}

}  // namespace
}  // namespace gradsieve::client::test
