#include "cli/status_page_health.hpp"

#include "shm/local_socket.hpp"
#include "shm/status_page.hpp"

#include <fmt/format.h>

#include <fstream>

namespace gradsieve::cli {

namespace {

/// Whether the kernel shows the process as stopped by a signal (T) or a debugger (t).
bool is_suspended(int pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text;
    std::getline(file, text);
    const auto name_end = text.rfind(')');  // the name may hold anything, parentheses too
    if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
    return text[name_end + 2] == 'T' || text[name_end + 2] == 't';
}

PageReading describe(const shm::StatusSnapshot& snapshot) {
    PageReading reading;
    switch (snapshot.health) {
        case shm::DaemonHealth::kLive:
            reading.code = ExitCode::kOk;
            reading.health.state = "live";
            break;
        case shm::DaemonHealth::kHung:
            reading.code = ExitCode::kHung;
            reading.health.state = "hung";
            reading.health.is_suspended = is_suspended(snapshot.pid);
            break;
        case shm::DaemonHealth::kDead:
            reading.code = ExitCode::kDead;
            reading.health.state = "dead";
            break;
        case shm::DaemonHealth::kStopped:
            reading.code = ExitCode::kStopped;
            reading.health.state = "stopped";
            break;
    }
    reading.health.pid = snapshot.pid;
    reading.health.heartbeat_age_s = snapshot.heartbeat_age_seconds;
    reading.document = snapshot.document;
    return reading;
}

/// Where a daemon's page lies. A stopped one takes its socket away but leaves the page, so pages are looked for too.
std::string find_page(const std::string& socket) {
    if (!socket.empty()) return shm::status_page_path(socket);
    const auto hints = shm::read_socket_hints();
    const auto nearest = shm::find_socket_path(hints);
    if (hints.exists(nearest)) return shm::status_page_path(nearest);
    for (const auto& candidate : shm::socket_candidates(hints))
        if (const auto page = shm::status_page_path(candidate); hints.exists(page)) return page;
    return shm::status_page_path(nearest);
}

}  // namespace

PageReading read_page(const std::string& socket) {
    const auto page = find_page(socket);
    PageReading reading;
    if (auto snapshot = shm::read_status_page(page); snapshot.is_ok()) {
        reading = describe(*snapshot);
    } else {
        const bool is_absent = snapshot.error().code() == StatusCode::kNotFound;
        reading.code = is_absent ? ExitCode::kNeverRan : ExitCode::kUnreadable;
        reading.health.state = is_absent ? "never-ran" : "unreadable";
        reading.health.text = is_absent ? fmt::format("no daemon has run here: there is no status page {}", page)
                                        : snapshot.error().text();
        if (is_absent)
            reading.health.advice =
                "start it (systemctl start gradsieved, or gradsieved as a user), or name its socket with --socket";
    }
    reading.health.page = page;
    return reading;
}

bool has_page(const PageReading& reading) noexcept {
    return reading.code != ExitCode::kNeverRan && reading.code != ExitCode::kUnreadable;
}

}  // namespace gradsieve::cli
