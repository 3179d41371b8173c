// A stranger on the wire for tests: a bare ZeroMQ DEALER or TCP socket that sends whatever bytes it is told to.
#pragma once

#include "transport/handshake.hpp"
#include "transport/zmq_socket.hpp"
#include "transport_testing.hpp"

namespace gradsieve::transport::testing {

class RawDealer {
public:
    RawDealer(const PeerAddress& target, Bytes routing_id);
    /// Waits for the connection, then sends one message as it is. The test fails if that takes too long.
    void send(const std::vector<Bytes>& parts);
    /// The body text of the next refusal that came back, if any.
    [[nodiscard]] std::string next_refusal();

private:
    std::unique_ptr<ZmqContext> context_;
    std::optional<ZmqSocket> socket_;
    std::shared_ptr<ByteGauge> gauge_ = std::make_shared<ByteGauge>(0);
};

/// A whole frame in one piece.
[[nodiscard]] Bytes frame_bytes(const FrameHeader& header, const Bytes& body);
/// A control hello from node `from` to node `to` of the list, with an instance of its own.
[[nodiscard]] Hello hello_of(const std::vector<PeerAddress>& nodes, PeerIndex from, PeerIndex to);

/// Connects, writes the bytes and closes.
void send_raw_tcp(const PeerAddress& target, ByteView bytes);

}  // namespace gradsieve::transport::testing
