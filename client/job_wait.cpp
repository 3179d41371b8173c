// How threads wait for the daemon: each sleeps on the ring's bell without the lock; whoever wakes first takes
// everything in under the lock, for all. The ticket tells a thread that slept past somebody else's taking in. No sleep
// is longer than kSleepSlice, because a daemon that died rings no bell. See job_core.hpp.
#include "client/job_core.hpp"
#include "client/unlocked.hpp"

namespace gradsieve::client {

TimePoint deadline_after(Timeout timeout) noexcept {
    constexpr Timeout kVeryLong = std::chrono::hours(24 * 3650);
    return std::chrono::steady_clock::now() + std::clamp(timeout, Timeout::zero(), kVeryLong);
}

void JobCore::sleep_once(Lock& lock, std::uint32_t ticket, TimePoint until) {
    if (!ledger_) return;
    const auto attachment = attachment_;  // keeps the memory mapped if another thread drops the attempt meanwhile
    const bool has_completion = [&] {
        const Unlocked unlocked(lock);
        return attachment->session().wait_for_completion(until, ticket);
    }();
    const TimePoint now = std::chrono::steady_clock::now();
    if (!has_completion && now >= until && attachment == attachment_) look_for_daemon(now);
}

void JobCore::drain() {
    if (!ledger_) return;
    shm::Completion completion;
    while (!ledger_->has_ended() && attachment_->session().try_pop(completion)) ledger_->on_completion(completion);
}

void JobCore::look_for_daemon(TimePoint now) {
    if (!ledger_ || ledger_->has_ended()) return;
    daemon_seen_ = now;
    const auto status = attachment_->check_daemon();
    if (status.is_ok()) return;
    drain();  // its last words explain more than its silence
    ledger_->end(status.with_context(options_.label()));
}

Status JobCore::timeout_status(const std::string& waited_for, Timeout timeout) const {
    const auto daemon = attachment_ ? attachment_->describe_daemon() : "gradsieved did not take the connection";
    return {StatusCode::kTimeout, options_.label() + ": waited " +
                                      std::to_string(std::max<Timeout::rep>(timeout.count(), 0)) + " ms for " +
                                      waited_for + ": allowed is the timeout given, and nothing is lost; " + daemon +
                                      "; `gradsieve status` names who is late; call again"};
}

}  // namespace gradsieve::client
