#include "daemon/config_host.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <memory>

namespace gradsieve::daemon {

namespace {

std::string address_of(const sockaddr* address) {
    if (address == nullptr) return "";
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* bytes = nullptr;
    if (address->sa_family == AF_INET) bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    if (address->sa_family == AF_INET6) bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (bytes == nullptr || ::inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr) return "";
    return numeric_address(text.data());
}

std::vector<std::string> interface_addresses() {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return {};
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
    std::vector<std::string> addresses;
    for (const auto* entry = list; entry != nullptr; entry = entry->ifa_next)
        if (auto text = address_of(entry->ifa_addr); !text.empty()) addresses.push_back(std::move(text));
    return addresses;
}

std::unique_ptr<addrinfo, void (*)(addrinfo*)> look_up(const std::string& name, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    addrinfo* list = nullptr;
    if (::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) list = nullptr;
    return {list, [](addrinfo* found) {
                if (found != nullptr) ::freeaddrinfo(found);
            }};
}

std::vector<std::string> resolve_name(const std::string& name) {
    const auto found = look_up(name, 0);
    std::vector<std::string> addresses;
    for (const auto* entry = found.get(); entry != nullptr; entry = entry->ai_next)
        if (auto text = address_of(entry->ai_addr); !text.empty()) addresses.push_back(std::move(text));
    return addresses;
}

std::string kernel_host_name() {
    std::array<char, HOST_NAME_MAX + 1> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0) return "";
    return name.data();
}

bool has_type(const std::string& path, mode_t type) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 && (facts.st_mode & S_IFMT) == type;
}

}  // namespace

std::string numeric_address(const std::string& text) {
    std::array<char, INET6_ADDRSTRLEN> spelled{};
    in_addr four{};
    if (::inet_pton(AF_INET, text.c_str(), &four) == 1)
        return ::inet_ntop(AF_INET, &four, spelled.data(), spelled.size());
    in6_addr six{};
    const auto without_zone = text.substr(0, text.find('%'));
    if (::inet_pton(AF_INET6, without_zone.c_str(), &six) != 1) return "";
    if (IN6_IS_ADDR_V4MAPPED(&six)) return ::inet_ntop(AF_INET, &six.s6_addr[12], spelled.data(), spelled.size());
    return ::inet_ntop(AF_INET6, &six, spelled.data(), spelled.size());
}

HostFacts read_host_facts() {
    HostFacts host;
    host.user_id = ::geteuid();
    host.host_name = kernel_host_name();
    host.addresses = interface_addresses();
    for (const char* name : {"RUNTIME_DIRECTORY", "STATE_DIRECTORY", "CREDENTIALS_DIRECTORY", "XDG_RUNTIME_DIR",
                             "XDG_STATE_HOME", "HOME", "SLURM_JOB_NODELIST", "GRADSIEVE_NODES"})
        if (const char* value = std::getenv(name); value != nullptr && *value != '\0') host.environment[name] = value;
    host.file_exists = [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; };
    host.folder_exists = [](const std::string& path) { return has_type(path, S_IFDIR); };
    host.qualified_name = [name = host.host_name]() -> std::string {
        const auto found = look_up(name, AI_CANONNAME);
        return found != nullptr && found->ai_canonname != nullptr ? found->ai_canonname : "";
    };
    host.resolve = resolve_name;
    return host;
}

}  // namespace gradsieve::daemon
