#include "cli/tcp_probe.hpp"

#include "base/unique_fd.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

namespace gradsieve::cli {

namespace {

constexpr std::string_view kListening = "0A";  // TCP_LISTEN in /proc/net/tcp

/// Inodes of the sockets that listen on `port`, from one table of the kernel.
void add_inodes(const char* table, std::uint16_t port, std::set<std::string>& ret_inodes) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    const auto suffix = fmt::format(":{:04X}", port);
    while (std::getline(file, line)) {
        std::istringstream fields(line);
        std::array<std::string, 10> field;
        for (auto& text : field) fields >> text;
        const auto& local = field[1];
        if (field[3] == kListening && local.size() > 5 && local.compare(local.size() - 5, 5, suffix) == 0)
            ret_inodes.insert(field[9]);
    }
}

std::string program_of(const std::filesystem::path& process) {
    std::ifstream file(process / "comm");
    std::string name;
    std::getline(file, name);
    return name;
}

bool holds_socket(const std::filesystem::path& process, const std::set<std::string>& inodes) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(process / "fd", error), end; !error && entry != end;
         entry.increment(error)) {
        const auto target = std::filesystem::read_symlink(entry->path(), error).string();
        if (error) continue;
        if (target.rfind("socket:[", 0) == 0 && inodes.count(target.substr(8, target.size() - 9)) != 0) return true;
    }
    return false;
}

/// Waits for a connection in progress; "" once it stands.
std::string wait_connected(int socket, std::chrono::milliseconds patience) {
    pollfd entry{socket, POLLOUT, 0};
    int ready = 0;
    do {
        ready = ::poll(&entry, 1, static_cast<int>(patience.count()));
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) return fmt::format("no answer within {} ms", patience.count());
    int error = 0;
    socklen_t length = sizeof(error);
    if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    return error == 0 ? "" : std::strerror(error);
}

}  // namespace

std::optional<Listener> find_listener(std::uint16_t port) {
    std::set<std::string> inodes;
    add_inodes("/proc/net/tcp", port, inodes);
    add_inodes("/proc/net/tcp6", port, inodes);
    if (inodes.empty()) return std::nullopt;
    std::error_code error;
    for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
         entry.increment(error)) {
        const auto name = entry->path().filename().string();
        if (name.find_first_not_of("0123456789") != std::string::npos || !holds_socket(entry->path(), inodes)) continue;
        return Listener{std::stoll(name), program_of(entry->path())};
    }
    return Listener{};
}

std::string try_connect(const std::string& host, std::uint16_t port, std::chrono::milliseconds patience,
                        std::string& ret_address) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int failure = ::getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &list);
    if (failure != 0) return fmt::format("does not resolve: {}", ::gai_strerror(failure));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
    std::array<char, NI_MAXHOST> numeric{};
    if (::getnameinfo(list->ai_addr, list->ai_addrlen, numeric.data(), numeric.size(), nullptr, 0, NI_NUMERICHOST) == 0)
        ret_address = numeric.data();
    const UniqueFd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) return fmt::format("no socket: {}", std::strerror(errno));
    if (::connect(socket.get(), list->ai_addr, list->ai_addrlen) == 0) return "";
    if (errno != EINPROGRESS) return std::strerror(errno);
    return wait_connected(socket.get(), patience);
}

}  // namespace gradsieve::cli
