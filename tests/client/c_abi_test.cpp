// The C ABI, against client/c_abi.cpp: a whole C99 program, and what wrong arguments get.
#include "gradsieve/gradsieve.h"

#include "c_program.h"
#include "environment.hpp"
#include "fake_daemon.hpp"
#include "forked.hpp"

#include <gmock/gmock.h>

#include <thread>

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kPatientMs = std::chrono::milliseconds(kWatchdog).count();

class CAbi : public ::testing::Test {
protected:
    CAbi() {
        environment_.clear_all();
        options_.name = "job";
        options_.rank = 0;
        options_.world_size = 1;
        socket_path_ = daemon_.socket_path();
        options_.socket_path = socket_path_.c_str();
        EXPECT_EQ(gradsieve_job_make(&options_, &job_), GRADSIEVE_OK) << gradsieve_last_error();
    }
    ~CAbi() override { gradsieve_job_free(job_); }
    gradsieve_tensor* add(const char* name) {
        const std::uint64_t shape[] = {4};
        gradsieve_tensor* tensor = nullptr;
        EXPECT_EQ(gradsieve_job_add_tensor(job_, name, shape, 1, nullptr, &tensor), GRADSIEVE_OK)
            << gradsieve_last_error();
        return tensor;
    }
    Environment environment_;
    FakeDaemon daemon_;
    std::string socket_path_;
    gradsieve_job_options options_ = GRADSIEVE_JOB_OPTIONS_INIT;
    gradsieve_job* job_ = nullptr;
};

TEST_F(CAbi, C99_program_runs_a_whole_job) {
    EXPECT_EQ(run_c_program(daemon_.socket_path().c_str()), 0) << gradsieve_last_error();
}
TEST_F(CAbi, Codes_have_names_and_unknown_numbers_say_so) {
    EXPECT_STREQ(gradsieve_status_name(GRADSIEVE_OK), "ok");
    EXPECT_STREQ(gradsieve_status_name(GRADSIEVE_CANCELLED), "cancelled");
    for (const gradsieve_status code : {-1, 19, 65535, 65536, 65542})
        EXPECT_STREQ(gradsieve_status_name(code), "unknown") << code;
    EXPECT_STREQ(gradsieve_version(), GRADSIEVE_VERSION);
}
TEST_F(CAbi, Null_arguments_are_named) {
    gradsieve_tensor* tensor = add("w");
    const float* values = nullptr;
    float* slab = nullptr;
    std::uint64_t number = 0;
    std::uint32_t small_number = 0;
    std::int32_t flag = 0;
    const char* text = nullptr;
    const auto expect_named = [](gradsieve_status status, const std::string& argument) {
        EXPECT_EQ(status, GRADSIEVE_INVALID_ARGUMENT) << argument;
        EXPECT_THAT(gradsieve_last_error(), StartsWith(argument + " is NULL"));
    };
    expect_named(gradsieve_job_make(&options_, nullptr), "ret_job");
    expect_named(gradsieve_job_add_tensor(nullptr, "w", nullptr, 0, nullptr, &tensor), "job");
    expect_named(gradsieve_job_add_tensor(job_, "x", nullptr, 1, nullptr, &tensor), "shape");
    expect_named(gradsieve_job_add_tensor(job_, "x", nullptr, 0, nullptr, nullptr), "ret_tensor");
    expect_named(gradsieve_job_start(nullptr, 0), "job");
    expect_named(gradsieve_job_first_step(nullptr, nullptr, &number), "job");
    expect_named(gradsieve_job_first_step(job_, nullptr, nullptr), "ret_step");
    expect_named(gradsieve_job_finish(nullptr, 1, nullptr, 0), "job");
    expect_named(gradsieve_job_broadcast(nullptr, tensor, 0, 0, &values), "job");
    expect_named(gradsieve_job_broadcast(job_, nullptr, 0, 0, &values), "tensor");
    expect_named(gradsieve_job_broadcast(job_, tensor, 0, 0, nullptr), "ret_values");
    expect_named(gradsieve_job_check_equal(nullptr, 0, 0), "job");
    expect_named(gradsieve_job_detach(nullptr, 0), "job");
    expect_named(gradsieve_job_rank(nullptr, &small_number), "job");
    expect_named(gradsieve_job_rank(job_, nullptr), "ret_rank");
    expect_named(gradsieve_job_world_size(nullptr, &small_number), "job");
    expect_named(gradsieve_job_world_size(job_, nullptr), "ret_world_size");
    expect_named(gradsieve_tensor_gradient(nullptr, 0, &slab), "tensor");
    expect_named(gradsieve_tensor_gradient(tensor, 0, nullptr), "ret_values");
    expect_named(gradsieve_tensor_second_moment(nullptr, &slab), "tensor");
    expect_named(gradsieve_tensor_second_moment(tensor, nullptr), "ret_values");
    expect_named(gradsieve_tensor_submit(nullptr, 1, nullptr), "tensor");
    expect_named(gradsieve_tensor_wait(nullptr, 0, &values), "tensor");
    expect_named(gradsieve_tensor_wait(tensor, 0, nullptr), "ret_values");
    expect_named(gradsieve_tensor_is_ready(nullptr, &flag), "tensor");
    expect_named(gradsieve_tensor_is_ready(tensor, nullptr), "ret_is_ready");
    expect_named(gradsieve_tensor_elements(nullptr, &number), "tensor");
    expect_named(gradsieve_tensor_elements(tensor, nullptr), "ret_elements");
    expect_named(gradsieve_tensor_name(nullptr, &text), "tensor");
    expect_named(gradsieve_tensor_name(tensor, nullptr), "ret_name");
    gradsieve_job_free(nullptr);
}
TEST_F(CAbi, Null_names_and_options_are_empty_ones) {
    gradsieve_tensor* tensor = nullptr;
    EXPECT_EQ(gradsieve_job_add_tensor(job_, nullptr, nullptr, 0, nullptr, &tensor), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), HasSubstr("the tensor's name is empty"));
    EXPECT_EQ(tensor, nullptr) << "outputs stay untouched on failure";
    gradsieve_job* job = nullptr;
    EXPECT_EQ(gradsieve_job_make(nullptr, &job), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), HasSubstr("JobOptions.name is empty"));
    EXPECT_EQ(job, nullptr);
    EXPECT_EQ(gradsieve_job_add_tensor(job_, "scalar", nullptr, 0, nullptr, &tensor), GRADSIEVE_OK);
    std::uint64_t elements = 0;
    EXPECT_EQ(gradsieve_tensor_elements(tensor, &elements), GRADSIEVE_OK);
    EXPECT_EQ(elements, 1U);
}
TEST_F(CAbi, Unknown_policy_is_refused) {
    options_.non_finite = 3;
    gradsieve_job* job = nullptr;
    EXPECT_EQ(gradsieve_job_make(&options_, &job), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), AllOf(HasSubstr("non_finite is 3"), HasSubstr("0 (fail)")));
}
TEST_F(CAbi, Struct_that_is_too_small_is_refused) {
    options_.struct_size = 0;
    gradsieve_job* job = nullptr;
    EXPECT_EQ(gradsieve_job_make(&options_, &job), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(),
                AllOf(HasSubstr("gradsieve_job_options.struct_size is 0"), HasSubstr("_INIT macro")));
}
TEST_F(CAbi, Struct_of_a_newer_program_works_while_its_new_fields_are_zero) {
    struct {
        gradsieve_job_options known;
        std::uint64_t from_the_future;
    } options{options_, 0};
    options.known.struct_size = sizeof(options);
    gradsieve_job* job = nullptr;
    EXPECT_EQ(gradsieve_job_make(&options.known, &job), GRADSIEVE_OK) << gradsieve_last_error();
    gradsieve_job_free(job);
    options.from_the_future = 1;
    EXPECT_EQ(gradsieve_job_make(&options.known, &job), GRADSIEVE_VERSION_MISMATCH);
    EXPECT_THAT(gradsieve_last_error(),
                AllOf(HasSubstr("sets the byte at 72"), HasSubstr("install the newer library")));
}
TEST_F(CAbi, Program_of_before_require_requires_nothing) {
    struct {
        gradsieve_job_options known;
    } options{options_};
    options.known.struct_size = 64;
    options.known.require = reinterpret_cast<const char*>(1);  // behind the end of what such a program has
    gradsieve_job* job = nullptr;
    EXPECT_EQ(gradsieve_job_make(&options.known, &job), GRADSIEVE_OK) << gradsieve_last_error();
    gradsieve_job_free(job);
    options_.require = "everything";
    EXPECT_EQ(gradsieve_job_make(&options_, &job), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), HasSubstr("JobOptions.require is 'everything': allowed is 'cuda-ipc'"));
}
TEST_F(CAbi, Errors_of_calls_on_a_running_job_come_with_words) {
    gradsieve_tensor* tensor = add("w");
    float poison = 7;
    float* slab = &poison;
    const float* values = &poison;
    EXPECT_EQ(gradsieve_tensor_gradient(tensor, 0, &slab), GRADSIEVE_FAILED_PRECONDITION);
    EXPECT_THAT(gradsieve_last_error(), HasSubstr("is not started"));
    ASSERT_EQ(gradsieve_job_start(job_, kPatientMs), GRADSIEVE_OK) << gradsieve_last_error();
    EXPECT_EQ(gradsieve_tensor_gradient(tensor, 1, &slab), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), HasSubstr("sample_index is 1"));
    EXPECT_EQ(gradsieve_tensor_second_moment(tensor, &slab), GRADSIEVE_FAILED_PRECONDITION);
    EXPECT_THAT(gradsieve_last_error(), HasSubstr("has_second_moment"));
    EXPECT_EQ(slab, &poison);
    EXPECT_EQ(gradsieve_tensor_submit(tensor, 2, nullptr), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), HasSubstr("allowed is 1"));
    EXPECT_EQ(gradsieve_tensor_wait(tensor, 0, &values), GRADSIEVE_FAILED_PRECONDITION);
    EXPECT_EQ(values, &poison);
    std::uint64_t step = 77;
    EXPECT_EQ(gradsieve_job_first_step(job_, "unknown", &step), GRADSIEVE_NOT_FOUND);
    EXPECT_EQ(step, 77U);
    gradsieve_job* other = nullptr;
    ASSERT_EQ(gradsieve_job_make(&options_, &other), GRADSIEVE_OK);
    EXPECT_EQ(gradsieve_job_broadcast(other, tensor, 0, 0, &values), GRADSIEVE_INVALID_ARGUMENT);
    EXPECT_THAT(gradsieve_last_error(), HasSubstr("'w' is not of this job"));
    gradsieve_job_free(other);
}
TEST_F(CAbi, Last_error_belongs_to_the_thread) {
    EXPECT_EQ(gradsieve_job_start(nullptr, 0), GRADSIEVE_INVALID_ARGUMENT);
    std::thread other([] { EXPECT_STREQ(gradsieve_last_error(), ""); });
    other.join();
    EXPECT_THAT(gradsieve_last_error(), HasSubstr("job is NULL"));
}
TEST_F(CAbi, Endless_and_negative_timeouts_do_not_overflow) {
    add("w");
    EXPECT_EQ(gradsieve_job_start(job_, INT64_MAX), GRADSIEVE_OK) << gradsieve_last_error();
    EXPECT_EQ(gradsieve_job_finish(job_, 1, "", INT64_MIN), GRADSIEVE_TIMEOUT);
}
TEST_F(CAbi, Forked_child_may_free_and_is_told_the_rest) {
    gradsieve_tensor* tensor = add("w");
    ASSERT_EQ(gradsieve_job_start(job_, kPatientMs), GRADSIEVE_OK);
    const auto code = exit_code_of_child([&] {
        if (gradsieve_tensor_submit(tensor, 1, nullptr) != GRADSIEVE_FAILED_PRECONDITION) return 1;
        if (std::string(gradsieve_last_error()).find("forked") == std::string::npos) return 2;
        gradsieve_job_free(job_);
        return 7;
    });
    EXPECT_EQ(code, 7);
    EXPECT_EQ(gradsieve_tensor_submit(tensor, 1, nullptr), GRADSIEVE_OK);
}

}  // namespace
}  // namespace gradsieve::client::test
