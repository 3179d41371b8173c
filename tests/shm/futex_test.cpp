#include "shm/futex.hpp"

#include "shm/segment.hpp"
#include "shm/shared_word.hpp"
#include "tests/shm/shm_test_support.hpp"

#include <time.h>

namespace gradsieve::shm {
namespace {

TEST(Futex, Wait_returns_at_once_if_the_word_has_changed_or_the_deadline_has_passed) {
    std::uint32_t word = 5;
    futex_wait(&word, 4, TimePoint::max());
    futex_wait(&word, 5, past());
    futex_wait(&word, 5, TimePoint::min());
    SUCCEED() << "it came back";
}

TEST(Futex, Deadline_is_absolute_monotonic_time) {
    std::uint32_t word = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(15);
    while (std::chrono::steady_clock::now() < deadline) futex_wait(&word, 0, deadline);
    EXPECT_GE(std::chrono::steady_clock::now(), deadline);
}

TEST(Futex, Other_process_wakes_a_waiter_through_another_mapping_of_the_segment) {
    auto segment = Segment::make("test", 4096, Sharing::kPeerWrites).value();
    Child child([&] {
        auto own = Segment::adopt(duplicate(segment.fd()), 4096, Access::kReadWrite, true);
        if (!own.is_ok()) return 1;
        // Pairs with the loads below.
        shared_word32(own->bytes(), 64).store(1, std::memory_order_release);
        futex_wake_all(word_address<std::uint32_t>(own->bytes(), 64));
        return 0;
    });
    const auto deadline = soon();
    auto word = shared_word32(segment.bytes(), 64);
    while (word.load(std::memory_order_acquire) == 0 && std::chrono::steady_clock::now() < deadline) {
        futex_wait(word_address<std::uint32_t>(segment.bytes(), 64), 0, deadline);
    }
    EXPECT_EQ(word.load(std::memory_order_acquire), 1U);
    EXPECT_LT(std::chrono::steady_clock::now(), deadline);
    EXPECT_EQ(child.wait_exit(), 0);
}

}  // namespace
}  // namespace gradsieve::shm
