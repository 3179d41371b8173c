// How every message on the local socket begins, and what is said of one that cannot be read. Used by the files that
// build and parse messages, in both programs. Pure; any thread.
#pragma once

#include "base/bytes.hpp"
#include "base/status.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace gradsieve::shm {

enum class MessageType : std::uint8_t {
    kAttachRequest = 1,
    kAttachReply = 2,
    kBindRequest = 3,
    kBindReply = 4,
    kStateRequest = 5,
    kStateReply = 6,
    kTraceRequest = 7,
    kTraceReply = 8
};

/// What a message says it is, for who expects one of several; nothing if it is cut, of another version or of no known
/// type. Parsing it then tells why.
[[nodiscard]] std::optional<MessageType> peek_message_type(ByteView bytes) noexcept;

void write_head(ByteWriter& writer, std::uint32_t abi_version, MessageType type);
/// Version first, and nothing else before it is known to be ours. `message` names it in errors. Errors:
/// kVersionMismatch, kCorrupt (cut, or another type).
[[nodiscard]] Status read_head(ByteReader& reader, const char* message, MessageType expected);
/// kCorrupt: the bytes do not have the layout of this version.
[[nodiscard]] Status unparsable(const char* message, const std::string& why);

/// A status as it travels: u16 code, text of up to kReplyTextLimitBytes (a longer one is cut).
void write_status(ByteWriter& writer, const Status& status);
/// Errors: kCorrupt.
[[nodiscard]] Status read_status(ByteReader& reader, const char* message, Status& ret_status);

}  // namespace gradsieve::shm
