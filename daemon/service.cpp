#include "daemon/service.hpp"

#include <sys/socket.h>
#include <systemd/sd-daemon.h>

namespace gradsieve::daemon {

std::optional<UniqueFd> take_activation_socket() {
    const int count = sd_listen_fds(1);
    std::optional<UniqueFd> found;
    for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + count; ++fd) {
        UniqueFd owned(fd);
        if (!found && sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, nullptr, 0) > 0) found = std::move(owned);
    }
    return found;
}

void notify_ready(const std::string& status) { sd_notifyf(0, "READY=1\nSTATUS=%s", status.c_str()); }
void notify_status(const std::string& status) { sd_notifyf(0, "STATUS=%s", status.c_str()); }
void notify_reloading() { sd_notify(0, "RELOADING=1"); }
void notify_stopping() { sd_notify(0, "STOPPING=1"); }
void notify_alive() { sd_notify(0, "WATCHDOG=1"); }

std::optional<Duration> watchdog_interval() {
    std::uint64_t usec = 0;
    if (sd_watchdog_enabled(0, &usec) <= 0) return std::nullopt;
    return std::chrono::microseconds(usec / 2);
}

}  // namespace gradsieve::daemon
