// Who holds a TCP port of this host, for the error message when ours is taken: /proc/net/tcp gives the socket's inode,
// /proc/*/fd its process. What another user's process has open may not be readable; then there is no answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::transport {

struct PortHolder {
    int pid = 0;
    std::string program;
};

/// Inodes of the sockets that listen on `port` in the text of /proc/net/tcp or tcp6.
[[nodiscard]] std::vector<std::uint64_t> parse_listeners(std::string_view table, std::uint16_t port);

/// A process that listens on `port`, if one can be seen.
[[nodiscard]] std::optional<PortHolder> find_port_holder(std::uint16_t port);

/// "port 7077 is held by pid 123 (gradsieved)", or that its holder cannot be seen.
[[nodiscard]] std::string port_holder_text(std::uint16_t port);

}  // namespace gradsieve::transport
