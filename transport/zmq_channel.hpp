// One of our connections to one peer: says hello whenever it is connected, before anything else, and keeps frames back
// while it is not. What ZeroMQ had taken when a connection closes is lost; the peer's kClosed says so. Network thread.
#pragma once

#include "transport/zmq_socket.hpp"

#include <deque>

namespace gradsieve::transport {

class ZmqChannel {
public:
    /// `hello`: a whole message of one part.
    [[nodiscard]] static Result<ZmqChannel> make(ZmqContext& context, const DialOptions& options, SharedView hello);

    /// Takes in changes of the connection and handshakes that failed, oldest first; after a kConnected the hello is on
    /// its way.
    [[nodiscard]] Result<std::vector<LinkChange>> take_changes();
    /// Connects again, a while after ZeroMQ has given up. Call it in every turn.
    [[nodiscard]] Status redial(TimePoint now);
    /// When to call `redial` next; far away unless ZeroMQ has given up.
    [[nodiscard]] TimePoint redial_at() const noexcept { return redial_at_; }
    /// Sends now, or keeps it back until the connection stands.
    [[nodiscard]] Status send(std::vector<SharedView> parts);
    /// Sends if the connection stands, else drops: for what is worthless later.
    [[nodiscard]] Status send_now_or_never(SharedView message);
    /// The other side refused our hello: nothing more is sent on this connection, for it would be refused too.
    void on_refused() noexcept { is_refused_ = true; }
    /// Sends what was kept back, as far as it goes.
    [[nodiscard]] Status flush();

    [[nodiscard]] bool is_connected() const noexcept { return is_connected_; }
    /// Something waits though the connection stands: call `flush` again soon.
    [[nodiscard]] bool wants_flush() const noexcept {
        return is_connected_ && !is_refused_ && (!is_hello_sent_ || !kept_.empty());
    }
    /// Kept back, or taken by ZeroMQ and not yet by the kernel.
    [[nodiscard]] ByteCount queued_bytes() const noexcept {
        return kept_bytes_ + gauge_->load(std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t sent_bytes() const noexcept { return sent_bytes_; }
    [[nodiscard]] std::uint64_t sent_frames() const noexcept { return sent_frames_; }
    [[nodiscard]] ZmqSocket& socket() noexcept { return socket_; }

private:
    ZmqChannel(ZmqSocket socket, SharedView hello);
    [[nodiscard]] Result<SendOutcome> transmit(std::span<const SharedView> parts);

    ZmqSocket socket_;
    SharedView hello_;
    std::deque<std::vector<SharedView>> kept_;
    ByteCount kept_bytes_ = 0;
    std::shared_ptr<ByteGauge> gauge_ = std::make_shared<ByteGauge>(0);
    bool is_connected_ = false;
    bool is_hello_sent_ = false;  ///< on the present connection
    bool is_refused_ = false;     ///< likewise
    TimePoint redial_at_ = TimePoint::max();
    std::uint64_t sent_bytes_ = 0;
    std::uint64_t sent_frames_ = 0;
};

}  // namespace gradsieve::transport
