// Sleeping on a word in shared memory until another process changes it. Shared futexes, because libstdc++'s
// atomic::wait is private to a process; always with a deadline. Any thread.
#pragma once

#include "base/clock.hpp"

#include <cstdint>

namespace gradsieve::shm {

/// Sleeps while `*word` equals `seen`, at most until `deadline`. May return early: look again.
void futex_wait(std::uint32_t* word, std::uint32_t seen, TimePoint deadline) noexcept;

/// Wakes everybody who sleeps on `word`, in all processes.
void futex_wake_all(std::uint32_t* word) noexcept;

}  // namespace gradsieve::shm
