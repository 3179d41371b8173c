// The TCP transport over ZeroMQ: one ROUTER on the node's port, and to each peer one control, one heartbeat and `lanes`
// data DEALERs, each monitored; encrypted and admitted by key with CURVE, or in plain text if asked. Only this folder's
// .cpp includes zmq; its exceptions end there.
#pragma once

#include "transport/curve_key.hpp"
#include "transport/transport.hpp"

#include <memory>
#include <optional>

namespace gradsieve::transport {

struct PeerAddress {
    std::string name;
    std::string host;  ///< IP address or resolvable name
    std::uint16_t port = 0;
    std::string public_key{};  ///< as text; of every node where traffic is encrypted
};
struct ZmqOptions {
    std::vector<PeerAddress> nodes;  ///< all nodes of the configuration, ourselves included; PeerIndex = position
    PeerIndex self = 0;
    std::string bind_interface;  ///< empty = whatever routes to the peers; or a name, address, CIDR, or "!name"
    std::uint32_t lanes = 1;
    Duration heartbeat_every = std::chrono::seconds(1);
    Duration silent_after = std::chrono::seconds(3);
    ByteCount frame_limit_bytes = ByteCount{64} << 20U;
    ByteCount queue_limit_bytes = ByteCount{1} << 30U;
    /// The other half of our own public key: only the nodes' keys are let in, and everything is encrypted. None: plain
    /// text, and whoever reaches the port is heard.
    std::optional<SecretKey> secret_key{};
};

/// Errors: kAlreadyExists (port in use: holder's pid and program if readable), kInvalidArgument (no such interface,
/// ...). A single-node configuration binds nothing. In `counters`, the own entry counts refusals that no peer can be
/// blamed for.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_zmq_transport(const ZmqOptions& options, const Clock& clock);

}  // namespace gradsieve::transport
