// What the daemon says to a service manager: ready, reloading, stopping, alive; and the listening socket it may have
// been handed. Every call does nothing when started by hand. Main thread only.
#pragma once

#include "base/clock.hpp"
#include "base/unique_fd.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace gradsieve::daemon {

/// The listener from the socket unit, if there is one.
[[nodiscard]] std::optional<UniqueFd> take_activation_socket();
void notify_ready(const std::string& status);
void notify_status(const std::string& status);
void notify_reloading();
void notify_stopping();
void notify_alive();
/// Half of WatchdogSec; nothing without a watchdog.
[[nodiscard]] std::optional<Duration> watchdog_interval();

}  // namespace gradsieve::daemon
