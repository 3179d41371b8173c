#include "shm/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace gradsieve::shm {

void futex_wait(std::uint32_t* word, std::uint32_t seen, TimePoint deadline) noexcept {
    const auto since_boot = std::max(deadline.time_since_epoch(), Duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
    const timespec until{seconds.count(), (since_boot - seconds).count()};
    // FUTEX_WAIT_BITSET, because its time is absolute on CLOCK_MONOTONIC: an interrupted wait does not start anew.
    ::syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futex_wake_all(std::uint32_t* word) noexcept {
    ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace gradsieve::shm
