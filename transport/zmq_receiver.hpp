// The listening side: takes messages off the ROUTER, checks them, and knows by their hellos who speaks on which
// connection; with CURVE, the connection's key has to agree. Must never trust a byte of a message, nor a routing id
// that no valid hello vouched for. Network thread.
#pragma once

#include "transport/handshake.hpp"
#include "transport/zmq_socket.hpp"

#include <map>
#include <optional>
#include <variant>

namespace gradsieve::transport {

/// A message that was taken.
struct Arrival {
    PeerIndex from = 0;
    std::uint64_t instance = 0;
    ByteCount wire_bytes = 0;
    bool is_hello = false;
    std::optional<std::uint64_t> tick;  ///< a heartbeat
    std::optional<InFrame> frame;       ///< for our user
};
/// A message that was not.
struct Refusal {
    std::optional<PeerIndex> from;  ///< none: no valid hello came on its connection
    ByteCount wire_bytes = 0;
    std::string text;
};

class ZmqReceiver {
public:
    ZmqReceiver(ZmqSocket listener, std::vector<PeerAddress> nodes, PeerIndex self, ByteCount frame_limit_bytes);

    /// The next message, or nothing if none is there.
    [[nodiscard]] Result<std::optional<std::variant<Arrival, Refusal>>> try_receive();
    /// Takes in handshakes that failed at the listener; what is news is appended.
    void take_failures(std::vector<Notice>& ret_notices);
    [[nodiscard]] std::uint64_t handshakes_failed() const noexcept { return handshakes_failed_; }
    [[nodiscard]] const std::string& last_failure() const noexcept { return last_failure_; }
    [[nodiscard]] ZmqSocket& socket() noexcept { return listener_; }

private:
    struct Sender {
        PeerIndex peer = 0;
        std::uint64_t instance = 0;
    };
    using Outcome = std::variant<Arrival, Refusal>;
    [[nodiscard]] Result<Arrival> judge(const std::vector<SharedView>& parts, std::optional<PeerIndex> key_owner);
    [[nodiscard]] Result<Arrival> judge_hello(const SharedView& routing_id, const SharedView& body,
                                              std::optional<PeerIndex> key_owner);
    /// Error kPermissionDenied: the key of the connection is another node's than `claimed`.
    [[nodiscard]] Status check_key(PeerIndex claimed, std::optional<PeerIndex> key_owner) const;
    void refuse_hello(const SharedView& routing_id, const Status& cause);
    [[nodiscard]] Status unknown_sender(const SharedView& routing_id, std::uint16_t type) const;

    ZmqSocket listener_;
    std::vector<PeerAddress> nodes_;
    PeerIndex self_;
    ByteCount frame_limit_bytes_;
    std::map<std::string, Sender> senders_;  ///< by routing id; bounded: one per connection a node of the list may open
    std::map<std::string, std::string> refused_;  ///< causes by routing id; cleared when it has grown to a bound
    std::shared_ptr<ByteGauge> answer_gauge_ = std::make_shared<ByteGauge>(0);
    std::uint64_t handshakes_failed_ = 0;
    std::string last_failure_;
    bool has_said_mismatch_ = false, has_said_broken_ = false;
};

}  // namespace gradsieve::transport
