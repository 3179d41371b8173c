#include "cli/demo_link.hpp"

#include "cli/demo_child.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <csignal>
#include <filesystem>

namespace gradsieve::cli {

namespace {

constexpr const char* kPrefix = "gradsieve-demo-";
constexpr std::uint16_t kPort = 7077;

std::uint16_t free_loopback_port() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    const bool is_bound = ::bind(fd, reinterpret_cast<struct sockaddr*>(&address), size) == 0 &&
                          ::getsockname(fd, reinterpret_cast<struct sockaddr*>(&address), &size) == 0;
    ::close(fd);
    return is_bound ? ntohs(address.sin_port) : kPort;
}

/// Namespaces of demos that were killed: their name ends in the pid that made them.
void remove_stale() {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/run/netns", ignored)) {
        const auto name = entry.path().filename().string();
        if (name.rfind(kPrefix, 0) != 0) continue;
        const auto dash = name.rfind('-');
        const int pid = std::atoi(name.c_str() + dash + 1);
        if (pid > 0 && ::kill(pid, 0) != 0) run_program({"ip", "netns", "delete", name});
    }
}

}  // namespace

DemoLink::DemoLink(std::size_t rate_mbit, bool is_plain_loopback) {
    if (!is_plain_loopback && ::geteuid() == 0 && make_namespaces(rate_mbit)) {
        addresses_ = {"10.77.0.1", "10.77.0.2"};
        ports_ = {kPort, kPort};
        description_ = fmt::format("two network namespaces, link limited to {} Mbit/s", rate_mbit);
        return;
    }
    remove_namespaces();
    addresses_ = {"127.0.0.1", "127.0.0.1"};
    ports_ = {free_loopback_port(), free_loopback_port()};
    description_ = ::geteuid() == 0 ? "loopback, unlimited"
                                    : "loopback, unlimited (as root: two network namespaces with a limited link)";
}

DemoLink::~DemoLink() { remove_namespaces(); }

bool DemoLink::make_namespaces(std::size_t rate_mbit) {
    remove_stale();
    namespaces_ = {fmt::format("{}a-{}", kPrefix, ::getpid()), fmt::format("{}b-{}", kPrefix, ::getpid())};
    const auto& [first, second] = namespaces_;
    const auto rate = fmt::format("{}mbit", rate_mbit);
    // A burst of 16 kB at 100 Mbit/s: with a large burst small payloads would not feel the limit at all.
    const auto burst = fmt::format("{}", std::max<std::size_t>(16, 16 * rate_mbit / 100) * 1024);
    const std::vector<std::vector<std::string>> commands{
        {"ip", "netns", "add", first},
        {"ip", "netns", "add", second},
        {"ip", "link", "add", "gsd0", "netns", first, "type", "veth", "peer", "name", "gsd1", "netns", second},
        {"ip", "-n", first, "address", "add", "10.77.0.1/24", "dev", "gsd0"},
        {"ip", "-n", second, "address", "add", "10.77.0.2/24", "dev", "gsd1"},
        {"ip", "-n", first, "link", "set", "lo", "up"},
        {"ip", "-n", second, "link", "set", "lo", "up"},
        {"ip", "-n", first, "link", "set", "gsd0", "up"},
        {"ip", "-n", second, "link", "set", "gsd1", "up"},
        {"tc", "-n", first, "qdisc", "add", "dev", "gsd0", "root", "tbf", "rate", rate, "burst", burst, "latency",
         "50ms"},
        {"tc", "-n", second, "qdisc", "add", "dev", "gsd1", "root", "tbf", "rate", rate, "burst", burst, "latency",
         "50ms"},
    };
    for (const auto& command : commands)
        if (run_program(command) != 0) return false;
    return true;
}

void DemoLink::remove_namespaces() {
    for (auto& name : namespaces_) {
        if (!name.empty() && std::filesystem::exists("/run/netns/" + name))
            run_program({"ip", "netns", "delete", name});
        name.clear();
    }
}

std::vector<std::string> DemoLink::prefix(std::size_t node) const {
    if (namespaces_[node].empty()) return {};
    return {"ip", "netns", "exec", namespaces_[node]};
}

}  // namespace gradsieve::cli
