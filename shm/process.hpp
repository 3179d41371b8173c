// What /proc says about a process: enough to tell it from a later one with the same number. Any thread; keeps nothing.
#pragma once

#include "base/status.hpp"

#include <sys/types.h>
#include <cstdint>

namespace gradsieve::shm {

enum class ProcessPresence : std::uint8_t {
    kRunning,  ///< exists (may be stopped)
    kGone,     ///< does not exist, or only waits to be reaped
    kHidden,   ///< exists, but /proc does not show it to this user
};
struct ProcessSight {
    ProcessPresence presence = ProcessPresence::kGone;
    std::uint64_t start_ticks = 0;  ///< field 22 of /proc/PID/stat: clock ticks since boot; 0 unless kRunning
};
[[nodiscard]] ProcessSight look_at_process(pid_t pid);

/// A hash of /proc/sys/kernel/random/boot_id: another value means that the machine was booted since.
[[nodiscard]] std::uint64_t boot_hash();

/// The inode of this process's PID namespace: process ids of another one mean nothing here. 0 if unreadable.
[[nodiscard]] std::uint64_t pid_namespace();

}  // namespace gradsieve::shm
