#include "daemon/codec_pool.hpp"

#include "shm/doorbell.hpp"

#include <gtest/gtest.h>
#include <poll.h>

namespace gradsieve::daemon {
namespace {

TEST(CodecPool, Every_task_comes_back_and_the_conductor_is_woken) {
    constexpr std::size_t kTasks = 10'000;  // more than the queues hold at once
    constexpr ElementCount kElements = 500;
    auto bell = shm::Doorbell::make();
    ASSERT_TRUE(bell.is_ok());
    WakeFlag wake(bell->fd());
    CodecPool pool(2, wake);
    const std::vector<float> sample(kElements, 1.0F);
    HostedTensor tensor;
    tensor.elements = kElements;
    tensor.pipeline = *codec::parse_pipeline("all | f32");
    for (std::size_t number = 0; number < kTasks; ++number) {
        auto task = std::make_unique<CodecTask>();
        task->tensor = &tensor;
        task->step = number;
        task->samples = {sample.data()};
        task->weights = {1.0F};
        task->request.pipeline = &tensor.pipeline;
        task->request.elements = kElements;
        task->request.samples = task->samples;
        task->request.weights = task->weights;
        pool.give(std::move(task));
    }
    std::vector<bool> has_come(kTasks, false);
    std::size_t come = 0;
    while (come < kTasks) {
        wake.announce_sleep();
        if (!pool.has_done()) {
            struct pollfd entry {
                bell->fd(), POLLIN, 0
            };
            ASSERT_EQ(::poll(&entry, 1, 20'000), 1) << "nobody woke the conductor";
        }
        wake.announce_awake();
        bell->drain();
        for (const auto& task : pool.take_done()) {
            EXPECT_TRUE(task->encoded->is_ok());
            EXPECT_FALSE(has_come[task->step]);
            has_come[task->step] = true;
            ++come;
        }
    }
    EXPECT_EQ(pool.queue_depth(), 0U);
}
TEST(CodecPool, Destruction_with_tasks_waiting_does_not_hang) {
    auto bell = shm::Doorbell::make();
    ASSERT_TRUE(bell.is_ok());
    WakeFlag wake(bell->fd());
    const CodecPool pool(1, wake);
}

}  // namespace
}  // namespace gradsieve::daemon
