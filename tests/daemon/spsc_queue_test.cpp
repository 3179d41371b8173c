#include "daemon/spsc_queue.hpp"

#include <gtest/gtest.h>
#include <memory>
#include <thread>

namespace gradsieve::daemon {
namespace {

TEST(SpscQueue, Full_try_push_says_so_and_leaves_the_value) {
    SpscQueue<std::unique_ptr<int>> queue(2);
    for (int value = 0; value < 2; ++value) {
        auto item = std::make_unique<int>(value);
        EXPECT_TRUE(queue.try_push(item));
        EXPECT_EQ(item, nullptr);
    }
    auto third = std::make_unique<int>(2);
    EXPECT_FALSE(queue.try_push(third));
    EXPECT_NE(third, nullptr);
    EXPECT_EQ(queue.depth(), 2U);
}
TEST(SpscQueue, Empty_try_pop_gives_nothing) {
    SpscQueue<int> queue(4);
    EXPECT_FALSE(queue.try_pop());
    EXPECT_TRUE(queue.is_empty());
}
TEST(SpscQueue, Popped_cell_drops_what_it_held) {
    SpscQueue<std::shared_ptr<int>> queue(4);
    auto value = std::make_shared<int>(1);
    const std::weak_ptr<int> watch = value;
    ASSERT_TRUE(queue.try_push(value));
    static_cast<void>(queue.try_pop());
    EXPECT_TRUE(watch.expired());
}
TEST(SpscQueue, Two_threads_pass_every_value_in_order) {
    constexpr int kValues = 20'000;
    SpscQueue<int> queue(64);
    std::thread producer([&] {
        for (int value = 0; value < kValues;) {
            int copy = value;
            if (queue.try_push(copy))
                ++value;
            else
                std::this_thread::yield();
        }
    });
    for (int expected = 0; expected < kValues;) {
        const auto value = queue.try_pop();
        if (!value) {
            std::this_thread::yield();
            continue;
        }
        ASSERT_EQ(*value, expected);
        ++expected;
    }
    producer.join();
    EXPECT_TRUE(queue.is_empty());
}

}  // namespace
}  // namespace gradsieve::daemon
