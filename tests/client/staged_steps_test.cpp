// Steps of staged tensors, against client/staging.cpp and client/job_staging.cpp: a driver whose copies move bytes when
// their stream is waited for, and a fake daemon.
#include "staged_fixture.hpp"

#include <cmath>

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Completions = shm::CompletionKind;
using StagedSteps = Staged;
using Floats = std::vector<float>;
using Halves = std::vector<std::uint16_t>;

/// Answers averages with these values, whatever was handed in.
FakeDaemon::Script answering(const Floats& average) {
    FakeDaemon::Script script;
    script.on_submission = [average](FakeDaemon& at, const shm::Submission& submission) {
        if (submission.kind != shm::SubmissionKind::kAverage) return at.serve(submission);
        std::copy(average.begin(), average.end(), at.result(submission.tensor_index));
        at.answer(Completions::kStepDone, 0, submission.step);
        at.answer(Completions::kTensor, submission.tensor_index, submission.step);
    };
    return script;
}

TEST_F(StagedSteps, Memory_that_cannot_be_shared_is_told_in_the_attach_and_never_bound) {
    for (const auto kind : {Kind::kPool, Kind::kUnexported}) {
        FakeDaemon daemon;
        const StagedJob staged(daemon, buffer_at(FakeCuda::get().add_memory(kind, kBytes)));
        const auto entry = daemon.await_attach().tensors.at(0);
        EXPECT_TRUE(entry.staged);
        EXPECT_FALSE(entry.on_device);
    }
    FakeDaemon daemon(FakeDaemon::Script{.on_bind = [](FakeDaemon&, const shm::BindRequest&) { ADD_FAILURE(); }});
    StagedJob staged(daemon, buffer_);
    staged.step(1);
}
TEST_F(StagedSteps, Gradient_goes_to_the_slab_and_the_average_into_the_bound_memory) {
    FakeDaemon daemon(answering({5, 6, 7, 8}));
    StagedJob staged(daemon, buffer_);
    EXPECT_TRUE(staged.tensor().gradient().empty());
    for (Step step = 1; step <= 3; ++step) {
        const auto first = static_cast<float>(step);
        write(gradient_, Floats{first, 2, 3, 4, 99});
        staged.step(step);
        EXPECT_EQ(slab_of(daemon), (Floats{first, 2, 3, 4}));
        EXPECT_EQ(read<float>(gradient_, 5), (Floats{5, 6, 7, 8, 99}));
    }
}
TEST_F(StagedSteps, Average_is_written_once_and_not_over_what_the_program_writes_next) {
    FakeDaemon daemon(answering({5, 6, 7, 8}));
    StagedJob staged(daemon, buffer_);
    staged.step(1);
    const Floats next{1, 1, 1, 1};
    write(gradient_, next);
    EXPECT_TRUE(staged.tensor().is_ready());
    EXPECT_TRUE(staged.tensor().wait(kPatient).is_ok());
    EXPECT_TRUE(staged.job.finish(1, kPatient).is_ok());
    EXPECT_EQ(read<float>(gradient_), next);
    EXPECT_EQ(FakeCuda::get().log_of("cuMemcpyHtoDAsync").size(), 1U);
}
TEST_F(StagedSteps, Slices_lie_at_their_stride_and_only_those_handed_in_are_copied) {
    FakeDaemon daemon;
    buffer_.sample_stride_elements = 6;
    StagedJob staged(daemon, buffer_, {.samples_max = 3, .has_second_moment = false, .group = "", .on_device = true});
    write(gradient_, Floats{1, 2, 3, 4, 0, 0, 10, 20, 30, 40, 0, 0, -1, -1, -1, -1});
    ASSERT_TRUE(staged.tensor().submit(1, {.sample_count = 2}).is_ok());
    ASSERT_TRUE(staged.tensor().wait(kPatient).is_ok());
    EXPECT_EQ(slab_of(daemon, 1), (Floats{10, 20, 30, 40}));
    EXPECT_EQ(slab_of(daemon, 2), (Floats{0, 0, 0, 0}));
    EXPECT_EQ(read<float>(gradient_, 8), (Floats{5.5, 11, 16.5, 22, 0, 0, 10, 20})) << "the mean, in slice 0 alone";
    EXPECT_EQ(FakeCuda::get().log_of("cuMemcpyDtoHAsync").size(), 2U);
    EXPECT_EQ(FakeCuda::get().log_of("cuStreamSynchronize").size(), 2U) << "once there and once back";
}
TEST_F(StagedSteps, Second_moment_goes_along) {
    const auto moment = FakeCuda::get().add_memory(Kind::kPool, kBytes);
    write(moment, Floats{0.5, 0.25, 4, 9});
    FakeDaemon daemon;
    buffer_.second_moment = pointer_to(moment);
    buffer_.type = ElementType::kBf16;
    write(gradient_, Halves{0x3F80, 0x4000, 0x4040, 0x4080});  // 1 2 3 4
    StagedJob staged(daemon, buffer_, {.samples_max = 1, .has_second_moment = true, .group = "", .on_device = true});
    EXPECT_TRUE(staged.tensor().second_moment().empty());
    staged.step(1);
    daemon.run([](FakeDaemon& at) {
        const auto* const seen = at.session().second_moment(0);
        EXPECT_EQ(Floats(seen, seen + 4), (Floats{0.5, 0.25, 4, 9}));
    });
    EXPECT_EQ(read<float>(moment), (Floats{0.5, 0.25, 4, 9})) << "is only read";
    EXPECT_EQ(read<std::uint16_t>(gradient_), (Halves{0x3F80, 0x4000, 0x4040, 0x4080}));
}
TEST_F(StagedSteps, Shareable_gradient_with_a_second_moment_that_is_not_is_staged_too) {
    FakeDaemon daemon;
    buffer_.pointer = pointer_to(FakeCuda::get().add_memory(Kind::kLegacy, kBytes));
    buffer_.second_moment = pointer_to(gradient_);
    StagedJob staged(daemon, buffer_, {.samples_max = 1, .has_second_moment = true, .group = "", .on_device = true});
    staged.step(1);
}
TEST_F(StagedSteps, Half_types_are_widened_exactly_and_the_average_rounded_to_nearest_even) {
    FakeDaemon daemon(answering({1.0F + 0x1p-9F, 1.0F + 0x3p-9F, 65520.0F, std::nanf("")}));
    buffer_.type = ElementType::kF16;
    StagedJob staged(daemon, buffer_);
    write(gradient_, Halves{0x3C00, 0x0001, 0xFBFF, 0x8000, 0x1234});
    ASSERT_TRUE(staged.tensor().submit(1).is_ok());
    const auto handed_in = slab_of(daemon);
    EXPECT_EQ(handed_in[0], 1.0F);
    EXPECT_EQ(handed_in[1], 0x1p-24F);
    EXPECT_EQ(handed_in[2], -65504.0F);
    EXPECT_TRUE(std::signbit(handed_in[3]));
    ASSERT_TRUE(staged.tensor().wait(kPatient).is_ok());
    EXPECT_EQ(read<std::uint16_t>(gradient_, 5), (Halves{0x3C02, 0x3C06, 0x7C00, 0x7FFF, 0x1234}));

    FakeDaemon other(answering({1.0F + 0x1p-8F, 1.0F + 0x3p-8F, 0.1F, -3.4028235e38F}));
    buffer_.type = ElementType::kBf16;
    buffer_.sample_stride_elements = 5;
    StagedJob bf16(other, buffer_, {.samples_max = 2, .has_second_moment = false, .group = "", .on_device = true});
    write(gradient_, Halves{0x3F80, 0x4000, 0x4040, 0x4080, 7, 0xBF80, 0x0001, 0x7F7F, 0x3DCD});
    ASSERT_TRUE(bf16.tensor().submit(1, {.sample_count = 2}).is_ok());
    ASSERT_TRUE(bf16.tensor().wait(kPatient).is_ok());
    EXPECT_EQ(slab_of(other, 1).at(0), -1.0F);
    EXPECT_EQ(slab_of(other, 1).at(1), 0x1p-133F);
    EXPECT_EQ(read<std::uint16_t>(gradient_, 6), (Halves{0x3F80, 0x3F82, 0x3DCD, 0xFF80, 7, 0xBF80}));
}
TEST_F(StagedSteps, Failed_step_and_ended_job_write_nothing) {
    FakeDaemon daemon(silent());
    StagedJob staged(daemon, buffer_);
    const Floats gradient{1, 2, 3, 4};
    write(gradient_, gradient);
    ASSERT_TRUE(staged.tensor().submit(1).is_ok());
    daemon.await_submissions(1);
    EXPECT_FALSE(staged.tensor().is_ready());
    EXPECT_EQ(staged.tensor().wait(kShort).status().code(), StatusCode::kTimeout);
    daemon.run([](FakeDaemon& at) { at.answer(Completions::kStepDone, 0, 1, {StatusCode::kNonFinite, "a NaN"}); });
    EXPECT_EQ(staged.tensor().wait(kPatient).status().text(), "a NaN");
    EXPECT_EQ(staged.job.finish(1, kPatient).text(), "a NaN");
    EXPECT_TRUE(staged.tensor().is_ready());
    ASSERT_TRUE(staged.tensor().submit(2).is_ok());
    daemon.await_submissions(2);
    daemon.run([](FakeDaemon& at) { at.answer(Completions::kJobEnded, 0, 0, {StatusCode::kPeerFailed, "gone"}); });
    EXPECT_EQ(staged.tensor().wait(kPatient).status().text(), "gone");
    EXPECT_EQ(read<float>(gradient_), gradient);
    EXPECT_TRUE(FakeCuda::get().log_of("cuMemcpyHtoDAsync").empty());
}
TEST_F(StagedSteps, Is_ready_and_finish_deliver_as_wait_does) {
    FakeDaemon daemon(answering({5, 6, 7, 8}));
    StagedJob staged(daemon, buffer_);
    ASSERT_TRUE(staged.tensor().submit(1).is_ok());
    ASSERT_TRUE(staged.job.finish(1, kPatient).is_ok());
    EXPECT_EQ(read<float>(gradient_), (Floats{5, 6, 7, 8}));
    write(gradient_, Floats{0, 0, 0, 0});
    ASSERT_TRUE(staged.tensor().submit(2).is_ok());
    const auto deadline = std::chrono::steady_clock::now() + kWatchdog;
    while (!staged.tensor().is_ready()) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    EXPECT_EQ(read<float>(gradient_), (Floats{5, 6, 7, 8}));
}
TEST_F(StagedSteps, Step_that_has_failed_already_is_accepted_and_not_copied) {
    FakeDaemon daemon(silent());
    StagedJob staged(daemon, buffer_);
    daemon.run([](FakeDaemon& at) { at.answer(Completions::kStepDone, 0, 1, {StatusCode::kStepFailed, "no"}); });
    EXPECT_EQ(staged.job.finish(1, kPatient).text(), "no");
    ASSERT_TRUE(staged.tensor().submit(1).is_ok());
    EXPECT_EQ(staged.tensor().wait(kPatient).status().text(), "no");
    EXPECT_TRUE(FakeCuda::get().log_of("cuMemcpy").empty());
}
TEST_F(StagedSteps, Errors_of_the_driver_on_the_way_in_hand_nothing_in) {
    FakeDaemon daemon;
    StagedJob staged(daemon, buffer_);
    for (const std::string call : {"cuMemcpyDtoHAsync", "cuStreamSynchronize", "cuCtxPushCurrent"}) {
        FakeCuda::get().fail(call, 700);
        const auto status = staged.tensor().submit(1);
        EXPECT_EQ(status.code(), StatusCode::kUnavailable);
        EXPECT_THAT(status.text(),
                    AllOf(HasSubstr("job 'job'"), HasSubstr("tensor 'w'"), HasSubstr(call + " answered 700")));
    }
    write(gradient_, Floats{1, 2, 3, 4});
    staged.step(1);
    EXPECT_EQ(daemon.await_submissions(1).size(), 1U);
    EXPECT_EQ(slab_of(daemon), (Floats{1, 2, 3, 4}));
}
TEST_F(StagedSteps, Errors_of_the_driver_on_the_way_back_are_told_and_the_next_wait_tries_again) {
    FakeDaemon daemon(answering({5, 6, 7, 8}));
    StagedJob staged(daemon, buffer_);
    ASSERT_TRUE(staged.tensor().submit(1).is_ok());
    ASSERT_TRUE(daemon.await_submissions(1).size() == 1);
    for (const std::string call : {"cuMemcpyHtoDAsync", "cuStreamSynchronize"}) {
        FakeCuda::get().fail(call, 719);
        const auto status = staged.tensor().wait(kPatient).status();
        EXPECT_EQ(status.code(), StatusCode::kUnavailable);
        EXPECT_THAT(status.text(), AllOf(HasSubstr("tensor 'w'"), HasSubstr(call + " answered 719")));
    }
    FakeCuda::get().fail("cuMemcpyHtoDAsync", 719);
    EXPECT_TRUE(staged.tensor().is_ready()) << "an error is there";
    EXPECT_TRUE(staged.tensor().wait(kPatient).is_ok());
    EXPECT_EQ(read<float>(gradient_), (Floats{5, 6, 7, 8}));
}
TEST_F(StagedSteps, Callers_context_stays) {
    FakeDaemon daemon;
    StagedJob staged(daemon, buffer_);
    FakeCuda::contexts().assign(1, FakeCuda::context_of(1));
    staged.step(1);
    EXPECT_EQ(FakeCuda::contexts(), std::vector<void*>{FakeCuda::context_of(1)});
    for (const auto& line : FakeCuda::get().log_of("cuMemcpy")) EXPECT_THAT(line, HasSubstr("in context (49152"));
}

}  // namespace
}  // namespace gradsieve::client::test
