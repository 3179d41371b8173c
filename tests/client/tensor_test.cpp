// The Tensor handle itself, against client/tensor.cpp.
#include "job_fixture.hpp"

#include <gmock/gmock.h>

#include <optional>

namespace gradsieve::client::test {
namespace {

TEST(Tensor, Knows_its_name_and_size_before_start) {
    FakeDaemon daemon;
    auto job = make_job(daemon);
    const auto matrix = job.add_tensor("layer.weight", {3, 5}).value();
    EXPECT_EQ(matrix.name(), "layer.weight");
    EXPECT_EQ(matrix.elements(), 15U);
    EXPECT_EQ(job.add_tensor("scalar", {}).value().elements(), 1U);
    EXPECT_EQ(job.add_tensor("empty", {4, 0}).value().elements(), 0U);
}
TEST(Tensor, Without_elements_steps_like_any_other) {
    FakeDaemon daemon;
    auto job = make_job(daemon);
    auto empty = job.add_tensor("empty", {0}).value();
    ASSERT_TRUE(job.start(kPatient).is_ok());
    EXPECT_TRUE(empty.gradient().empty());
    ASSERT_TRUE(empty.submit(1).is_ok());
    EXPECT_TRUE(values_of(empty.wait(kPatient)).empty());
}
TEST(Tensor, Copies_are_the_same_tensor) {
    FakeDaemon daemon;
    StartedJob started(daemon);
    Tensor copy = started.tensor();
    fill(copy, 2);
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    EXPECT_EQ(values_of(copy.wait(kPatient)), four_of(2));
}
TEST(Tensor, Outlives_its_job_with_memory_and_words) {
    FakeDaemon daemon;
    std::optional<StartedJob> started(std::in_place, daemon);
    Tensor tensor = started->tensor();
    const auto gradient = tensor.gradient();
    started.reset();
    gradient[0] = 1;
    EXPECT_EQ(tensor.submit(1).code(), StatusCode::kCancelled);
}
TEST(Tensor, Moved_from_says_so) {
    FakeDaemon daemon;
    StartedJob started(daemon);
    Tensor moved = std::move(started.tensor());
    auto& hollow = started.tensor();
    EXPECT_EQ(hollow.submit(1).code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(hollow.wait(kPatient).status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(started.job.broadcast(hollow, 0, kPatient).status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(hollow.gradient().empty());
    EXPECT_TRUE(hollow.name().empty());
    EXPECT_TRUE(moved.submit(1).is_ok());
}

}  // namespace
}  // namespace gradsieve::client::test
