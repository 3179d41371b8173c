#include "base/byte_pool.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <thread>
#include <vector>

namespace gradsieve {
namespace {

TEST(BytePool, A_payload_has_its_size_its_alignment_and_slack) {
    const BytePool pool;
    for (const std::size_t size : {1U, 7U, 63U, 64U, 255U, 256U, 257U, 4096U, 1000000U})
        for (const std::size_t aligned_at : {0U, 2U, 10U, 64U, 1026U}) {
            PooledBytes payload = pool.take(size, aligned_at);
            ASSERT_EQ(payload.size(), size);
            EXPECT_FALSE(payload.empty());
            EXPECT_EQ((reinterpret_cast<std::uintptr_t>(payload.data()) + aligned_at) % 64, 0U);
            std::memset(payload.data(), 0xEE, size + BytePool::kSlackBytes);  // the address sanitizer watches
        }
}
TEST(BytePool, Memory_comes_back_and_is_used_again) {
    const BytePool pool;
    PooledBytes first = pool.take(100000);
    const std::byte* memory = first.data();
    EXPECT_EQ(pool.idle_bytes(), 0U);
    first = {};
    EXPECT_GE(pool.idle_bytes(), 100000U);
    EXPECT_LT(pool.idle_bytes(), 130000U) << "four sizes to an octave";
    EXPECT_EQ(pool.take(99000).data(), memory) << "a step's payload is seldom exactly as long as the last one's";
    EXPECT_EQ(pool.take(60000).data(), memory) << "a little too large is better than fresh";
    EXPECT_NE(pool.take(20000).data(), memory) << "much too large is waste";
}
TEST(BytePool, Payloads_in_use_never_share_memory) {
    const BytePool pool;
    std::vector<PooledBytes> payloads;
    for (int round = 0; round < 3; ++round) {
        for (std::uint8_t number = 0; number < 40; ++number) {
            payloads.push_back(pool.take(1000U + number * 100U));
            std::memset(payloads.back().data(), number, payloads.back().size());
        }
        for (std::uint8_t number = 0; number < 40; ++number)
            for (const std::byte byte : payloads[number].view()) ASSERT_EQ(byte, std::byte{number});
        payloads.clear();
    }
}
TEST(BytePool, What_lies_idle_for_long_is_freed_and_what_is_used_is_kept) {
    const BytePool pool;
    {
        std::vector<PooledBytes> burst;
        for (int payload = 0; payload < 10; ++payload) burst.push_back(pool.take(1 << 20U));
    }
    EXPECT_GE(pool.idle_bytes(), 10U << 20U);
    for (int step = 0; step < 2000; ++step) static_cast<void>(pool.take(1 << 20U));
    EXPECT_GE(pool.idle_bytes(), 1U << 20U);
    EXPECT_LT(pool.idle_bytes(), 3U << 20U);
}
TEST(BytePool, Payloads_may_outlive_their_pool) {
    std::optional<BytePool> pool;
    pool.emplace();
    PooledBytes payload = pool->take(1000);
    SharedView shared = share(pool->take(500));
    pool.reset();
    std::memset(payload.data(), 1, payload.size());
    EXPECT_EQ(shared.bytes().size(), 500U);
    const SharedView part = shared.part(10, 20);
    shared = {};
    EXPECT_EQ(part.bytes().size(), 20U);
}
TEST(BytePool, A_moved_payload_is_empty_and_gives_nothing_back) {
    const BytePool pool;
    PooledBytes first = pool.take(1000);
    const std::byte* memory = first.data();
    PooledBytes second = std::move(first);
    EXPECT_TRUE(first.empty());  // NOLINT: the state after a move is promised
    EXPECT_EQ(second.data(), memory);
    first = {};
    EXPECT_EQ(pool.idle_bytes(), 0U);
    PooledBytes third = pool.take(1000);
    second = std::move(third);
    EXPECT_GT(pool.idle_bytes(), 0U) << "what the target held before went back";
}
TEST(BytePool, Another_thread_may_give_back_while_this_one_takes) {
    const BytePool pool;
    for (int round = 0; round < 20; ++round) {
        std::vector<SharedView> sent;
        for (int payload = 0; payload < 50; ++payload) {
            PooledBytes bytes = pool.take(5000);
            std::memset(bytes.data(), payload, bytes.size());
            sent.push_back(share(std::move(bytes)));
        }
        std::thread sender([views = std::move(sent)]() mutable {
            for (std::size_t payload = 0; payload < views.size(); ++payload) {
                EXPECT_EQ(views[payload].bytes()[4999], static_cast<std::byte>(payload));
                views[payload] = {};
            }
        });
        for (int payload = 0; payload < 50; ++payload) {
            PooledBytes bytes = pool.take(5000);
            std::memset(bytes.data(), 0xEE, bytes.size());
        }
        sender.join();
    }
}
TEST(BytePool, Payloads_compare_by_their_bytes) {
    const BytePool pool;
    PooledBytes left = pool.take(3);
    PooledBytes right = pool.take(3, 2);
    std::memset(left.data(), 1, 3);
    std::memset(right.data(), 1, 3);
    EXPECT_TRUE(left == right);
    right.data()[2] = std::byte{2};
    EXPECT_FALSE(left == right);
    EXPECT_FALSE(left == pool.take(2));
}

TEST(BytePool, Parts_of_a_block_keep_it_until_the_last_of_them_goes) {
    auto block = std::make_shared<std::vector<std::byte>>(100, std::byte{7});
    const std::weak_ptr<std::vector<std::byte>> watched = block;
    PooledBytes first = PooledBytes::part_of(block, block->data() + 10, 20);
    SharedView second = share(PooledBytes::part_of(block, block->data() + 30, 40));
    block.reset();
    EXPECT_EQ(first.size(), 20U);
    EXPECT_EQ(second.bytes()[39], std::byte{7});
    PooledBytes moved = std::move(first);
    EXPECT_TRUE(first.empty());
    moved = {};
    EXPECT_FALSE(watched.expired()) << "the other part still needs it";
    second = {};
    EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace gradsieve
