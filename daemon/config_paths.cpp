// Where the socket, the state and the secret key lie if nobody says so.
#include "daemon/config_host.hpp"

#include <fmt/format.h>

namespace gradsieve::daemon {

namespace {

/// systemd separates several folders with colons; ours is the first.
std::string first_of(const HostFacts& host, const std::string& variable) {
    const auto found = host.environment.find(variable);
    if (found == host.environment.end()) return "";
    const auto first = found->second.substr(0, found->second.find(':'));
    return !first.empty() && first.front() == '/' ? first : "";
}

}  // namespace

Result<DefaultPath> default_socket(const HostFacts& host) {
    if (const auto folder = first_of(host, "RUNTIME_DIRECTORY"); !folder.empty())
        return DefaultPath{folder + "/gradsieved.sock", "environment"};
    if (host.user_id == 0) return DefaultPath{"/run/gradsieve/gradsieved.sock", "default"};
    if (const auto folder = first_of(host, "XDG_RUNTIME_DIR"); !folder.empty())
        return DefaultPath{folder + "/gradsieve/gradsieved.sock", "environment"};
    const auto user_folder = fmt::format("/run/user/{}", host.user_id);
    if (host.folder_exists(user_folder)) return DefaultPath{user_folder + "/gradsieve/gradsieved.sock", "default"};
    return Status(
        StatusCode::kFailedPrecondition,
        fmt::format("no place for the socket: XDG_RUNTIME_DIR is not set and {} is not there: a folder that only this "
                    "user can write to is needed; give --socket PATH, or set path in [socket]",
                    user_folder));
}

Result<DefaultPath> default_state_directory(const HostFacts& host) {
    if (auto folder = first_of(host, "STATE_DIRECTORY"); !folder.empty())
        return DefaultPath{std::move(folder), "environment"};
    if (host.user_id == 0) return DefaultPath{"/var/lib/gradsieve", "default"};
    if (const auto folder = first_of(host, "XDG_STATE_HOME"); !folder.empty())
        return DefaultPath{folder + "/gradsieve", "environment"};
    if (const auto home = first_of(host, "HOME"); !home.empty())
        return DefaultPath{home + "/.local/state/gradsieve", "environment"};
    return Status(
        StatusCode::kFailedPrecondition,
        "no place for state: neither XDG_STATE_HOME nor HOME is set: an absolute path is needed; give --state PATH, or "
        "set state_directory in [daemon]");
}

DefaultPath default_key_file(const HostFacts& host, const std::string& state_directory) {
    if (const auto folder = first_of(host, "CREDENTIALS_DIRECTORY"); !folder.empty())
        if (auto path = fmt::format("{}/{}", folder, kKeyFileName); host.file_exists(path))
            return {std::move(path), "environment"};
    return {fmt::format("{}/{}", state_directory, kKeyFileName), "default"};
}

}  // namespace gradsieve::daemon
