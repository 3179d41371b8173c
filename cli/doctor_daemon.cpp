// The doctor's look at the daemon: is it there, may this user talk to it, what does it complain about.
#include "cli/doctor.hpp"
#include "cli/human.hpp"
#include "daemon/config_key_file.hpp"
#include "shm/local_socket.hpp"
#include "shm/message.hpp"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gradsieve::cli {

namespace {

constexpr auto kSocketPatience = std::chrono::milliseconds(200);

std::string owner_text(const struct stat& facts) {
    const auto* user = ::getpwuid(facts.st_uid);
    const auto* group = ::getgrgid(facts.st_gid);
    return fmt::format("mode {:04o}, {}:{}", facts.st_mode & 07777U,
                       user != nullptr ? user->pw_name : fmt::format("{}", facts.st_uid),
                       group != nullptr ? group->gr_name : fmt::format("{}", facts.st_gid));
}

std::vector<Finding> security_findings(const StatusView& view) {
    std::vector<Finding> findings;
    const auto& security = view.security;
    if (!security.warning.empty()) findings.push_back({Grade::kWarn, "security", security.warning, ""});
    if (const auto refused = security.keys_refused + security.handshakes_failed; refused > 0)
        findings.push_back(
            {Grade::kWarn, "strangers",
             fmt::format("{} connections refused; the last: {}", count_text(refused), security.last_refusal),
             "a node of this cluster? then mend its key; else look who reaches the port"});
    for (const auto& peer : view.peers)
        if (!peer.handshake.empty())
            findings.push_back({Grade::kFail, fmt::format("peer {}", peer.name), peer.handshake,
                                "its own status and doctor tell the other side"});
    return findings;
}

}  // namespace

Finding check_key(const daemon::Config& config, const PageReading& reading) {
    const auto& own = config.nodes[config.self].public_key;
    const auto view = parse_status_document(reading.document);
    const bool is_live = reading.code == ExitCode::kOk && view.is_ok() && view->security.mode == "curve";
    if (is_live && view->security.public_key == own)
        return {Grade::kOk, "key", fmt::format("the daemon runs with this node's, {}", own), ""};
    if (is_live)
        return {Grade::kFail, "key",
                fmt::format("the daemon runs with {}, the configuration says {}", view->security.public_key, own),
                "reload the daemon (systemctl reload gradsieved), or mend public_key of this node's [[node]]"};
    const auto loaded = daemon::load_node_key(config);
    if (loaded.is_ok()) return {Grade::kOk, "key", fmt::format("{} is this node's, {}", config.key_file, own), ""};
    // Only the daemon's user may read it, and its default place is another one for each user.
    const bool is_closed = ::access(config.key_file.c_str(), R_OK) != 0 && errno == EACCES;
    const bool may_be_elsewhere = loaded.error().code() == StatusCode::kNotFound && ::geteuid() != 0 &&
                                  config.origins.at("network.key_file") != "file";
    if (is_closed || may_be_elsewhere)
        return {Grade::kWarn, "key", fmt::format("{} cannot be checked by this user", config.key_file),
                "run this as root or as the daemon's user"};
    return {Grade::kFail, "key", loaded.error().text(),
            "'gradsieve keygen --show' prints what a key file's public half is"};
}

Finding check_health(const PageReading& reading) {
    const auto& health = reading.health;
    const auto age = time_text(health.heartbeat_age_s);
    switch (reading.code) {
        case ExitCode::kOk:
            return {Grade::kOk, "daemon", fmt::format("live, pid {}, heartbeat {} ago", health.pid, age), ""};
        case ExitCode::kHung:
            return {Grade::kFail, "daemon", fmt::format("hung, pid {} without a heartbeat for {}", health.pid, age),
                    health.is_suspended ? fmt::format("a signal or a debugger stopped it: kill -CONT {}", health.pid)
                                        : std::string("look at its log (journalctl -u gradsieved), then restart it")};
        case ExitCode::kDead:
            return {Grade::kFail, "daemon", fmt::format("dead, pid {} is gone, last heartbeat {} ago", health.pid, age),
                    "look at its log (journalctl -u gradsieved), then start it: systemctl start gradsieved"};
        case ExitCode::kStopped:
            return {Grade::kFail, "daemon", fmt::format("stopped {} ago", age),
                    "start it: systemctl start gradsieved, or gradsieved as a user"};
        default: return {Grade::kFail, "daemon", health.text, health.advice};
    }
}

Finding check_socket(const std::string& path) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0)
        return {Grade::kFail, "socket", fmt::format("{}: {}", path, std::strerror(errno)),
                errno == EACCES ? "its folder is closed to this user: join the socket's group, then log in again"
                                : "start the daemon, or name its socket with --socket or GRADSIEVE_SOCKET"};
    if (!S_ISSOCK(facts.st_mode))
        return {Grade::kFail, "socket", fmt::format("{}: not a socket", path),
                "move that file away and restart the daemon"};
    if (::access(path.c_str(), W_OK) != 0)
        return {Grade::kFail, "socket", fmt::format("{}: {} keeps this user out", path, owner_text(facts)),
                "join that group, then log in again; or set mode or group in [socket]"};
    const auto connection = shm::LocalConnection::connect(path, SteadyClock().now() + kSocketPatience);
    if (!connection.is_ok()) return {Grade::kFail, "socket", connection.error().text(), "restart the daemon"};
    return {Grade::kOk, "socket", fmt::format("{} answers ({})", path, owner_text(facts)), ""};
}

Finding check_versions(const PageReading& reading) {
    const auto own = fmt::format("tool {}, shared memory {}", GRADSIEVE_VERSION, shm::kAbiVersion);
    const auto view = parse_status_document(reading.document);
    if (!view.is_ok() || view->daemon.version.empty()) return {Grade::kOk, "versions", own + ", daemon unknown", ""};
    const auto text = fmt::format("{}, daemon {}", own, view->daemon.version);
    if (view->daemon.version == GRADSIEVE_VERSION) return {Grade::kOk, "versions", text, ""};
    return {Grade::kWarn, "versions", text, "restart the daemon after an upgrade, or install matching packages"};
}

std::vector<Finding> check_document(const PageReading& reading) {
    std::vector<Finding> findings;
    if (!has_page(reading)) return findings;
    const auto view = parse_status_document(reading.document);
    if (!view.is_ok()) return {{Grade::kFail, "status page", view.error().text(), "restart the daemon"}};
    if (view->format == 0) return {{Grade::kWarn, "status page", "nothing published yet", "try again in a second"}};
    findings.push_back(
        {Grade::kOk, "status page", fmt::format("{}, {} bytes", reading.health.page, reading.document.size()), ""});
    for (auto& finding : security_findings(*view)) findings.push_back(std::move(finding));
    for (const auto& error : view->daemon.errors)
        findings.push_back(
            {Grade::kWarn, "daemon's error",
             fmt::format("{} ({} times, last {} ago)", error.text, error.count, time_text(error.last_s_ago)),
             "the log tells more: journalctl -u gradsieved"});
    for (const auto& peer : view->peers)
        if (peer.frames_refused > 0)
            findings.push_back({Grade::kWarn, "frames",
                                fmt::format("{} from {} refused; the last: {}", count_text(peer.frames_refused),
                                            peer.name, peer.last_refusal),
                                "all nodes should run the same version"});
    for (const auto& job : view->jobs)
        if (job.digests_different > 0)
            findings.push_back(
                {Grade::kFail, "digests",
                 fmt::format("{} steps of job '{}' differ between nodes", job.digests_different, job.name),
                 "stop the job and report it; suspect memory or mixed versions"});
    return findings;
}

}  // namespace gradsieve::cli
