#include "shm/state_message.hpp"

#include "shm/message_check.hpp"
#include "shm/message_head.hpp"

namespace gradsieve::shm {
namespace {

constexpr const char* kRequestName = "state request";
constexpr const char* kReplyName = "state reply";
/// Fewest bytes of one entry of a reply: bounds a count before anything is allocated for it.
constexpr std::size_t kPartMinimumBytes = 27;

Status refuse(const std::string& what, const std::string& seen, const std::string& allowed) {
    return {StatusCode::kInvalidArgument,
            "state request: " + what + " " + seen + ": allowed is " + allowed + "; change it and ask again"};
}

Status check_text(const std::string& what, const std::string& text, bool may_be_empty) {
    if (text.size() > kNameLimitBytes || (text.empty() && !may_be_empty))
        return refuse(what, "of " + std::to_string(text.size()) + " bytes",
                      std::string(may_be_empty ? "0" : "1") + " to " + std::to_string(kNameLimitBytes));
    if (!is_printable_utf8(text)) return refuse(what, "with unprintable bytes", "printable UTF-8");
    return {};
}

Result<SnapshotPart> read_part(ByteReader& reader) {
    SnapshotPart part;
    part.group = reader.read_text(kNameLimitBytes);
    part.step = reader.read<Step>();
    part.node = reader.read_text(kNameLimitBytes);
    const auto ranks = reader.read_varint();
    if (!reader.is_ok() || ranks > reader.remaining_bytes())
        return unparsable(kReplyName, "an entry is cut, or has more ranks than bytes");
    part.ranks.reserve(ranks);
    for (std::uint64_t index = 0; index < ranks; ++index) part.ranks.push_back(static_cast<Rank>(reader.read_varint()));
    part.digest = reader.read<std::uint64_t>();
    part.bytes = reader.read<ByteCount>();
    if (!reader.is_ok()) return unparsable(kReplyName, "an entry is cut");
    return part;
}

}  // namespace

Status check_state_request(const StateRequest& request) {
    GRADSIEVE_TRY(check_text("job name", request.job_name, false));
    GRADSIEVE_TRY(check_text("run id", request.run_id, true));
    GRADSIEVE_TRY(check_text("group", request.group, true));
    if (request.kind < StateRequestKind::kSave || request.kind > StateRequestKind::kChoose)
        return refuse("kind", std::to_string(static_cast<unsigned>(request.kind)), "1 to 6");
    constexpr Step kStepLimit = Step{1} << 62U;
    if (request.step >= kStepLimit) return refuse("step", std::to_string(request.step), "0 to 2^62 - 1");
    const bool needs_step = request.kind == StateRequestKind::kResume || request.kind == StateRequestKind::kRead;
    if (needs_step && request.step == 0) return refuse("step", "0", "1 to 2^62 - 1");
    return {};
}

Bytes build_state_request(const StateRequest& request) {
    Bytes bytes;
    ByteWriter writer(bytes);
    write_head(writer, request.abi_version, MessageType::kStateRequest);
    writer.write(static_cast<std::uint8_t>(request.kind));
    writer.write(request.number);
    writer.write_text(request.job_name);
    writer.write_text(request.run_id);
    writer.write_text(request.group);
    writer.write(static_cast<std::uint8_t>(request.is_of_all_groups ? 1 : 0));
    writer.write(request.step);
    writer.write(request.digest);
    return bytes;
}

Result<StateRequest> parse_state_request(ByteView bytes) {
    ByteReader reader(bytes);
    GRADSIEVE_TRY(read_head(reader, kRequestName, MessageType::kStateRequest));
    StateRequest request;
    request.kind = static_cast<StateRequestKind>(reader.read<std::uint8_t>());
    request.number = reader.read<std::uint64_t>();
    request.job_name = reader.read_text(kNameLimitBytes);
    request.run_id = reader.read_text(kNameLimitBytes);
    request.group = reader.read_text(kNameLimitBytes);
    const auto flags = reader.read<std::uint8_t>();
    request.is_of_all_groups = flags == 1;
    request.step = reader.read<Step>();
    request.digest = reader.read<std::uint64_t>();
    if (!reader.is_done() || flags > 1) return unparsable(kRequestName, "it is cut, or has bytes after its end");
    GRADSIEVE_TRY(check_state_request(request));
    return request;
}

Bytes build_state_reply(const StateReply& reply) {
    Bytes bytes;
    ByteWriter writer(bytes);
    write_head(writer, reply.abi_version, MessageType::kStateReply);
    writer.write(reply.number);
    write_status(writer, reply.status);
    writer.write_varint(reply.parts.size());
    for (const auto& part : reply.parts) {
        writer.write_text(part.group);
        writer.write(part.step);
        writer.write_text(part.node);
        writer.write_varint(part.ranks.size());
        for (const auto rank : part.ranks) writer.write_varint(rank);
        writer.write(part.digest);
        writer.write(part.bytes);
    }
    return bytes;
}

Result<StateReply> parse_state_reply(ByteView bytes) {
    ByteReader reader(bytes);
    GRADSIEVE_TRY(read_head(reader, kReplyName, MessageType::kStateReply));
    StateReply reply;
    reply.number = reader.read<std::uint64_t>();
    GRADSIEVE_TRY(read_status(reader, kReplyName, reply.status));
    const auto count = reader.read_varint();
    if (!reader.is_ok() || count > kSnapshotPartLimit || count > reader.remaining_bytes() / kPartMinimumBytes)
        return unparsable(kReplyName, "it is cut, or too short for its entries");
    for (std::uint64_t index = 0; index < count; ++index) {
        GRADSIEVE_ASSIGN(auto part, read_part(reader));
        reply.parts.push_back(std::move(part));
    }
    if (!reader.is_done()) return unparsable(kReplyName, "bytes after its end");
    return reply;
}

}  // namespace gradsieve::shm
