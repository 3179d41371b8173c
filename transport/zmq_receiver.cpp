#include "transport/zmq_receiver.hpp"

#include "transport/outgoing.hpp"
#include "transport/zmq_zap.hpp"

#include <algorithm>
#include <utility>

namespace gradsieve::transport {
namespace {

constexpr std::size_t kRoutingIdBytesMax = 255;
constexpr std::size_t kRefusedMax = 256;  // strangers may come with any number of routing ids
constexpr std::size_t kFailuresPerTurn = 256;

std::string key_of(const SharedView& routing_id) {
    const auto bytes = routing_id.bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The body behind the header: a view of ZeroMQ's message if it is in one piece, else a copy.
SharedView body_of(std::span<const SharedView> frame_parts) {
    const auto& first = frame_parts.front();
    const auto header_bytes = std::min(first.bytes().size(), kFrameHeaderBytes);
    std::vector<SharedView> pieces;
    if (first.bytes().size() > header_bytes)
        pieces.push_back(first.part(header_bytes, first.bytes().size() - header_bytes));
    pieces.insert(pieces.end(), frame_parts.begin() + 1, frame_parts.end());
    return joined(pieces);
}

}  // namespace

ZmqReceiver::ZmqReceiver(ZmqSocket listener, std::vector<PeerAddress> nodes, PeerIndex self,
                         ByteCount frame_limit_bytes)
    : listener_(std::move(listener)), nodes_(std::move(nodes)), self_(self), frame_limit_bytes_(frame_limit_bytes) {}

Result<std::optional<std::variant<Arrival, Refusal>>> ZmqReceiver::try_receive() {
    std::vector<SharedView> parts;
    std::string user;
    bool is_cut = false;
    const auto bytes_max = kRoutingIdBytesMax + kFrameHeaderBytes + frame_limit_bytes_;
    GRADSIEVE_ASSIGN(const bool is_there, listener_.try_receive(kMessagePartsMax + 1, bytes_max, parts, is_cut,
                                                                listener_.is_encrypted() ? &user : nullptr));
    if (!is_there) return std::optional<Outcome>();
    const auto key_owner = node_of_user(user);
    const auto wire_bytes =
        message_wire_bytes(std::span(parts).subspan(std::min<std::size_t>(1, parts.size())), listener_.is_encrypted());
    Result<Arrival> judged =
        Status(StatusCode::kResourceExhausted, "message of too many bytes or parts: the limits are " +
                                                   std::to_string(frame_limit_bytes_) + " bytes and " +
                                                   std::to_string(kMessagePartsMax) + " parts; send smaller frames");
    if (!is_cut) judged = judge(parts, key_owner);
    if (judged.is_ok()) {
        judged->wire_bytes = wire_bytes;
        return std::optional<Outcome>(std::move(*judged));
    }
    Refusal refusal{key_owner, wire_bytes, judged.error().text()};
    const auto sender = parts.empty() || key_owner ? senders_.end() : senders_.find(key_of(parts.front()));
    if (sender != senders_.end()) refusal.from = sender->second.peer;
    return std::optional<Outcome>(std::move(refusal));
}

void ZmqReceiver::take_failures(std::vector<Notice>& ret_notices) {
    for (std::size_t count = 0; count < kFailuresPerTurn; ++count) {
        const auto change = listener_.try_next_change();
        if (!change) return;
        ++handshakes_failed_;
        const bool is_mismatch = *change == LinkChange::kMismatch;
        const bool wants_curve = listener_.is_encrypted();
        last_failure_ =
            is_mismatch && wants_curve ? "connection in plain text refused: needed is CURVE; set security the same in "
                                         "[network] on all nodes"
            : is_mismatch
                ? "connection that wants CURVE refused: this node speaks plain text; set security the same in "
                  "[network] on all nodes"
            : wants_curve
                ? "connection refused in the handshake: it was made for another key than this node's; give the "
                  "other nodes its present public_key"
                : "connection refused in the handshake: it does not speak ZeroMQ's protocol; is the sender a "
                  "gradsieve node?";
        if (!std::exchange(is_mismatch ? has_said_mismatch_ : has_said_broken_, true))
            ret_notices.push_back({"", last_failure_});
    }
}

Status ZmqReceiver::check_key(PeerIndex claimed, std::optional<PeerIndex> key_owner) const {
    if (!listener_.is_encrypted() || key_owner == claimed) return {};
    const auto owner = key_owner && *key_owner < nodes_.size() ? "node " + nodes_[*key_owner].name : "no node";
    return {StatusCode::kPermissionDenied, "the key of " + owner + " speaks as node " + nodes_[claimed].name +
                                               ": each node has to use its own; check --node and the key file there"};
}

Result<Arrival> ZmqReceiver::judge(const std::vector<SharedView>& parts, std::optional<PeerIndex> key_owner) {
    if (parts.size() < 2)
        return Status(StatusCode::kCorrupt, "empty message: a frame has a header; is the sender a gradsieve node?");
    const auto& routing_id = parts.front();
    const auto& first = parts[1];
    auto body = body_of(std::span(parts).subspan(1));
    auto header = parse_frame(first.bytes(), body.bytes(), frame_limit_bytes_);
    if (!header.is_ok()) {
        if (header.error().code() == StatusCode::kVersionMismatch) refuse_hello(routing_id, header.error());
        return header.error();
    }
    if (header->type == kHelloType) return judge_hello(routing_id, body, key_owner);
    const auto sender = senders_.find(key_of(routing_id));
    if (sender == senders_.end()) return unknown_sender(routing_id, header->type);
    // Another node may have taken the routing id over since its hello.
    GRADSIEVE_TRY(check_key(sender->second.peer, key_owner));
    Arrival arrival;
    arrival.from = sender->second.peer;
    arrival.instance = sender->second.instance;
    if (header->type == kHeartbeatType) {
        arrival.tick = parse_heartbeat(body.bytes());
        if (!arrival.tick)
            return Status(StatusCode::kCorrupt, "heartbeat of " + std::to_string(body.bytes().size()) +
                                                    " bytes: 8 are needed; install the same release on all nodes");
    }
    // Other types of the transport's own come from a later minor version: a sign of life, and no more.
    if (header->type >= kFirstUserFrameType) arrival.frame = InFrame{arrival.from, *header, std::move(body)};
    return arrival;
}

Result<Arrival> ZmqReceiver::judge_hello(const SharedView& routing_id, const SharedView& body,
                                         std::optional<PeerIndex> key_owner) {
    auto hello = parse_hello(body.bytes());
    if (!hello.is_ok()) return hello.error();
    auto status = check_hello(*hello, nodes_, self_);
    if (status.is_ok()) status = check_key(hello->from, key_owner);
    const auto expected_id = build_routing_id(*hello);
    if (status.is_ok() && !std::ranges::equal(routing_id.bytes(), expected_id)) {
        status = {
            StatusCode::kCorrupt,
            "hello of " + hello->name + ": it differs from its connection's id; install the same release on all nodes"};
    }
    if (!status.is_ok()) {
        refuse_hello(routing_id, status);
        return status;
    }
    // A newer life of the peer ends what the older one may still say.
    std::erase_if(senders_, [&](const auto& entry) {
        return entry.second.peer == hello->from && entry.second.instance != hello->instance;
    });
    senders_[key_of(routing_id)] = {hello->from, hello->instance};
    refused_.erase(key_of(routing_id));
    Arrival arrival;
    arrival.from = hello->from;
    arrival.instance = hello->instance;
    arrival.is_hello = true;
    return arrival;
}

Status ZmqReceiver::unknown_sender(const SharedView& routing_id, std::uint16_t type) const {
    const auto cause = refused_.find(key_of(routing_id));
    const std::string subject = "frame of type " + std::to_string(type);
    if (cause != refused_.end())
        return {StatusCode::kFailedPrecondition, subject + " after a refused hello: " + cause->second};
    return {StatusCode::kFailedPrecondition,
            subject + " before a valid hello: nothing was taken from it; is the sender a gradsieve node?"};
}

void ZmqReceiver::refuse_hello(const SharedView& routing_id, const Status& cause) {
    if (refused_.size() >= kRefusedMax) refused_.clear();
    refused_[key_of(routing_id)] = cause.text();
    const auto body = SharedView::take(build_refusal(cause.text()));
    std::vector<SharedView> parts{routing_id};
    for (auto& part : message_parts({kRefusalType, 0, 0}, {&body, 1})) parts.push_back(std::move(part));
    // Best effort: the sender may be gone, and its not knowing why is no harm to us.
    static_cast<void>(listener_.try_send(parts, answer_gauge_));
}

}  // namespace gradsieve::transport
