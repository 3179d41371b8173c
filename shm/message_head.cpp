#include "shm/message_head.hpp"

#include "shm/control_header.hpp"
#include "shm/message.hpp"

namespace gradsieve::shm {

std::optional<MessageType> peek_message_type(ByteView bytes) noexcept {
    ByteReader reader(bytes);
    const auto version = reader.read<std::uint32_t>();
    const auto type = reader.read<std::uint8_t>();
    if (!reader.is_ok() || version != kAbiVersion || type < 1 ||
        type > static_cast<std::uint8_t>(MessageType::kTraceReply))
        return std::nullopt;
    return static_cast<MessageType>(type);
}

void write_head(ByteWriter& writer, std::uint32_t abi_version, MessageType type) {
    writer.write(abi_version);
    writer.write(static_cast<std::uint8_t>(type));
}

Status read_head(ByteReader& reader, const char* message, MessageType expected) {
    const auto version = reader.read<std::uint32_t>();
    if (!reader.is_ok()) return unparsable(message, "it ends within its version");
    if (version != kAbiVersion) return version_mismatch(version, kAbiVersion);
    const auto type = reader.read<std::uint8_t>();
    if (type != static_cast<std::uint8_t>(expected)) {
        return unparsable(message, "message type " + std::to_string(type) + ", expected " +
                                       std::to_string(static_cast<unsigned>(expected)));
    }
    return {};
}

Status unparsable(const char* message, const std::string& why) {
    return {StatusCode::kCorrupt, std::string(message) + ": " + why + "; allowed is the layout of ABI version " +
                                      std::to_string(kAbiVersion) +
                                      "; use libgradsieve and gradsieved of the same release"};
}

void write_status(ByteWriter& writer, const Status& status) {
    writer.write(static_cast<std::uint16_t>(status.code()));
    writer.write_text(std::string_view(status.text()).substr(0, kReplyTextLimitBytes));
}

Status read_status(ByteReader& reader, const char* message, Status& ret_status) {
    const auto code = reader.read<std::uint16_t>();
    auto text = reader.read_text(kReplyTextLimitBytes);
    if (!reader.is_ok()) return unparsable(message, "it is cut, or its text is too long");
    if (code > static_cast<std::uint16_t>(StatusCode::kCancelled))
        return unparsable(message, "status code " + std::to_string(code) + ", expected 0 to 18");
    ret_status = Status(static_cast<StatusCode>(code), std::move(text));
    return {};
}

}  // namespace gradsieve::shm
