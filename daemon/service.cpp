#include "daemon/service.hpp"

#include "daemon/kept_states.hpp"

#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <cstdlib>
#include <cstring>

namespace gradsieve::daemon {

HandedDescriptors take_handed_descriptors() {
    char** names = nullptr;
    const int count = sd_listen_fds_with_names(1, &names);
    HandedDescriptors handed;
    for (int index = 0; index < count; ++index) {
        const int fd = SD_LISTEN_FDS_START + index;
        UniqueFd owned(fd);
        const std::string name = names == nullptr ? "" : names[index];
        if (is_parked_name(name))
            handed.kept.push_back({name, std::move(owned)});
        else if (!handed.listener && sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, nullptr, 0) > 0)
            handed.listener = std::move(owned);
    }
    for (int index = 0; index < count && names != nullptr; ++index) std::free(names[index]);
    std::free(names);
    return handed;
}

bool has_descriptor_store() { return std::getenv("NOTIFY_SOCKET") != nullptr; }

Status park_descriptor(const std::string& name, int fd) {
    // FDPOLL=0: a manager that watches for hang-ups could not watch a memfd, and must not drop it for that.
    const auto message = "FDSTORE=1\nFDPOLL=0\nFDNAME=" + name;
    const int sent = sd_pid_notify_with_fds(0, 0, message.c_str(), &fd, 1);
    if (sent >= 0) return {};
    return {StatusCode::kUnavailable, "descriptor '" + name + "' is not parked: the service manager's socket says " +
                                          std::strerror(-sent) +
                                          ": needed is NOTIFY_SOCKET and NotifyAccess=main; the state ends with this "
                                          "process"};
}

void unpark_descriptor(const std::string& name) { sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name.c_str()); }

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
