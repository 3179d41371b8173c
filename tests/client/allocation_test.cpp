// The gradient's path allocates nothing in the training thread. A program of its own, because it replaces operator new.
#include "device_fixture.hpp"
#include "environment.hpp"
#include "job_fixture.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local std::size_t allocations_of_this_thread = 0;

void* allocate(std::size_t bytes) {
    ++allocations_of_this_thread;
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    throw std::bad_alloc();
}

}  // namespace

// Replaced together, new and delete do match; GCC 12 looks at one of them after inlining and does not see that.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace gradsieve::client::test {
namespace {

TEST(Allocation, Counter_counts) {
    const auto before = allocations_of_this_thread;
    const std::vector<int> something(1000);
    EXPECT_GT(allocations_of_this_thread, before) << something.size();
}
TEST(Allocation, A_step_allocates_nothing) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"a", "b"}, {.samples_max = 2});
    const std::uint32_t samples[] = {8, 8};
    const std::vector<float> parameters(4);
    std::size_t failures = 0;
    const auto before = allocations_of_this_thread;
    for (Step step = 1; step <= 50; ++step) {
        for (auto& tensor : started.tensors) {
            tensor.gradient(1)[0] = static_cast<float>(step);
            if (!tensor.submit(step, {.sample_count = 2, .samples = samples, .scale = 2}).is_ok()) ++failures;
        }
        for (auto& tensor : started.tensors)
            if (!tensor.wait(kPatient).is_ok() || !tensor.is_ready()) ++failures;
        if (!started.job.finish(step, kPatient).is_ok()) ++failures;
        if (!started.job.check_parameters(step, parameters, kPatient).is_ok()) ++failures;
    }
    EXPECT_EQ(allocations_of_this_thread - before, 0U);
    EXPECT_EQ(failures, 0U);
}

TEST(Allocation, A_step_of_a_tensor_on_a_device_allocates_nothing) {
    const FakeMemory memory;
    Environment environment;
    environment.set("GRADSIEVE_CUDA_DRIVER", FakeCuda::path());
    FakeDaemon daemon;
    StartedJob started(daemon, {"w"}, {.samples_max = 1, .has_second_moment = false, .group = "", .on_device = true});
    const DeviceBuffer buffer{.pointer = pointer_to(FakeMemory::kLegacy), .elements = 4};
    ASSERT_TRUE(started.tensor().bind_device(buffer, kPatient).is_ok());
    FakeCuda::get().keep_quiet();
    std::size_t failures = 0;
    const auto before = allocations_of_this_thread;
    for (Step step = 1; step <= 50; ++step)
        if (!started.tensor().submit(step).is_ok() || !started.tensor().wait(kPatient).is_ok()) ++failures;
    EXPECT_EQ(allocations_of_this_thread - before, 0U);
    EXPECT_EQ(failures, 0U);
}
TEST(Allocation, A_step_of_a_staged_tensor_allocates_nothing) {
    const FakeMemory memory;
    Environment environment;
    environment.set("GRADSIEVE_CUDA_DRIVER", FakeCuda::path());
    environment.set("GRADSIEVE_REQUIRE", std::nullopt);
    FakeDaemon daemon;
    auto job = make_job(daemon);
    auto tensor =
        job.add_tensor("w", {4}, {.samples_max = 1, .has_second_moment = false, .group = "", .on_device = true})
            .value();
    const DeviceBuffer buffer{.pointer = pointer_to(FakeMemory::kPool),
                              .elements = 4,
                              .type = ElementType::kBf16,
                              .stream = FakeCuda::stream_of(0)};
    ASSERT_TRUE(tensor.bind_device(buffer, kPatient).is_ok());
    ASSERT_TRUE(job.start(kPatient).is_ok());
    ASSERT_TRUE(tensor.is_staged());
    FakeCuda::get().keep_quiet();
    std::size_t failures = 0;
    const auto before = allocations_of_this_thread;
    for (Step step = 1; step <= 50; ++step)
        if (!tensor.submit(step).is_ok() || !tensor.wait(kPatient).is_ok()) ++failures;
    EXPECT_EQ(allocations_of_this_thread - before, 0U);
    EXPECT_EQ(failures, 0U);
}

}  // namespace
}  // namespace gradsieve::client::test
