#include "transport/port_holder.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace gradsieve::transport {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kListening = "0A";  // TCP_LISTEN in /proc/net/tcp

std::string read_file(const fs::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::optional<std::uint64_t> parse_number(std::string_view digits, int base) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return value;
}

/// The inode in a link like "socket:[12345]".
std::optional<std::uint64_t> socket_inode(const std::string& link) {
    constexpr std::string_view kPrefix = "socket:[";
    if (!link.starts_with(kPrefix) || link.back() != ']') return std::nullopt;
    return parse_number(std::string_view(link).substr(kPrefix.size(), link.size() - kPrefix.size() - 1), 10);
}

bool holds_any(const fs::path& process, const std::vector<std::uint64_t>& inodes) {
    std::error_code error;
    for (fs::directory_iterator fds(process / "fd", error), end; !error && fds != end; fds.increment(error)) {
        std::error_code link_error;
        const auto inode = socket_inode(fs::read_symlink(fds->path(), link_error).string());
        if (inode && std::find(inodes.begin(), inodes.end(), *inode) != inodes.end()) return true;
    }
    return false;
}

}  // namespace

std::vector<std::uint64_t> parse_listeners(std::string_view table, std::uint16_t port) {
    std::vector<std::uint64_t> inodes;
    std::istringstream lines{std::string(table)};
    for (std::string line; std::getline(lines, line);) {
        // sl local remote state queues timer retransmits uid timeout inode
        std::istringstream fields(line);
        std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
        fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
        const auto colon = local.rfind(':');
        if (!fields || state != kListening || colon == std::string::npos) continue;
        if (parse_number(std::string_view(local).substr(colon + 1), 16) != port) continue;
        if (const auto number = parse_number(inode, 10)) inodes.push_back(*number);
    }
    return inodes;
}

std::optional<PortHolder> find_port_holder(std::uint16_t port) {
    auto inodes = parse_listeners(read_file("/proc/net/tcp"), port);
    const auto inodes6 = parse_listeners(read_file("/proc/net/tcp6"), port);
    inodes.insert(inodes.end(), inodes6.begin(), inodes6.end());
    if (inodes.empty()) return std::nullopt;
    std::error_code error;
    for (fs::directory_iterator processes("/proc", error), end; !error && processes != end;
         processes.increment(error)) {
        const auto pid = parse_number(processes->path().filename().string(), 10);
        if (!pid || !holds_any(processes->path(), inodes)) continue;
        auto program = read_file(processes->path() / "comm");
        while (!program.empty() && program.back() == '\n') program.pop_back();
        return PortHolder{static_cast<int>(*pid), program};
    }
    return std::nullopt;
}

std::string port_holder_text(std::uint16_t port) {
    const std::string subject = "port " + std::to_string(port) + " is held by ";
    const auto holder = find_port_holder(port);
    if (!holder) return subject + "a process that cannot be seen from here";
    return subject + "pid " + std::to_string(holder->pid) + " (" + holder->program + ")";
}

}  // namespace gradsieve::transport
