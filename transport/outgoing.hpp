// What every transport asks of a frame before it sends it, and how a body is cut into messages parts. Pure functions.
#pragma once

#include "transport/frame.hpp"

namespace gradsieve::transport {

/// Errors: kInvalidArgument (to ourselves, a type of the transport's own), kUnavailable (unknown peer),
/// kResourceExhausted (body over `limit_bytes`).
[[nodiscard]] Status check_outgoing(PeerIndex nodes, PeerIndex self, PeerIndex to, const OutFrame& frame,
                                    ByteCount limit_bytes);

/// Error kResourceExhausted if `added_bytes` more would pass the limit.
[[nodiscard]] Status check_queue(ByteCount queued_bytes, ByteCount added_bytes, ByteCount limit_bytes);

/// The parts as one piece: the part itself if it is alone, else a copy.
[[nodiscard]] SharedView joined(std::span<const SharedView> parts);

/// The frame as parts of a message, header first. A small frame is one part, copied together; behind the header of a
/// larger one, large parts stay as they are (no copy) and runs of small ones are copied together.
[[nodiscard]] std::vector<SharedView> message_parts(const FrameHeader& header, std::span<const SharedView> body);

/// A message of more parts than this is refused by the receiver; `message_parts` makes no such message.
inline constexpr std::size_t kMessagePartsMax = 1024;
/// Below this a copy is cheaper than a message part of its own.
inline constexpr ByteCount kSmallPartBytes = 1024;

}  // namespace gradsieve::transport
