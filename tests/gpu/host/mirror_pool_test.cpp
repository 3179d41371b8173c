// Blocks of host memory for payloads, on whatever card there is: the emulated one, or one that a driver shows.
#include "codec/cuda/mirror_pool.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace gradsieve::codec::cuda {
namespace {

class MirrorPoolTest : public ::testing::Test {
protected:
    void SetUp() override {
        if (const auto block = pool_->take(1); !block.is_ok()) GTEST_SKIP() << block.status().to_string();
    }
    std::shared_ptr<HostMirror> take(ByteCount bytes) {
        auto block = pool_->take(bytes);
        EXPECT_TRUE(block.is_ok()) << block.status().to_string();
        return block.is_ok() ? *block : nullptr;
    }
    std::unique_ptr<MirrorPool> pool_ = std::make_unique<MirrorPool>();
};

TEST_F(MirrorPoolTest, A_block_comes_back_with_its_last_owner) {
    auto first = take(3'000'000);
    ASSERT_GE(first->size(), 3'000'000U);
    std::memset(first->data(), 0xEE, first->size());  // the address sanitizer watches
    const std::byte* const memory = first->data();
    const auto second_owner = first;
    first.reset();
    EXPECT_NE(take(3'000'000)->data(), memory) << "somebody still reads it";
}
TEST_F(MirrorPoolTest, An_idle_block_is_used_again_if_it_is_large_enough) {
    auto block = take(3'000'000);
    const std::byte* const memory = block->data();
    const auto bytes = pool_->bytes();
    block.reset();
    block = take(1'000'000);
    EXPECT_EQ(block->data(), memory);
    EXPECT_EQ(pool_->bytes(), bytes);
}
TEST_F(MirrorPoolTest, Idle_blocks_that_are_too_small_make_room) {
    take(1'000'000).reset();
    take(9'000'000).reset();
    EXPECT_LT(pool_->bytes(), 10'500'000U);
}
TEST_F(MirrorPoolTest, It_knows_what_lies_in_its_blocks) {
    const auto block = take(1'000'000);
    EXPECT_TRUE(pool_->holds(block->data() + 10, 20));
    EXPECT_TRUE(pool_->holds(block->data(), block->size()));
    EXPECT_FALSE(pool_->holds(block->data() + 10, block->size())) << "ends behind it";
    EXPECT_FALSE(pool_->holds(block->data() - 1, 2));
    const std::byte elsewhere{};
    EXPECT_FALSE(pool_->holds(&elsewhere, 1));
}
TEST_F(MirrorPoolTest, Blocks_outlive_the_pool_and_go_on_any_thread) {
    auto block = take(1'000'000);
    pool_.reset();
    std::memset(block->data(), 0x11, block->size());
    std::thread([given = std::move(block)]() mutable {
        EXPECT_EQ(given->data()[999'999], std::byte{0x11});
        given.reset();
    }).join();
}

}  // namespace
}  // namespace gradsieve::codec::cuda
