// The few things the transport asks of ZeroMQ, with its exceptions turned into Status here. Nothing else includes zmq,
// but curve_key.cpp.
// A socket belongs to one thread; only the release of a sent message's bytes happens on ZeroMQ's own thread.
#pragma once

#include "base/clock.hpp"
#include "base/id.hpp"
#include "base/shared_view.hpp"
#include "base/status.hpp"
#include "transport/curve_key.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zmq {
class context_t;
class socket_t;
}  // namespace zmq

namespace gradsieve::transport {

/// Bytes handed to ZeroMQ and not released yet, but for parts of a few bytes, which it copies. Added to by the network
/// thread, subtracted from by ZeroMQ's.
using ByteGauge = std::atomic<ByteCount>;

/// What a message costs on the wire: its parts, what CURVE adds to each, and ZeroMQ's own framing.
[[nodiscard]] ByteCount message_wire_bytes(std::span<const SharedView> parts, bool is_encrypted = false) noexcept;

struct ListenerOptions {
    std::string endpoint;  ///< "tcp://10.0.0.1:7077"
    bool is_ipv6 = false;
    ByteCount message_part_limit_bytes = 0;
    std::optional<SecretKey> secret_key{};  ///< CURVE; none: plain text
};
/// What a CURVE connection is opened with.
struct DialKeys {
    std::string server_key;  ///< the peer's public one
    std::string public_key;
    SecretKey secret_key;
};
struct DialOptions {
    std::string endpoint;
    bool is_ipv6 = false;
    Bytes routing_id;
    int queue_limit_messages = 0;     ///< 0 = none; beyond it messages are not taken
    Duration unacknowledged_limit{};  ///< the connection is given up when sent bytes stay unacknowledged that long; 0 =
                                      ///< never
    std::optional<DialKeys> keys{};   ///< CURVE; none: plain text
};
enum class LinkChange : std::uint8_t {
    kConnected,
    kDisconnected,
    kKeyRefused,  ///< the handshake failed: the other side knows our key, and does not want it
    kMismatch,    ///< it failed: one side wants CURVE, the other plain text
    kBroken,      ///< it failed otherwise: a wrong server key, a hang-up, or no ZeroMQ at all
};
enum class SendOutcome : std::uint8_t { kSent, kWouldBlock };

class ZmqSocket;

/// A dialer and a listener are three sockets: their own and both ends of their monitor.
inline constexpr std::size_t kSocketsPerDialer = 3, kSocketsPerListener = 3;

/// One ZeroMQ context. Must outlive its sockets; its end waits for them.
class ZmqContext {
public:
    /// For up to `sockets_max` sockets. Errors: kResourceExhausted (no descriptor or memory is free).
    [[nodiscard]] static Result<std::unique_ptr<ZmqContext>> make(std::size_t sockets_max);
    ~ZmqContext();
    ZmqContext(const ZmqContext&) = delete;
    ZmqContext& operator=(const ZmqContext&) = delete;

    /// A bound ROUTER that only lets bounded parts in. Errors: kAlreadyExists (address in use), kInvalidArgument.
    [[nodiscard]] Result<ZmqSocket> make_listener(const ListenerOptions& options);
    /// A DEALER that connects, and connects again, and queues nothing while it is not connected.
    [[nodiscard]] Result<ZmqSocket> make_dialer(const DialOptions& options);
    /// A bound REP that ZeroMQ asks about each key that comes to a listener of this context. Errors: kAlreadyExists.
    [[nodiscard]] Result<ZmqSocket> make_zap_handler();

private:
    ZmqContext();
    std::unique_ptr<zmq::context_t> context_;
};

class ZmqSocket {
public:
    ZmqSocket(ZmqSocket&&) noexcept;
    ZmqSocket& operator=(ZmqSocket&&) noexcept;
    ~ZmqSocket();

    /// One message, without a copy of any but the smallest parts: the bytes stay alive until ZeroMQ releases them, and
    /// are counted in `gauge` until then.
    [[nodiscard]] Result<SendOutcome> try_send(std::span<const SharedView> parts,
                                               const std::shared_ptr<ByteGauge>& gauge);
    /// One whole message if there is one; each part is a view that owns ZeroMQ's message. Parts beyond `parts_max` or
    /// `bytes_max` together are dropped, and `ret_is_cut` says so. `ret_user`, unless null: whom the ZAP handler named
    /// on the message's connection; empty on plain text.
    [[nodiscard]] Result<bool> try_receive(std::size_t parts_max, ByteCount bytes_max,
                                           std::vector<SharedView>& ret_parts, bool& ret_is_cut,
                                           std::string* ret_user = nullptr);
    /// Dialers: the next change of the connection, oldest first. Listeners: the next handshake that failed.
    [[nodiscard]] std::optional<LinkChange> try_next_change();
    /// Dialers: ZeroMQ does not try again after a handshake that was refused; `redial` does.
    [[nodiscard]] bool has_given_up() const noexcept { return has_given_up_; }
    [[nodiscard]] Status redial();
    [[nodiscard]] bool is_encrypted() const noexcept { return is_encrypted_; }

private:
    friend class ZmqContext;
    friend class ZmqPoller;
    ZmqSocket();
    std::unique_ptr<zmq::socket_t> socket_;
    std::unique_ptr<zmq::socket_t> monitor_;
    std::string endpoint_;
    bool is_encrypted_ = false;
    bool has_given_up_ = false;
};

/// Waits until one of its sockets or descriptors is readable.
class ZmqPoller {
public:
    void add(const ZmqSocket& socket);  ///< and its monitor
    void add(int fd);
    /// Up to `timeout`; an interrupting signal ends the wait.
    [[nodiscard]] Status wait(Duration timeout);

private:
    struct Item {
        void* socket = nullptr;
        int fd = -1;
    };
    std::vector<Item> items_;
};

}  // namespace gradsieve::transport
