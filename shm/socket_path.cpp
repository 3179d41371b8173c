#include "shm/local_socket.hpp"
#include "shm/socket_address.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace gradsieve::shm {
namespace {

constexpr const char* kSystemSocketPath = "/run/gradsieve/gradsieved.sock";
constexpr const char* kOwnSocketPath = "/gradsieve/gradsieved.sock";  // below the user's runtime folder

std::string environment(const char* name) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody here changes the environment
    return value == nullptr ? std::string() : std::string(value);
}

bool exists(const std::string& path) {
    struct stat seen {};
    return ::stat(path.c_str(), &seen) == 0;
}

}  // namespace

SocketHints read_socket_hints() {
    return {environment("GRADSIEVE_SOCKET"), environment("XDG_RUNTIME_DIR"), ::getuid(), exists};
}

std::vector<std::string> socket_candidates(const SocketHints& hints) {
    if (!hints.named.empty()) return {hints.named};
    std::vector<std::string> candidates;
    if (hints.runtime_folder.starts_with('/')) {
        candidates.push_back(hints.runtime_folder + kOwnSocketPath);
    } else if (hints.user_id != 0) {  // root's daemon is the system's
        candidates.push_back("/run/user/" + std::to_string(hints.user_id) + kOwnSocketPath);
    }
    candidates.emplace_back(kSystemSocketPath);
    return candidates;
}

std::string find_socket_path(const SocketHints& hints) {
    const auto candidates = socket_candidates(hints);
    const auto found = std::find_if(candidates.begin(), candidates.end(), hints.exists);
    return found == candidates.end() ? candidates.back() : *found;
}

std::string default_socket_path() { return find_socket_path(read_socket_hints()); }

std::string status_page_path(const std::string& socket_path) {
    const auto slash = socket_path.rfind('/');
    return slash == std::string::npos ? "status" : socket_path.substr(0, slash + 1) + "status";
}

Result<sockaddr_un> socket_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof(address.sun_path)) {
        return Status(StatusCode::kInvalidArgument,
                      "socket path '" + path + "': " + std::to_string(path.size()) + " bytes; allowed is 1 to " +
                          std::to_string(sizeof(address.sun_path) - 1) +
                          "; set GRADSIEVE_SOCKET (and the daemon's [socket] path) to a shorter one");
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

}  // namespace gradsieve::shm
