#include "transport/zmq_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <zmq.hpp>

#if defined(__SANITIZE_THREAD__)
// The packaged ZeroMQ is not built for ThreadSanitizer, so its hand-over between threads is invisible to it; nor is the
// library that it decrypts with.
extern "C" const char* __tsan_default_suppressions() {
    return "called_from_lib:libzmq.so\ncalled_from_lib:libsodium.so\n";
}
#endif

namespace gradsieve::transport {
namespace {

using std::chrono::milliseconds;

constexpr int kReconnectFirstMs = 100, kReconnectMaxMs = 1000;
constexpr int kConnectTimeoutMs = 3000;  // the kernel's own would keep a dead route for two minutes
constexpr int kHandshakeTimeoutMs = 5000;
constexpr int kKeepaliveIdleS = 10, kKeepaliveEveryS = 5, kKeepaliveCount = 3;
constexpr int kReceiveQueueMessages = 1000;  // per connection; beyond it TCP pushes back on the sender
constexpr std::size_t kSocketsMax = 60000;   // ZeroMQ takes at most 65535
constexpr int kAnswerQueueMessages = 16;     // refusals on a dialer, towards it on the listener
constexpr std::size_t kFrameShortBytesMax = 255, kFramingShortBytes = 2,
                      kFramingLongBytes = 9;  // ZMTP 3.1, section 3.2
// Around each part in a CURVE MESSAGE (ZeroMQ RFC 26): command name 8, nonce 8, authenticator 16, flags 1.
constexpr std::size_t kCurveBytes = 33;
constexpr std::size_t kInlineBytes = 32;  // ZeroMQ allocates nothing for a message up to this
constexpr const char* kZapEndpoint = "inproc://zeromq.zap.01";
constexpr const char* kZapDomain = "gradsieve";

Status zmq_status(const zmq::error_t& error, const std::string& doing) {
    StatusCode code = StatusCode::kInternal;
    if (error.num() == EADDRINUSE) code = StatusCode::kAlreadyExists;
    if (error.num() == EADDRNOTAVAIL || error.num() == EINVAL || error.num() == ENODEV)
        code = StatusCode::kInvalidArgument;
    if (error.num() == EACCES) code = StatusCode::kPermissionDenied;
    if (error.num() == EMFILE || error.num() == ENOMEM) code = StatusCode::kResourceExhausted;
    return {code, doing + ": " + error.what()};
}

/// Calls again after an interrupting signal: a message must not be left half sent or half read.
template <typename Call>
auto uninterrupted(Call call) {
    for (;;) {
        try {
            return call();
        } catch (const zmq::error_t& error) {
            if (error.num() != EINTR) throw;
        }
    }
}

int to_milliseconds(Duration duration) {
    return static_cast<int>(std::min<std::int64_t>(std::chrono::ceil<milliseconds>(duration).count(), INT32_MAX));
}

void set_connection_options(zmq::socket_t& socket, bool is_ipv6) {
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::ipv6, is_ipv6);
    socket.set(zmq::sockopt::handshake_ivl, kHandshakeTimeoutMs);
    socket.set(zmq::sockopt::tcp_keepalive, 1);
    socket.set(zmq::sockopt::tcp_keepalive_idle, kKeepaliveIdleS);
    socket.set(zmq::sockopt::tcp_keepalive_intvl, kKeepaliveEveryS);
    socket.set(zmq::sockopt::tcp_keepalive_cnt, kKeepaliveCount);
}

void set_server_keys(zmq::socket_t& socket, const std::optional<SecretKey>& secret_key) {
    if (!secret_key) return;
    socket.set(zmq::sockopt::curve_server, true);
    socket.set(zmq::sockopt::curve_secretkey, std::string_view(secret_key->text()));
    socket.set(zmq::sockopt::zap_domain, kZapDomain);
}

void set_client_keys(zmq::socket_t& socket, const std::optional<DialKeys>& keys) {
    if (!keys) return;
    socket.set(zmq::sockopt::curve_serverkey, keys->server_key);
    socket.set(zmq::sockopt::curve_publickey, keys->public_key);
    socket.set(zmq::sockopt::curve_secretkey, std::string_view(keys->secret_key.text()));
}

/// The end at which the events of `socket` come out.
std::unique_ptr<zmq::socket_t> make_monitor(zmq::context_t& context, zmq::socket_t& socket, int events) {
    const auto endpoint = "inproc://monitor-" + std::to_string(reinterpret_cast<std::uintptr_t>(socket.handle()));
    if (zmq_socket_monitor(socket.handle(), endpoint.c_str(), events) != 0) throw zmq::error_t();
    auto monitor = std::make_unique<zmq::socket_t>(context, zmq::socket_type::pair);
    monitor->set(zmq::sockopt::linger, 0);
    monitor->connect(endpoint);
    return monitor;
}

LinkChange change_of(std::uint16_t event, std::uint32_t value) {
    switch (event) {
        case ZMQ_EVENT_HANDSHAKE_SUCCEEDED: return LinkChange::kConnected;
        case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH: return LinkChange::kKeyRefused;
        case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
            return value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH ? LinkChange::kMismatch : LinkChange::kBroken;
        case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL: return LinkChange::kBroken;
        default: return LinkChange::kDisconnected;
    }
}

/// Keeps a part's bytes alive while ZeroMQ has them.
struct SentPart {
    SharedView view;
    std::shared_ptr<ByteGauge> gauge;
    std::atomic<bool> is_published{false};
};

/// Runs on ZeroMQ's thread.
void release_part(void*, void* hint) {
    auto* part = static_cast<SentPart*>(hint);
    // Pairs with the release in make_message: ZeroMQ orders the two already, but only this pair shows it to the
    // compiler and to ThreadSanitizer.
    static_cast<void>(part->is_published.load(std::memory_order_acquire));
    part->gauge->fetch_sub(part->view.bytes().size(), std::memory_order_relaxed);
    delete part;
}

zmq::message_t make_message(const SharedView& view, const std::shared_ptr<ByteGauge>& gauge) {
    // What fits into the message itself is copied: its bytes are never in two threads' hands.
    if (view.bytes().size() <= kInlineBytes) return {view.bytes().data(), view.bytes().size()};
    auto part = std::make_unique<SentPart>();
    part->view = view;
    part->gauge = gauge;
    gauge->fetch_add(view.bytes().size(), std::memory_order_relaxed);
    part->is_published.store(true, std::memory_order_release);  // pairs with the acquire in release_part
    // ZeroMQ only reads the bytes of a message that it sends.
    auto* bytes = const_cast<std::byte*>(view.bytes().data());
    zmq::message_t message(bytes, view.bytes().size(), &release_part, part.get());
    static_cast<void>(part.release());  // owned by the message from here on
    return message;
}

}  // namespace

ByteCount message_wire_bytes(std::span<const SharedView> parts, bool is_encrypted) noexcept {
    ByteCount sum = 0;
    for (const auto& part : parts) {
        const auto bytes = part.bytes().size() + (is_encrypted ? kCurveBytes : 0);
        sum += bytes + (bytes <= kFrameShortBytesMax ? kFramingShortBytes : kFramingLongBytes);
    }
    return sum;
}

Result<std::unique_ptr<ZmqContext>> ZmqContext::make(std::size_t sockets_max) {
    try {
        std::unique_ptr<ZmqContext> made(new ZmqContext);
        // ZeroMQ's own default, 1023, would do for a hundred peers.
        made->context_->set(zmq::ctxopt::max_sockets,
                            static_cast<int>(std::min<std::size_t>(sockets_max, kSocketsMax)));
        return made;
    } catch (const zmq::error_t& error) {
        return zmq_status(error, "making a ZeroMQ context");
    }
}

ZmqContext::ZmqContext() : context_(std::make_unique<zmq::context_t>(1)) {}
ZmqContext::~ZmqContext() = default;

Result<ZmqSocket> ZmqContext::make_listener(const ListenerOptions& options) {
    try {
        ZmqSocket made;
        made.socket_ = std::make_unique<zmq::socket_t>(*context_, zmq::socket_type::router);
        made.is_encrypted_ = options.secret_key.has_value();
        set_connection_options(*made.socket_, options.is_ipv6);
        set_server_keys(*made.socket_, options.secret_key);
        const auto part_limit = options.message_part_limit_bytes + (made.is_encrypted_ ? kCurveBytes : 0);
        made.socket_->set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(part_limit));
        made.socket_->set(zmq::sockopt::rcvhwm, kReceiveQueueMessages);
        made.socket_->set(zmq::sockopt::sndhwm, kAnswerQueueMessages);
        made.socket_->set(zmq::sockopt::router_mandatory, true);  // else an answer to nobody vanishes without a word
        made.socket_->set(zmq::sockopt::router_handover, true);   // a reconnecting peer replaces its half-open past
        // Not what merely hangs up: that is any port scanner.
        made.monitor_ = make_monitor(*context_, *made.socket_, ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL);
        made.socket_->bind(options.endpoint);
        return made;
    } catch (const zmq::error_t& error) {
        return zmq_status(error, "listening on " + options.endpoint);
    }
}

Result<ZmqSocket> ZmqContext::make_dialer(const DialOptions& options) {
    try {
        ZmqSocket made;
        made.socket_ = std::make_unique<zmq::socket_t>(*context_, zmq::socket_type::dealer);
        made.is_encrypted_ = options.keys.has_value();
        made.endpoint_ = options.endpoint;
        auto& socket = *made.socket_;
        set_connection_options(socket, options.is_ipv6);
        socket.set(zmq::sockopt::routing_id, zmq::const_buffer(options.routing_id.data(), options.routing_id.size()));
        set_client_keys(socket, options.keys);
        socket.set(zmq::sockopt::immediate, true);  // no queue while not connected: the hello has to go first
        socket.set(zmq::sockopt::sndhwm, options.queue_limit_messages);
        socket.set(zmq::sockopt::rcvhwm, kAnswerQueueMessages);
        socket.set(zmq::sockopt::maxmsgsize, std::int64_t{1} << 16U);  // only refusals come back
        socket.set(zmq::sockopt::reconnect_ivl, kReconnectFirstMs);
        socket.set(zmq::sockopt::reconnect_ivl_max, kReconnectMaxMs);
        socket.set(zmq::sockopt::connect_timeout, kConnectTimeoutMs);
        socket.set(zmq::sockopt::tcp_maxrt, to_milliseconds(options.unacknowledged_limit));
        made.monitor_ =
            make_monitor(*context_, socket,
                         ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                             ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL);
        socket.connect(options.endpoint);
        return made;
    } catch (const zmq::error_t& error) {
        return zmq_status(error, "connecting to " + options.endpoint);
    }
}

Result<ZmqSocket> ZmqContext::make_zap_handler() {
    try {
        ZmqSocket made;
        made.socket_ = std::make_unique<zmq::socket_t>(*context_, zmq::socket_type::rep);
        made.socket_->set(zmq::sockopt::linger, 0);
        made.socket_->bind(kZapEndpoint);
        return made;
    } catch (const zmq::error_t& error) {
        return zmq_status(error, std::string("listening on ") + kZapEndpoint);
    }
}

ZmqSocket::ZmqSocket() = default;
ZmqSocket::ZmqSocket(ZmqSocket&&) noexcept = default;
ZmqSocket& ZmqSocket::operator=(ZmqSocket&&) noexcept = default;
ZmqSocket::~ZmqSocket() {
    if (socket_ && monitor_) zmq_socket_monitor(socket_->handle(), nullptr, 0);
}

Result<SendOutcome> ZmqSocket::try_send(std::span<const SharedView> parts, const std::shared_ptr<ByteGauge>& gauge) {
    try {
        // Also takes in a connection that was made a moment ago; without it ZeroMQ looks only every few million cycles.
        uninterrupted([&] { return socket_->get(zmq::sockopt::events); });
        for (std::size_t part = 0; part < parts.size(); ++part) {
            auto message = make_message(parts[part], gauge);
            const auto more = part + 1 < parts.size() ? zmq::send_flags::sndmore : zmq::send_flags::none;
            const auto sent = uninterrupted([&] { return socket_->send(message, more | zmq::send_flags::dontwait); });
            if (!sent && part == 0) return SendOutcome::kWouldBlock;
            // The connection went away between two parts: the message is lost like any other on the way.
            if (!sent) break;
        }
        return SendOutcome::kSent;
    } catch (const zmq::error_t& error) {
        if (error.num() == EHOSTUNREACH) return SendOutcome::kWouldBlock;
        return zmq_status(error, "sending");
    }
}

Result<bool> ZmqSocket::try_receive(std::size_t parts_max, ByteCount bytes_max, std::vector<SharedView>& ret_parts,
                                    bool& ret_is_cut, std::string* ret_user) {
    std::vector<SharedView> parts;
    ByteCount bytes = 0;
    bool is_cut = false;
    try {
        for (bool is_more = true; is_more;) {
            auto message = std::make_shared<zmq::message_t>();
            if (!uninterrupted([&] { return socket_->recv(*message, zmq::recv_flags::dontwait); })) return false;
            is_more = message->more();
            if (ret_user != nullptr && !is_more) {
                const char* user = zmq_msg_gets(message->handle(), "User-Id");
                *ret_user = user == nullptr ? "" : user;
            }
            bytes += message->size();
            is_cut = is_cut || parts.size() == parts_max || bytes > bytes_max;
            if (is_cut) continue;
            const ByteView view(static_cast<const std::byte*>(message->data()), message->size());
            parts.emplace_back(std::move(message), view);
        }
    } catch (const zmq::error_t& error) {
        return zmq_status(error, "receiving");
    }
    ret_parts = std::move(parts);
    ret_is_cut = is_cut;
    return true;
}

std::optional<LinkChange> ZmqSocket::try_next_change() {
    try {
        zmq::message_t event, address;
        if (!uninterrupted([&] { return monitor_->recv(event, zmq::recv_flags::dontwait); })) return std::nullopt;
        uninterrupted([&] { return monitor_->recv(address, zmq::recv_flags::dontwait); });
        std::uint16_t number = 0;
        std::uint32_t value = 0;
        if (event.size() < sizeof number + sizeof value) return std::nullopt;
        std::memcpy(&number, event.data(), sizeof number);
        std::memcpy(&value, static_cast<const char*>(event.data()) + sizeof number, sizeof value);
        const auto change = change_of(number, value);
        // ZeroMQ takes a hang-up for bad luck, and an error in the protocol for the last word.
        has_given_up_ =
            has_given_up_ || number == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH || number == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
        return change;
    } catch (const zmq::error_t&) {
        return std::nullopt;  // the monitor is gone only if the socket is
    }
}

Status ZmqSocket::redial() {
    try {
        // What is left of the last attempt, if anything is: else endpoints would pile up.
        if (zmq_disconnect(socket_->handle(), endpoint_.c_str()) != 0 && zmq_errno() != ENOENT) throw zmq::error_t();
        socket_->connect(endpoint_);
        has_given_up_ = false;
        return {};
    } catch (const zmq::error_t& error) {
        return zmq_status(error, "connecting to " + endpoint_);
    }
}

void ZmqPoller::add(const ZmqSocket& socket) {
    items_.push_back({socket.socket_->handle(), -1});
    if (socket.monitor_) items_.push_back({socket.monitor_->handle(), -1});
}

void ZmqPoller::add(int fd) { items_.push_back({nullptr, fd}); }

Status ZmqPoller::wait(Duration timeout) {
    std::vector<zmq::pollitem_t> items;
    items.reserve(items_.size());
    for (const auto& item : items_) items.push_back({item.socket, item.fd, ZMQ_POLLIN, 0});
    try {
        zmq::poll(items, milliseconds(to_milliseconds(std::max(timeout, Duration::zero()))));
        return {};
    } catch (const zmq::error_t& error) {
        if (error.num() == EINTR) return {};
        return zmq_status(error, "waiting for frames");
    }
}

}  // namespace gradsieve::transport
