#include "shm/trace_message.hpp"

#include "shm/message_check.hpp"
#include "shm/message_head.hpp"

namespace gradsieve::shm {
namespace {

constexpr const char* kRequestName = "trace request";
constexpr const char* kReplyName = "trace reply";
/// Of one event in a reply.
constexpr std::size_t kEventBytes = 41;
/// Fewest bytes of one tensor and of one peer of a reply: bounds a count before anything is allocated for it.
constexpr std::size_t kTensorMinimumBytes = 3;
constexpr std::size_t kPeerMinimumBytes = 2;

Status refuse(const std::string& what, const std::string& seen, const std::string& allowed) {
    return {StatusCode::kInvalidArgument,
            "trace request: " + what + " " + seen + ": allowed is " + allowed + "; change it and ask again"};
}

Status check_name(const std::string& what, const std::string& text, bool may_be_empty) {
    if (text.size() > kNameLimitBytes || (text.empty() && !may_be_empty))
        return refuse(what, "of " + std::to_string(text.size()) + " bytes",
                      std::string(may_be_empty ? "0" : "1") + " to " + std::to_string(kNameLimitBytes));
    if (!is_printable_utf8(text)) return refuse(what, "with unprintable bytes", "printable UTF-8");
    return {};
}

/// A count that the bytes behind it can hold.
std::uint64_t read_count(ByteReader& reader, std::uint64_t limit, std::size_t minimum_bytes, bool& inout_is_ok) {
    const auto count = reader.read_varint();
    if (!reader.is_ok() || count > limit || count > reader.remaining_bytes() / minimum_bytes) inout_is_ok = false;
    return inout_is_ok ? count : 0;
}

void write_event(ByteWriter& writer, const TraceEvent& event) {
    writer.write(static_cast<std::uint8_t>(event.kind));
    writer.write(event.tensor);
    writer.write(event.who);
    writer.write(event.step);
    writer.write(event.time_ns);
    writer.write(event.until_ns);
    writer.write(event.number);
}

TraceEvent read_event(ByteReader& reader) {
    TraceEvent event;
    event.kind = static_cast<TraceEventKind>(reader.read<std::uint8_t>());
    event.tensor = reader.read<std::uint32_t>();
    event.who = reader.read<std::uint32_t>();
    event.step = reader.read<Step>();
    event.time_ns = reader.read<std::int64_t>();
    event.until_ns = reader.read<std::int64_t>();
    event.number = reader.read<std::uint64_t>();
    return event;
}

bool is_of(const TraceReply& reply, const TraceEvent& event) {
    if (event.kind < TraceEventKind::kHandIn || event.kind > TraceEventKind::kStepFailed) return false;
    if (event.kind == TraceEventKind::kFrameSent) return true;
    const bool names_group = event.kind >= TraceEventKind::kStepCommitted;
    return event.tensor < (names_group ? reply.groups.size() : reply.tensors.size());
}

Status read_head_of_reply(ByteReader& reader, TraceReply& ret_reply) {
    bool is_ok = true;
    ret_reply.node = reader.read_text(kNameLimitBytes);
    ret_reply.codec = reader.read_text(kCodecLimitBytes);
    for (auto left = read_count(reader, kTensorLimit, 1, is_ok); left > 0; --left)
        ret_reply.groups.push_back(reader.read_text(kNameLimitBytes));
    for (auto left = read_count(reader, kTensorLimit, kTensorMinimumBytes, is_ok); left > 0; --left) {
        TraceTensor tensor;
        tensor.name = reader.read_text(kNameLimitBytes);
        tensor.group = static_cast<std::uint32_t>(reader.read_varint());
        tensor.elements = reader.read_varint();
        is_ok = is_ok && tensor.group < ret_reply.groups.size();
        ret_reply.tensors.push_back(std::move(tensor));
    }
    for (auto left = read_count(reader, kWorldSizeLimit, 1, is_ok); left > 0; --left)
        ret_reply.ranks.push_back(static_cast<Rank>(reader.read_varint()));
    for (auto left = read_count(reader, kTracePeerLimit, kPeerMinimumBytes, is_ok); left > 0; --left) {
        const auto peer = static_cast<PeerIndex>(reader.read_varint());
        ret_reply.peers.push_back({peer, reader.read_text(kNameLimitBytes)});
    }
    if (is_ok && reader.is_ok()) return {};
    return unparsable(kReplyName, "it is cut, or its tensors, ranks or nodes do not fit");
}

}  // namespace

Status check_trace_request(const TraceRequest& request) {
    GRADSIEVE_TRY(check_name("job name", request.job_name, false));
    GRADSIEVE_TRY(check_name("run id", request.run_id, true));
    if (request.steps < 1 || request.steps > kTraceStepLimit)
        return refuse("steps", std::to_string(request.steps), "1 to " + std::to_string(kTraceStepLimit));
    if (request.timeout_ms < 1 || request.timeout_ms > kTraceTimeoutLimitMs)
        return refuse("timeout", std::to_string(request.timeout_ms) + " ms",
                      "1 to " + std::to_string(kTraceTimeoutLimitMs) + " ms");
    return {};
}

Bytes build_trace_request(const TraceRequest& request) {
    Bytes bytes;
    ByteWriter writer(bytes);
    write_head(writer, request.abi_version, MessageType::kTraceRequest);
    writer.write(request.number);
    writer.write_text(request.job_name);
    writer.write_text(request.run_id);
    writer.write(request.steps);
    writer.write(request.timeout_ms);
    return bytes;
}

Result<TraceRequest> parse_trace_request(ByteView bytes) {
    ByteReader reader(bytes);
    GRADSIEVE_TRY(read_head(reader, kRequestName, MessageType::kTraceRequest));
    TraceRequest request;
    request.number = reader.read<std::uint64_t>();
    request.job_name = reader.read_text(kNameLimitBytes);
    request.run_id = reader.read_text(kNameLimitBytes);
    request.steps = reader.read<std::uint32_t>();
    request.timeout_ms = reader.read<std::uint32_t>();
    if (!reader.is_done()) return unparsable(kRequestName, "it is cut, or has bytes after its end");
    GRADSIEVE_TRY(check_trace_request(request));
    return request;
}

Bytes build_trace_reply(const TraceReply& reply) {
    Bytes bytes;
    bytes.reserve(reply.events.size() * kEventBytes + reply.tensors.size() * 64 + 4096);
    ByteWriter writer(bytes);
    write_head(writer, reply.abi_version, MessageType::kTraceReply);
    writer.write(reply.number);
    write_status(writer, reply.status);
    writer.write_text(reply.node);
    writer.write_text(reply.codec);
    writer.write_varint(reply.groups.size());
    for (const auto& group : reply.groups) writer.write_text(group);
    writer.write_varint(reply.tensors.size());
    for (const auto& tensor : reply.tensors) {
        writer.write_text(tensor.name);
        writer.write_varint(tensor.group);
        writer.write_varint(tensor.elements);
    }
    writer.write_varint(reply.ranks.size());
    for (const auto rank : reply.ranks) writer.write_varint(rank);
    writer.write_varint(reply.peers.size());
    for (const auto& peer : reply.peers) {
        writer.write_varint(peer.peer);
        writer.write_text(peer.name);
    }
    writer.write(reply.begin_ns);
    writer.write(reply.end_ns);
    writer.write(reply.begin_unix_ns);
    writer.write(reply.steps_ended);
    writer.write(reply.events_lost);
    writer.write_varint(reply.events.size());
    for (const auto& event : reply.events) write_event(writer, event);
    return bytes;
}

Result<TraceReply> parse_trace_reply(ByteView bytes) {
    ByteReader reader(bytes);
    GRADSIEVE_TRY(read_head(reader, kReplyName, MessageType::kTraceReply));
    TraceReply reply;
    reply.number = reader.read<std::uint64_t>();
    GRADSIEVE_TRY(read_status(reader, kReplyName, reply.status));
    GRADSIEVE_TRY(read_head_of_reply(reader, reply));
    reply.begin_ns = reader.read<std::int64_t>();
    reply.end_ns = reader.read<std::int64_t>();
    reply.begin_unix_ns = reader.read<std::int64_t>();
    reply.steps_ended = reader.read<std::uint32_t>();
    reply.events_lost = reader.read<std::uint64_t>();
    const auto count = reader.read_varint();
    if (!reader.is_ok() || count > kTraceEventLimit || count * kEventBytes != reader.remaining_bytes())
        return unparsable(kReplyName, "it is cut, or has bytes after its end");
    reply.events.reserve(count);
    for (std::uint64_t left = count; left > 0; --left) {
        reply.events.push_back(read_event(reader));
        if (!is_of(reply, reply.events.back()))
            return unparsable(kReplyName, "an event of no known kind, or of a tensor that is not in it");
    }
    return reply;
}

}  // namespace gradsieve::shm
