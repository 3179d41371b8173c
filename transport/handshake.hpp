// What the transport's own frames say: hello (who speaks, and with which list of nodes), heartbeat and refusal; and the
// routing id that lets frames be attributed after a reconnect. Parsing must never trust a byte. Pure functions; any
// thread.
#pragma once

#include "transport/zmq_transport.hpp"

#include <optional>
#include <span>

namespace gradsieve::transport {

/// One connection between two nodes, as its opener names it.
enum class ConnectionKind : std::uint8_t { kControl = 0, kHeartbeat = 1, kData = 2 };

inline constexpr std::uint16_t kLanesMax = 64;
inline constexpr std::size_t kNameBytesMax = 255;
inline constexpr std::size_t kRefusalTextBytesMax = 1024;

struct NodeListDigest {
    std::uint32_t nodes = 0;
    std::uint64_t digest = 0;  ///< XXH3-64 of every node's name, host and port, in order
};
struct Hello {
    PeerIndex from = 0;
    PeerIndex to = 0;
    ConnectionKind kind = ConnectionKind::kControl;
    std::uint16_t lane = 0;   ///< of this connection, below `lanes`; 0 unless kData
    std::uint16_t lanes = 1;  ///< data connections the sender opens
    std::uint64_t instance = 0;
    NodeListDigest list;
    std::string name;
};

[[nodiscard]] NodeListDigest digest_of(std::span<const PeerAddress> nodes);
/// "3 nodes: a 10.0.0.1:7077, b 10.0.0.2:7077, ..."; names at most eight.
[[nodiscard]] std::string node_list_text(std::span<const PeerAddress> nodes);
/// "b (10.0.0.2:7077)".
[[nodiscard]] std::string peer_text(const PeerAddress& peer);

[[nodiscard]] Bytes build_hello(const Hello& hello);
/// Errors: kCorrupt. Bytes after the known fields are ignored: a later minor version may add some.
[[nodiscard]] Result<Hello> parse_hello(ByteView body);
/// Whether a hello may speak to us. Errors: kMismatch (the node list differs, or it was meant for another node).
[[nodiscard]] Status check_hello(const Hello& hello, std::span<const PeerAddress> nodes, PeerIndex self);

[[nodiscard]] Bytes build_heartbeat(std::uint64_t tick);
[[nodiscard]] std::optional<std::uint64_t> parse_heartbeat(ByteView body);

/// Cuts texts longer than kRefusalTextBytesMax.
[[nodiscard]] Bytes build_refusal(std::string_view text);
/// Printable text; nothing if malformed.
[[nodiscard]] std::optional<std::string> parse_refusal(ByteView body);

/// The ZMQ routing id of a connection: unique per node, connection and life of the daemon.
[[nodiscard]] Bytes build_routing_id(const Hello& hello);

}  // namespace gradsieve::transport
