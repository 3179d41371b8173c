#include "transport/local_network.hpp"

#include "base/unique_fd.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

namespace gradsieve::transport {
namespace {

std::optional<IpAddress> from_socket_address(const sockaddr* address) {
    IpAddress result;
    if (address == nullptr) return std::nullopt;
    if (address->sa_family == AF_INET) {
        sockaddr_in ipv4{};
        std::memcpy(&ipv4, address, sizeof ipv4);
        std::memcpy(result.bytes.data(), &ipv4.sin_addr, 4);
        return result;
    }
    if (address->sa_family != AF_INET6) return std::nullopt;
    sockaddr_in6 ipv6{};
    std::memcpy(&ipv6, address, sizeof ipv6);
    result.is_ipv6 = true;
    std::memcpy(result.bytes.data(), &ipv6.sin6_addr, 16);
    return result;
}

socklen_t to_socket_address(const IpAddress& address, std::uint16_t port, sockaddr_storage& ret_address) {
    ret_address = {};
    if (!address.is_ipv6) {
        sockaddr_in ipv4{};
        ipv4.sin_family = AF_INET;
        ipv4.sin_port = htons(port);
        std::memcpy(&ipv4.sin_addr, address.bytes.data(), 4);
        std::memcpy(&ret_address, &ipv4, sizeof ipv4);
        return sizeof ipv4;
    }
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    std::memcpy(&ipv6.sin6_addr, address.bytes.data(), 16);
    std::memcpy(&ret_address, &ipv6, sizeof ipv6);
    return sizeof ipv6;
}

unsigned prefix_bits(const sockaddr* mask) {
    unsigned bits = 0;
    if (const auto address = from_socket_address(mask)) {
        for (const auto byte : address->bytes) bits += static_cast<unsigned>(std::popcount(byte));
    }
    return bits;
}

}  // namespace

std::vector<LocalAddress> list_local_addresses() {
    ifaddrs* head = nullptr;
    if (getifaddrs(&head) != 0) return {};
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(head, &freeifaddrs);
    std::vector<LocalAddress> found;
    for (const auto* entry = head; entry != nullptr; entry = entry->ifa_next) {
        const auto address = from_socket_address(entry->ifa_addr);
        if (!address || (entry->ifa_flags & IFF_UP) == 0) continue;
        // Link-local IPv6 addresses need a zone to be bound, and peers cannot name them.
        if (address->is_ipv6 && address->bytes[0] == 0xFE && (address->bytes[1] & 0xC0U) == 0x80U) continue;
        found.push_back({entry->ifa_name, *address, prefix_bits(entry->ifa_netmask)});
    }
    return found;
}

std::vector<IpAddress> resolve_host(const std::string& host) {
    if (const auto literal = parse_ip(host)) return {*literal};
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* head = nullptr;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &head) != 0) return {};
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(head, &freeaddrinfo);
    std::vector<IpAddress> found;
    for (const auto* entry = head; entry != nullptr; entry = entry->ai_next) {
        const auto address = from_socket_address(entry->ai_addr);
        if (address && std::find(found.begin(), found.end(), *address) == found.end()) found.push_back(*address);
    }
    std::stable_partition(found.begin(), found.end(), [](const IpAddress& address) { return !address.is_ipv6; });
    return found;
}

bool needs_ipv6(const std::string& host) {
    const auto addresses = resolve_host(host);
    return !addresses.empty() && addresses.front().is_ipv6;
}

std::optional<IpAddress> find_route_source(const IpAddress& to) {
    const UniqueFd fd(socket(to.is_ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    const auto address_bytes =
        to_socket_address(to, 9, address);  // any port does: connecting UDP only looks up the route
    if (!fd.is_open() || connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), address_bytes) != 0)
        return std::nullopt;
    sockaddr_storage source{};
    socklen_t source_bytes = sizeof source;
    if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&source), &source_bytes) != 0) return std::nullopt;
    return from_socket_address(reinterpret_cast<const sockaddr*>(&source));
}

BindQuestion ask_bind_question(const ZmqOptions& options) {
    BindQuestion question;
    question.rule = options.bind_interface;
    question.own_host = options.nodes[options.self].host;
    question.own_addresses = resolve_host(question.own_host);
    question.local = list_local_addresses();
    for (PeerIndex peer = 0; peer < options.nodes.size(); ++peer) {
        if (peer == options.self) continue;
        PeerRoute route;
        route.peer = options.nodes[peer].host;
        const auto addresses = resolve_host(route.peer);
        if (!addresses.empty()) {
            route.address = addresses.front();
            route.source = find_route_source(addresses.front());
        }
        question.routes.push_back(std::move(route));
    }
    return question;
}

}  // namespace gradsieve::transport
