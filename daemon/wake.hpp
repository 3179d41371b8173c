// Wakes a thread that sleeps in epoll or poll, only if it announced that it sleeps: most wakes cost one atomic load.
// Any thread rings; one thread sleeps. Owns nothing but its flag.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>
#include <atomic>
#include <cstdint>

namespace gradsieve::daemon {

class WakeFlag {
public:
    /// `event_fd` is an eventfd that outlives this object.
    explicit WakeFlag(int event_fd) : event_fd_(event_fd) {}

    /// After putting work where the sleeper looks for it.
    void ring() noexcept {
        // seq_cst on both sides: either the sleeper sees the work after announcing, or we see the announcement
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (!is_asleep_.load(std::memory_order_relaxed)) return;
        is_asleep_.store(false, std::memory_order_relaxed);
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(event_fd_, &one, sizeof(one));
    }
    /// The sleeper, before it looks for work one last time.
    void announce_sleep() noexcept {
        is_asleep_.store(true, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    void announce_awake() noexcept { is_asleep_.store(false, std::memory_order_relaxed); }

private:
    int event_fd_;
    std::atomic<bool> is_asleep_{false};
};

}  // namespace gradsieve::daemon
