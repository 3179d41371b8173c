#include "shm/local_socket.hpp"
#include "shm/socket_address.hpp"

#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>

namespace gradsieve::shm {
namespace {

constexpr const char* kSystemSocketPath = "/run/gradsieve/gradsieved.sock";

std::string environment(const char* name) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody here changes the environment
    return value == nullptr ? std::string() : std::string(value);
}

bool exists(const std::string& path) {
    struct stat seen {};
    return ::stat(path.c_str(), &seen) == 0;
}

}  // namespace

std::string default_socket_path() {
    if (auto named = environment("GRADSIEVE_SOCKET"); !named.empty()) return named;
    const auto runtime = environment("XDG_RUNTIME_DIR");
    if (exists(kSystemSocketPath) || runtime.empty()) return kSystemSocketPath;
    auto own = runtime + "/gradsieve/gradsieved.sock";
    return exists(own) ? own : kSystemSocketPath;
}

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
