// What the transport tests share: ports that are free, bodies, and waiting for something to happen under a watchdog.
#pragma once

#include "transport/zmq_transport.hpp"

#include <gtest/gtest.h>
#include <functional>
#include <initializer_list>

namespace gradsieve::transport::testing {

inline constexpr Duration kWatchdog = std::chrono::seconds(20);

/// A TCP port of `host` that nothing listens on now.
[[nodiscard]] std::uint16_t find_free_port(const std::string& host = "127.0.0.1");

/// A list of nodes "a", "b", ... on free loopback ports.
[[nodiscard]] std::vector<PeerAddress> make_node_list(std::size_t nodes);

/// A key pair for each node; the public half enters its place in the list.
[[nodiscard]] std::vector<KeyPair> give_keys(std::vector<PeerAddress>& nodes);

/// Options with short times, so that tests of silence are quick.
[[nodiscard]] ZmqOptions make_options(const std::vector<PeerAddress>& nodes, PeerIndex self);

[[nodiscard]] SharedView make_body(std::string_view text);
/// `bytes` bytes that differ from place to place and by `seed`.
[[nodiscard]] SharedView make_body(ByteCount bytes, std::uint64_t seed);
[[nodiscard]] OutFrame make_frame(std::uint16_t type, std::uint64_t step, std::vector<SharedView> parts = {});
[[nodiscard]] std::string text_of(const SharedView& body);
[[nodiscard]] std::string hex_of(ByteView bytes);
[[nodiscard]] Bytes bytes_of(std::string_view hex);

/// A transport and what came out of it.
struct Node {
    std::unique_ptr<Transport> transport;
    Inbox inbox;
    [[nodiscard]] bool has_event(PeerIndex peer, PeerState state) const;
    [[nodiscard]] const PeerEvent& last_event(PeerIndex peer) const;
};

/// Polls the nodes in turn until `is_done`; false if the watchdog bites first.
[[nodiscard]] bool poll_until(const std::vector<Node*>& nodes, const std::function<bool()>& is_done);

}  // namespace gradsieve::transport::testing
