#include "transport/zmq_channel.hpp"

#include "transport/frame.hpp"

#include <utility>

namespace gradsieve::transport {

namespace {
constexpr Duration kRedialAfter = std::chrono::seconds(1);  // each try costs the other side a handshake
}

Result<ZmqChannel> ZmqChannel::make(ZmqContext& context, const DialOptions& options, SharedView hello) {
    GRADSIEVE_ASSIGN(auto socket, context.make_dialer(options));
    return ZmqChannel(std::move(socket), std::move(hello));
}

ZmqChannel::ZmqChannel(ZmqSocket socket, SharedView hello) : socket_(std::move(socket)), hello_(std::move(hello)) {}

Result<std::vector<LinkChange>> ZmqChannel::take_changes() {
    std::vector<LinkChange> changes;
    while (const auto change = socket_.try_next_change()) {
        if (*change != LinkChange::kConnected && *change != LinkChange::kDisconnected) {
            changes.push_back(*change);
            continue;
        }
        const bool is_up = *change == LinkChange::kConnected;
        if (is_up == is_connected_) continue;  // an attempt that failed before it stood
        is_connected_ = is_up;
        is_hello_sent_ = false;
        is_refused_ = false;
        changes.push_back(*change);
    }
    if (!changes.empty()) GRADSIEVE_TRY(flush());
    return changes;
}

Status ZmqChannel::redial(TimePoint now) {
    if (!socket_.has_given_up()) return {};
    if (redial_at_ == TimePoint::max()) redial_at_ = now + kRedialAfter;
    if (now < redial_at_) return {};
    redial_at_ = TimePoint::max();
    return socket_.redial();
}

Status ZmqChannel::send(std::vector<SharedView> parts) {
    kept_bytes_ += body_bytes(parts);
    kept_.push_back(std::move(parts));
    return flush();
}

Status ZmqChannel::send_now_or_never(SharedView message) {
    if (!is_connected_ || is_refused_ || wants_flush()) return {};
    return transmit({&message, 1}).status();
}

Status ZmqChannel::flush() {
    if (!is_connected_ || is_refused_) return {};
    if (!is_hello_sent_) {
        GRADSIEVE_ASSIGN(const auto outcome, transmit({&hello_, 1}));
        if (outcome != SendOutcome::kSent) return {};
        is_hello_sent_ = true;
    }
    while (!kept_.empty()) {
        GRADSIEVE_ASSIGN(const auto outcome, transmit(kept_.front()));
        if (outcome != SendOutcome::kSent) return {};
        kept_bytes_ -= body_bytes(kept_.front());
        kept_.pop_front();
    }
    return {};
}

Result<SendOutcome> ZmqChannel::transmit(std::span<const SharedView> parts) {
    GRADSIEVE_ASSIGN(const auto outcome, socket_.try_send(parts, gauge_));
    if (outcome == SendOutcome::kSent) {
        sent_bytes_ += message_wire_bytes(parts, socket_.is_encrypted());
        ++sent_frames_;
    }
    return outcome;
}

}  // namespace gradsieve::transport
