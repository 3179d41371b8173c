#include "transport/handshake.hpp"

#include "transport/frame.hpp"
#include "transport/zmq_options.hpp"

#include <algorithm>

namespace gradsieve::transport {
namespace {

constexpr std::size_t kNodesNamed = 8;

/// Text from outside, fit for a log line.
std::string printable(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
    return text;
}

}  // namespace

NodeListDigest digest_of(std::span<const PeerAddress> nodes) {
    Bytes bytes;
    ByteWriter writer(bytes);
    for (const auto& node : nodes) {
        writer.write_text(node.name);
        writer.write_text(node.host);
        writer.write(node.port);
    }
    return {static_cast<std::uint32_t>(nodes.size()), checksum_of(bytes)};
}

std::string node_list_text(std::span<const PeerAddress> nodes) {
    std::string text = std::to_string(nodes.size()) + (nodes.size() == 1 ? " node:" : " nodes:");
    for (std::size_t node = 0; node < std::min(nodes.size(), kNodesNamed); ++node) {
        text += (node == 0 ? " " : ", ") + nodes[node].name + " " + address_text(nodes[node]);
    }
    return nodes.size() > kNodesNamed ? text + ", ..." : text;
}

std::string peer_text(const PeerAddress& peer) { return peer.name + " (" + address_text(peer) + ")"; }

Bytes build_hello(const Hello& hello) {
    Bytes bytes;
    ByteWriter writer(bytes);
    writer.write(hello.from);
    writer.write(hello.to);
    writer.write(static_cast<std::uint8_t>(hello.kind));
    writer.write(hello.lane);
    writer.write(hello.lanes);
    writer.write(hello.instance);
    writer.write(hello.list.nodes);
    writer.write(hello.list.digest);
    writer.write_text(hello.name);
    return bytes;
}

Result<Hello> parse_hello(ByteView body) {
    ByteReader reader(body);
    Hello hello;
    hello.from = reader.read<PeerIndex>();
    hello.to = reader.read<PeerIndex>();
    const auto kind = reader.read<std::uint8_t>();
    hello.lane = reader.read<std::uint16_t>();
    hello.lanes = reader.read<std::uint16_t>();
    hello.instance = reader.read<std::uint64_t>();
    hello.list.nodes = reader.read<std::uint32_t>();
    hello.list.digest = reader.read<std::uint64_t>();
    hello.name = printable(reader.read_text(kNameBytesMax));
    const bool is_lane_allowed = hello.lanes >= 1 && hello.lanes <= kLanesMax && hello.lane < hello.lanes;
    if (!reader.is_ok() || kind > static_cast<std::uint8_t>(ConnectionKind::kData) || !is_lane_allowed) {
        return Status(StatusCode::kCorrupt, "hello of " + std::to_string(body.size()) +
                                                " bytes: it does not parse; install the same release on all nodes");
    }
    hello.kind = static_cast<ConnectionKind>(kind);
    return hello;
}

Status check_hello(const Hello& hello, std::span<const PeerAddress> nodes, PeerIndex self) {
    const auto ours = digest_of(nodes);
    if (hello.list.nodes != ours.nodes || hello.list.digest != ours.digest) {
        return {StatusCode::kMismatch, "node list differs: " + hello.name + " has " + std::to_string(hello.list.nodes) +
                                           " nodes, " + nodes[self].name + " has " + node_list_text(nodes) +
                                           "; give all nodes the same names, addresses and ports in the same order"};
    }
    if (hello.from >= nodes.size() || hello.from == self || hello.name != nodes[hello.from].name) {
        return {StatusCode::kMismatch, "unknown node " + hello.name + " at position " + std::to_string(hello.from) +
                                           ": " + nodes[self].name + " has " + node_list_text(nodes) +
                                           "; start each node under its own name"};
    }
    if (hello.to != self) {
        const std::string meant = hello.to < nodes.size() ? nodes[hello.to].name : std::to_string(hello.to);
        return {StatusCode::kMismatch, "hello from " + hello.name + " was meant for node " + meant + ": it reached " +
                                           nodes[self].name + "; check the addresses in the node list"};
    }
    return {};
}

Bytes build_heartbeat(std::uint64_t tick) {
    Bytes bytes;
    ByteWriter(bytes).write(tick);
    return bytes;
}

std::optional<std::uint64_t> parse_heartbeat(ByteView body) {
    ByteReader reader(body);
    const auto tick = reader.read<std::uint64_t>();
    if (!reader.is_ok()) return std::nullopt;
    return tick;
}

Bytes build_refusal(std::string_view text) {
    Bytes bytes;
    ByteWriter(bytes).write_text(text.substr(0, kRefusalTextBytesMax));
    return bytes;
}

std::optional<std::string> parse_refusal(ByteView body) {
    ByteReader reader(body);
    auto text = reader.read_text(kRefusalTextBytesMax);
    if (!reader.is_ok()) return std::nullopt;
    return printable(std::move(text));
}

Bytes build_routing_id(const Hello& hello) {
    Bytes bytes;
    ByteWriter writer(bytes);
    writer.write(kFrameMagic);  // a routing id must not begin with a zero byte: ZeroMQ keeps those for itself
    writer.write(hello.from);
    writer.write(static_cast<std::uint8_t>(hello.kind));
    writer.write(hello.lane);
    writer.write(hello.instance);
    return bytes;
}

}  // namespace gradsieve::transport
