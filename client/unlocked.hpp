// Lets other threads into what a lock guards for a scope, in the middle of a call that holds it: for waits and copies,
// after which the caller looks again. The lock is held again when the scope ends, by an exception too.
#pragma once

#include <mutex>

namespace gradsieve::client {

class Unlocked {
public:
    explicit Unlocked(std::unique_lock<std::mutex>& lock) : lock_(lock) { lock_.unlock(); }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
    ~Unlocked() { lock_.lock(); }

private:
    std::unique_lock<std::mutex>& lock_;
};

}  // namespace gradsieve::client
