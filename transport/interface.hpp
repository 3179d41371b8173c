// Which local address the node listens on: the one that routes to its peers, or what the configuration says, and never
// a loopback address for a remote peer. Decides from facts handed in (local_network.hpp finds them). Pure; any thread.
#pragma once

#include "base/status.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::transport {

struct IpAddress {
    bool is_ipv6 = false;
    std::array<std::uint8_t, 16> bytes{};  ///< network order; IPv4 uses the first four
    friend bool operator==(const IpAddress&, const IpAddress&) = default;
};
[[nodiscard]] std::optional<IpAddress> parse_ip(const std::string& text);
[[nodiscard]] std::string ip_text(const IpAddress& address);
/// "10.0.0.1:7077", "[::1]:7077".
[[nodiscard]] std::string endpoint_text(const IpAddress& address, std::uint16_t port);
[[nodiscard]] bool is_loopback(const IpAddress& address) noexcept;
[[nodiscard]] bool is_wildcard(const IpAddress& address) noexcept;
/// Whether the first `prefix_bits` agree.
[[nodiscard]] bool is_in_network(const IpAddress& address, const IpAddress& network, unsigned prefix_bits) noexcept;

struct LocalAddress {
    std::string interface;
    IpAddress address;
    unsigned prefix_bits = 0;
};
struct PeerRoute {
    std::string peer;                  ///< host as configured
    std::optional<IpAddress> address;  ///< none: it does not resolve now, and counts as remote
    std::optional<IpAddress> source;   ///< local address that the kernel would use towards it
};
struct BindQuestion {
    std::string rule;      ///< "", interface name, address, CIDR, or "!name"
    std::string own_host;  ///< as configured: what peers connect to
    std::vector<IpAddress> own_addresses;
    std::vector<LocalAddress> local;
    std::vector<PeerRoute> routes;
};
struct BindChoice {
    IpAddress address;
    std::string why;  ///< "eth0 routes to 10.0.0.2"
};

/// Errors: kInvalidArgument (no such interface or address, loopback for a remote peer, peers reached by several
/// interfaces and none named), each with the addresses this host has.
[[nodiscard]] Result<BindChoice> choose_bind_address(const BindQuestion& question);

}  // namespace gradsieve::transport
