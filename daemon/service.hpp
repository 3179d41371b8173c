// What the daemon says to a service manager: ready, reloading, stopping, alive; and the listening socket it may have
// been handed; and the descriptors that it keeps for the next process. Every call does nothing when started by hand.
// Main thread, but for parking.
#pragma once

#include "base/clock.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gradsieve::daemon {

/// A descriptor that an earlier process of this service had the manager keep.
struct HandedDescriptor {
    std::string name;
    UniqueFd fd;
};
struct HandedDescriptors {
    std::optional<UniqueFd> listener;  ///< from the socket unit
    std::vector<HandedDescriptor> kept;
};
/// What the service manager handed to this process, taken once. Anything else that it handed over is closed.
[[nodiscard]] HandedDescriptors take_handed_descriptors();
/// Has the manager keep `fd` under `name` (printable, no colon, at most 255 bytes) until this service is stopped: it
/// comes back with the next process. Does nothing without a manager. Any thread. Errors: kUnavailable (the manager did
/// not take the message).
[[nodiscard]] Status park_descriptor(const std::string& name, int fd);
/// The manager closes what it keeps under `name`.
void unpark_descriptor(const std::string& name);
/// A manager is there that may keep descriptors.
[[nodiscard]] bool has_descriptor_store();
void notify_ready(const std::string& status);
void notify_status(const std::string& status);
void notify_reloading();
void notify_stopping();
void notify_alive();
/// Half of WatchdogSec; nothing without a watchdog.
[[nodiscard]] std::optional<Duration> watchdog_interval();

}  // namespace gradsieve::daemon
