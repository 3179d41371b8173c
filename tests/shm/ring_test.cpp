#include "shm/ring.hpp"

#include "tests/shm/shm_test_support.hpp"

#include <array>
#include <cstring>
#include <random>
#include <thread>

namespace gradsieve::shm {
namespace {

constexpr std::uint32_t kCapacity = 4;
constexpr std::uint32_t kCellBytes = 64;
constexpr RingPlace kPlace{0, 64, 128, kCellBytes, kCapacity};
using Cell = std::array<std::byte, kCellBytes>;

Cell cell_of(std::uint64_t value) {
    Cell cell;
    cell.fill(std::byte(value));
    std::memcpy(cell.data(), &value, sizeof(value));
    return cell;
}
std::uint64_t value_of(const Cell& cell) {
    std::uint64_t value = 0;
    std::memcpy(&value, cell.data(), sizeof(value));
    return value;
}

class Ring : public testing::Test {
protected:
    Ring() : memory_(kPlace.cells + kCapacity * kCellBytes), producer_(bytes(), kPlace), consumer_(bytes(), kPlace) {}
    std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(memory_)).first(memory_.size()); }
    SharedWord64 head() { return shared_word64(bytes(), kPlace.head_word); }
    SharedWord64 tail() { return shared_word64(bytes(), kPlace.tail_word); }

    std::vector<std::uint64_t> memory_;  // aligned for the words; eight times larger than needed
    RingProducer producer_;
    RingConsumer consumer_;
    Cell poisoned_ = cell_of(0xDEAD);
};

TEST_F(Ring, Empty_try_pop_says_would_block_and_leaves_the_output_alone) {
    EXPECT_EQ(consumer_.try_pop(poisoned_), RingAnswer::kWouldBlock);
    EXPECT_EQ(value_of(poisoned_), 0xDEADU);
    EXPECT_FALSE(consumer_.has_cell());
}

TEST_F(Ring, Full_try_push_says_would_block_until_one_is_popped) {
    for (std::uint64_t value = 0; value < kCapacity; ++value) {
        ASSERT_EQ(producer_.try_push(cell_of(value)), RingAnswer::kDone);
    }
    EXPECT_EQ(producer_.try_push(cell_of(99)), RingAnswer::kWouldBlock);
    Cell cell;
    ASSERT_EQ(consumer_.try_pop(cell), RingAnswer::kDone);
    EXPECT_EQ(value_of(cell), 0U);
    EXPECT_EQ(producer_.try_push(cell_of(4)), RingAnswer::kDone);
    EXPECT_EQ(producer_.try_push(cell_of(99)), RingAnswer::kWouldBlock);
}

TEST_F(Ring, Cells_come_out_in_order_over_many_wraps_whatever_the_fill) {
    std::mt19937 random(20240917);
    std::uint64_t pushed = 0;
    std::uint64_t popped = 0;
    Cell cell;
    for (int turn = 0; turn < 10'000; ++turn) {
        if (random() % 2 == 0) {
            const auto answer = producer_.try_push(cell_of(pushed));
            ASSERT_EQ(answer, pushed - popped == kCapacity ? RingAnswer::kWouldBlock : RingAnswer::kDone);
            if (answer == RingAnswer::kDone) ++pushed;
        } else {
            const auto answer = consumer_.try_pop(cell);
            ASSERT_EQ(answer, pushed == popped ? RingAnswer::kWouldBlock : RingAnswer::kDone);
            if (answer != RingAnswer::kDone) continue;
            ASSERT_EQ(cell, cell_of(popped));
            ++popped;
        }
        ASSERT_EQ(consumer_.has_cell(), pushed != popped);
    }
}

TEST_F(Ring, Head_further_than_the_capacity_is_corrupt_and_pops_nothing) {
    for (const std::uint64_t hostile : {std::uint64_t{kCapacity + 1}, UINT64_MAX, std::uint64_t{1} << 63U}) {
        head().store(hostile, std::memory_order_relaxed);
        EXPECT_TRUE(consumer_.has_cell()) << "somebody has to look and find out";
        EXPECT_EQ(consumer_.try_pop(poisoned_), RingAnswer::kCorrupt) << hostile;
        EXPECT_EQ(value_of(poisoned_), 0xDEADU);
    }
    head().store(kCapacity, std::memory_order_relaxed);
    EXPECT_EQ(consumer_.try_pop(poisoned_), RingAnswer::kDone) << "the boundary itself is legal";
}

TEST_F(Ring, Head_that_goes_back_is_corrupt) {
    Cell cell;
    ASSERT_EQ(producer_.try_push(cell_of(1)), RingAnswer::kDone);
    ASSERT_EQ(consumer_.try_pop(cell), RingAnswer::kDone);
    head().store(0, std::memory_order_relaxed);
    EXPECT_EQ(consumer_.try_pop(cell), RingAnswer::kCorrupt);
}

TEST_F(Ring, Tail_that_makes_no_sense_is_corrupt_for_the_producer) {
    for (std::uint64_t value = 0; value < kCapacity; ++value) {
        ASSERT_EQ(producer_.try_push(cell_of(value)), RingAnswer::kDone);
    }
    for (const std::uint64_t hostile : {std::uint64_t{kCapacity + 1}, UINT64_MAX}) {
        tail().store(hostile, std::memory_order_relaxed);
        EXPECT_EQ(producer_.try_push(cell_of(9)), RingAnswer::kCorrupt) << hostile;
    }
}

TEST_F(Ring, Own_index_overwritten_by_the_other_side_changes_nothing) {
    ASSERT_EQ(producer_.try_push(cell_of(1)), RingAnswer::kDone);
    head().store(77, std::memory_order_relaxed);  // hostile consumer writes the producer's word
    ASSERT_EQ(producer_.try_push(cell_of(2)), RingAnswer::kDone);
    EXPECT_EQ(head().load(std::memory_order_relaxed), 2U);
    tail().store(55, std::memory_order_relaxed);  // hostile producer writes the consumer's word
    Cell cell;
    ASSERT_EQ(consumer_.try_pop(cell), RingAnswer::kDone);
    EXPECT_EQ(value_of(cell), 1U);
    EXPECT_EQ(tail().load(std::memory_order_relaxed), 1U);
}

TEST_F(Ring, Two_threads_pass_every_cell_once_in_order_and_whole) {
    constexpr std::uint64_t kCells = 5000;  // wraps 1,250 times; each may cost a switch on a busy machine
    std::atomic<bool> is_over{false};
    std::thread pusher([&] {
        for (std::uint64_t value = 0; value < kCells && !is_over.load(std::memory_order_relaxed);) {
            if (producer_.try_push(cell_of(value)) == RingAnswer::kDone) {
                ++value;
            } else {
                std::this_thread::yield();
            }
        }
    });
    std::uint64_t expected = 0;
    Cell cell;
    for (const auto deadline = soon(); expected < kCells && std::chrono::steady_clock::now() < deadline;) {
        if (consumer_.try_pop(cell) != RingAnswer::kDone) {
            std::this_thread::yield();
            continue;
        }
        if (cell != cell_of(expected)) break;
        ++expected;
    }
    is_over.store(true, std::memory_order_relaxed);
    pusher.join();
    EXPECT_EQ(expected, kCells);
}

}  // namespace
}  // namespace gradsieve::shm
