// Wakes a thread that sleeps in epoll or poll, only if it announced that it sleeps: most wakes cost one atomic
// exchange. Any thread rings; one thread sleeps. Owns nothing but its flag.
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
        // Read-modify-writes of one word stand in one order. Ours after the sleeper's: we see the announcement. Before
        // it: the sleeper's acquire reads from our release, so it sees the work when it looks.
        if (!is_asleep_.exchange(false, std::memory_order_acq_rel)) return;  // pairs with announce_sleep
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(event_fd_, &one, sizeof(one));
    }
    /// The sleeper, before it looks for work one last time.
    void announce_sleep() noexcept {
        is_asleep_.exchange(true, std::memory_order_acq_rel);  // pairs with ring
    }
    void announce_awake() noexcept {
        // An exchange here too: a plain store would stand between a ring and the next announcement and cut the order.
        is_asleep_.exchange(false, std::memory_order_acq_rel);
    }

private:
    int event_fd_;
    std::atomic<bool> is_asleep_{false};
};

}  // namespace gradsieve::daemon
