#include "transport/outgoing.hpp"

#include <algorithm>

namespace gradsieve::transport {
namespace {

void append(Bytes& bytes, const SharedView& part) {
    bytes.insert(bytes.end(), part.bytes().begin(), part.bytes().end());
}

}  // namespace

Status check_outgoing(PeerIndex nodes, PeerIndex self, PeerIndex to, const OutFrame& frame, ByteCount limit_bytes) {
    if (to >= nodes) {
        return {StatusCode::kUnavailable, "frame to peer " + std::to_string(to) + ": there are " +
                                              std::to_string(nodes) + " nodes; name one of the node list"};
    }
    if (to == self) {
        return {StatusCode::kInvalidArgument, "frame to peer " + std::to_string(to) +
                                                  ": that is this node itself; a transport reaches the others only"};
    }
    if (frame.header.type < kFirstUserFrameType) {
        return {StatusCode::kInvalidArgument, "frame type " + std::to_string(frame.header.type) + ": types below " +
                                                  std::to_string(kFirstUserFrameType) +
                                                  " belong to the transport; use a higher one"};
    }
    const auto bytes = body_bytes(frame.parts);
    const auto allowed = std::min(limit_bytes, kFrameBodyBytesMax);
    if (bytes > allowed) {
        return {StatusCode::kResourceExhausted, "frame body of " + std::to_string(bytes) + " bytes: the limit is " +
                                                    std::to_string(allowed) + "; send smaller frames"};
    }
    return {};
}

Status check_queue(ByteCount queued_bytes, ByteCount added_bytes, ByteCount limit_bytes) {
    if (added_bytes <= limit_bytes && queued_bytes <= limit_bytes - added_bytes) return {};
    return {StatusCode::kResourceExhausted,
            "queue of " + std::to_string(queued_bytes) + " bytes to the peer: " + std::to_string(added_bytes) +
                " more would pass the limit of " + std::to_string(limit_bytes) + "; wait until it drains"};
}

SharedView joined(std::span<const SharedView> parts) {
    if (parts.empty()) return {};
    if (parts.size() == 1) return parts.front();
    Bytes bytes;
    bytes.reserve(body_bytes(parts));
    for (const auto& part : parts) append(bytes, part);
    return SharedView::take(std::move(bytes));
}

std::vector<SharedView> message_parts(const FrameHeader& header, std::span<const SharedView> body) {
    const auto header_bytes = build_frame_header(header, body);
    Bytes run(header_bytes.begin(), header_bytes.end());
    if (body_bytes(body) <= kSmallPartBytes) {
        for (const auto& part : body) append(run, part);
        return {SharedView::take(std::move(run))};
    }
    std::vector<SharedView> parts{SharedView::take(std::move(run))};
    run = {};
    for (const auto& part : body) {
        if (part.bytes().size() < kSmallPartBytes) {
            append(run, part);
            continue;
        }
        if (!run.empty()) parts.push_back(SharedView::take(std::exchange(run, {})));
        parts.push_back(part);
    }
    if (!run.empty()) parts.push_back(SharedView::take(std::move(run)));
    if (parts.size() > kMessagePartsMax) parts = {parts.front(), joined(body)};
    return parts;
}

}  // namespace gradsieve::transport
