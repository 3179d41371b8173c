#include "transport/zmq_peer.hpp"

#include "transport/local_network.hpp"
#include "transport/outgoing.hpp"

#include <algorithm>

namespace gradsieve::transport {
namespace {

constexpr std::size_t kControlChannel = 0, kHeartbeatChannel = 1, kFirstDataChannel = 2;
constexpr int kHeartbeatQueueMessages = 16;  // older ones would say nothing new
// A daemon that starts, stops or notices a mismatch first hangs up in the handshake too: only so many in a row are a
// cause of their own.
constexpr std::size_t kBrokenTold = 15;

Hello hello_to(const ZmqOptions& options, PeerIndex peer, std::uint64_t instance, std::size_t channel) {
    Hello hello;
    hello.from = options.self;
    hello.to = peer;
    hello.kind = static_cast<ConnectionKind>(std::min(channel, kFirstDataChannel));
    hello.lane = static_cast<std::uint16_t>(channel < kFirstDataChannel ? 0 : channel - kFirstDataChannel);
    hello.lanes = static_cast<std::uint16_t>(options.lanes);
    hello.instance = instance;
    hello.list = digest_of(options.nodes);
    hello.name = options.nodes[options.self].name;
    return hello;
}

}  // namespace

ZmqPeer::ZmqPeer(const ZmqOptions& options, PeerIndex peer)
    : node_(options.nodes[peer]),
      self_(options.nodes[options.self]),
      peer_(peer),
      secret_key_(options.secret_key),
      life_(peer, peer_text(node_), options.silent_after, kFirstDataChannel + options.lanes) {}

Status ZmqPeer::dial(ZmqContext& context, const ZmqOptions& options, std::uint64_t instance, ZmqPoller& poller) {
    const bool is_ipv6 = needs_ipv6(node_.host);
    for (std::size_t channel = 0; channel < kFirstDataChannel + options.lanes; ++channel) {
        const auto hello = hello_to(options, peer_, instance, channel);
        const bool is_heartbeat = channel == kHeartbeatChannel;
        DialOptions dialing;
        dialing.endpoint = "tcp://" + address_text(node_);
        dialing.is_ipv6 = is_ipv6;
        dialing.routing_id = build_routing_id(hello);
        dialing.queue_limit_messages = is_heartbeat ? kHeartbeatQueueMessages : 0;
        if (secret_key_) dialing.keys = DialKeys{node_.public_key, self_.public_key, *secret_key_};
        // Heartbeats that nobody acknowledges mean a dead route; a new connection finds the way back sooner than TCP's
        // doubling pauses. Losing them loses nothing.
        dialing.unacknowledged_limit = is_heartbeat ? 2 * options.silent_after : Duration::zero();
        const auto body = SharedView::take(build_hello(hello));
        const auto message = joined(message_parts({kHelloType, 0, 0}, {&body, 1}));
        GRADSIEVE_ASSIGN(auto made, ZmqChannel::make(context, dialing, message));
        poller.add(made.socket());
        channels_.push_back(std::move(made));
    }
    return {};
}

Status ZmqPeer::send(Lane lane, const OutFrame& frame, ByteCount queue_limit_bytes,
                     std::vector<PeerEvent>& ret_events) {
    GRADSIEVE_TRY(check_queue(queued_bytes(), body_bytes(frame.parts), queue_limit_bytes));
    std::size_t channel = kControlChannel;
    if (lane == Lane::kData) channel = kFirstDataChannel + next_lane_++ % (channels_.size() - kFirstDataChannel);
    // A connection made anew since the last turn must see its hello before this frame.
    GRADSIEVE_TRY(take_changes_of(channel, ret_events));
    return channels_[channel].send(message_parts(frame.header, frame.parts));
}

Status ZmqPeer::send_heartbeat(const SharedView& message) {
    if (channels_.empty()) return {};
    return channels_[kHeartbeatChannel].send_now_or_never(message);
}

Status ZmqPeer::take_changes(std::vector<PeerEvent>& ret_events) {
    for (std::size_t channel = 0; channel < channels_.size(); ++channel) {
        GRADSIEVE_TRY(take_changes_of(channel, ret_events));
        if (channels_[channel].wants_flush()) GRADSIEVE_TRY(channels_[channel].flush());
    }
    return {};
}

Status ZmqPeer::take_changes_of(std::size_t channel, std::vector<PeerEvent>& ret_events) {
    GRADSIEVE_ASSIGN(const auto changes, channels_[channel].take_changes());
    for (const auto change : changes) {
        if (change == LinkChange::kConnected) {
            handshake_.clear();
            broken_in_row_ = 0;
            is_cause_known_ = false;
            life_.on_connected(channel, ret_events);
        } else if (change == LinkChange::kDisconnected) {
            life_.on_disconnected(channel, ret_events);
        } else {
            on_handshake_failed(change);
        }
    }
    return {};
}

void ZmqPeer::on_handshake_failed(LinkChange how) {
    if (how == LinkChange::kBroken && (is_cause_known_ || ++broken_in_row_ < kBrokenTold)) return;
    is_cause_known_ = how != LinkChange::kBroken;
    auto text = handshake_text(how);
    if (text == handshake_) return;
    handshake_ = std::move(text);
    notices_.push_back({node_.name, handshake_});
}

std::string ZmqPeer::handshake_text(LinkChange how) const {
    const auto peer = peer_text(node_);
    if (how == LinkChange::kKeyRefused)
        return "key refused by " + peer + ": it must have " + self_.public_key + " as the public_key of node " +
               self_.name + "; enter it there, then reload that daemon";
    if (how == LinkChange::kMismatch && secret_key_)
        return peer + " speaks plain text: this node wants CURVE; set security the same in [network] on all nodes";
    if (how == LinkChange::kMismatch)
        return peer + " wants CURVE: this node speaks plain text; set security the same in [network] on all nodes";
    if (secret_key_)
        return peer + " ends the handshake: it must own the key " + node_.public_key +
               " and want CURVE; compare with 'gradsieve keygen --show' and [network] there";
    return peer + " ends the handshake: it must be a gradsieve node that speaks plain text; look at its [network]";
}

Status ZmqPeer::redial(TimePoint now) {
    for (auto& channel : channels_) GRADSIEVE_TRY(channel.redial(now));
    return {};
}

TimePoint ZmqPeer::redial_at() const noexcept {
    auto due = TimePoint::max();
    for (const auto& channel : channels_) due = std::min(due, channel.redial_at());
    return due;
}

void ZmqPeer::take_notices(std::vector<Notice>& ret_notices) {
    for (auto& notice : notices_) ret_notices.push_back(std::move(notice));
    notices_.clear();
}

Status ZmqPeer::take_answers(std::vector<PeerEvent>& ret_events) {
    for (auto& channel : channels_) GRADSIEVE_TRY(take_answers_of(channel, ret_events));
    return {};
}

Status ZmqPeer::take_answers_of(ZmqChannel& channel, std::vector<PeerEvent>& ret_events) {
    std::vector<SharedView> parts;
    bool is_cut = false;
    for (;;) {
        const auto bytes_max = kFrameHeaderBytes + 2 * kRefusalTextBytesMax;
        GRADSIEVE_ASSIGN(const bool is_there, channel.socket().try_receive(1, bytes_max, parts, is_cut));
        if (!is_there) return {};
        ++frames_refused_;
        const auto message = is_cut || parts.empty() ? ByteView() : parts.front().bytes();
        const auto body = message.subspan(std::min(message.size(), kFrameHeaderBytes));
        const auto header = parse_frame(message, body, bytes_max);
        const auto text = header.is_ok() && header->type == kRefusalType ? parse_refusal(body) : std::nullopt;
        if (text) {
            channel.on_refused();
            last_refusal_ = "refused by " + node_.name + ": " + *text;
            life_.on_refused(*text, ret_events);
        } else {
            last_refusal_ = "answer that is no refusal: " + header.status().text();
        }
    }
}

void ZmqPeer::on_arrival(const Arrival& arrival, TimePoint now, std::vector<PeerEvent>& ret_events) {
    bytes_received_ += arrival.wire_bytes;
    ++frames_received_;
    if (arrival.tick) tick_ = *arrival.tick;
    if (arrival.is_hello) {
        life_.on_hello(arrival.instance, now, ret_events);
    } else {
        life_.on_heard(now, ret_events);
    }
}

void ZmqPeer::on_refusal(const Refusal& refusal) {
    bytes_received_ += refusal.wire_bytes;
    ++frames_refused_;
    last_refusal_ = refusal.text;
}

bool ZmqPeer::wants_flush() const noexcept {
    return std::any_of(channels_.begin(), channels_.end(),
                       [](const ZmqChannel& channel) { return channel.wants_flush(); });
}

ByteCount ZmqPeer::queued_bytes() const noexcept {
    ByteCount sum = 0;
    for (const auto& channel : channels_) sum += channel.queued_bytes();
    return sum;
}

PeerCounters ZmqPeer::counters() const {
    PeerCounters counters;
    for (const auto& channel : channels_) {
        counters.bytes_sent += channel.sent_bytes();
        counters.frames_sent += channel.sent_frames();
    }
    counters.bytes_received = bytes_received_;
    counters.frames_received = frames_received_;
    counters.frames_refused = frames_refused_;
    counters.queued_bytes = queued_bytes();
    counters.last_refusal = last_refusal_;
    counters.state = life_.state();
    counters.peer_tick = tick_;
    counters.last_heard = life_.last_heard();
    counters.address = address_text(node_);
    counters.handshake = handshake_;
    return counters;
}

}  // namespace gradsieve::transport
