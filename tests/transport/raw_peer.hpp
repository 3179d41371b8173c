// Strangers on the wire for tests: a bare ZeroMQ DEALER or TCP socket that sends whatever bytes it is told to, and a
// relay that overhears a connection.
#pragma once

#include "base/unique_fd.hpp"
#include "transport/handshake.hpp"
#include "transport/zmq_socket.hpp"
#include "transport_testing.hpp"

#include <mutex>
#include <thread>

namespace gradsieve::transport::testing {

class RawDealer {
public:
    /// `keys`: of a CURVE connection.
    RawDealer(const PeerAddress& target, Bytes routing_id, std::optional<DialKeys> keys = {});
    /// Waits for the connection, then sends one message as it is. The test fails if that takes too long.
    void send(const std::vector<Bytes>& parts);
    /// The same without waiting; false if there is no connection yet. A CURVE connection needs a node that polls.
    [[nodiscard]] bool try_send(const std::vector<Bytes>& parts);
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

/// Carries the first connection to its port on to `target`, on a thread of its own, and keeps what the caller sent.
class TcpRelay {
public:
    explicit TcpRelay(const PeerAddress& target);
    ~TcpRelay();
    TcpRelay(const TcpRelay&) = delete;
    TcpRelay& operator=(const TcpRelay&) = delete;
    [[nodiscard]] const PeerAddress& address() const noexcept { return address_; }
    /// What went towards the target so far.
    [[nodiscard]] std::string overheard() const;

private:
    void run(const PeerAddress& target);

    PeerAddress address_;
    UniqueFd listener_;
    std::atomic<bool> is_stopping_{false};
    mutable std::mutex mutex_;
    std::string overheard_;  // guarded by mutex_
    std::thread thread_;
};

}  // namespace gradsieve::transport::testing
