// Asks the operating system what the listening address depends on: addresses of this host, names, routes. Resolving a
// name may block; called once, while a transport is made.
#pragma once

#include "transport/interface.hpp"
#include "transport/zmq_transport.hpp"

namespace gradsieve::transport {

/// Addresses of interfaces that are up.
[[nodiscard]] std::vector<LocalAddress> list_local_addresses();
/// All addresses of a name or a literal, IPv4 first; empty if it does not resolve.
[[nodiscard]] std::vector<IpAddress> resolve_host(const std::string& host);
/// Whether a host is reached by IPv6 alone: both ends prefer IPv4 for a name that has both.
[[nodiscard]] bool needs_ipv6(const std::string& host);
/// The local address the kernel would send from; no packet is sent.
[[nodiscard]] std::optional<IpAddress> find_route_source(const IpAddress& to);
/// Gathers all of it for one node of the list.
[[nodiscard]] BindQuestion ask_bind_question(const ZmqOptions& options);

}  // namespace gradsieve::transport
