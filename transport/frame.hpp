// The bytes of one frame: a fixed header, built and parsed field by field, and the body behind it (docs/wire-format.md,
// "Frames"). Parsing reads bytes from outside and must never trust one of them. Pure functions; any thread.
#pragma once

#include "transport/transport.hpp"

#include <array>
#include <span>

namespace gradsieve::transport {

inline constexpr std::uint16_t kFrameMagic = 0x5347;  ///< the bytes "GS"
inline constexpr std::uint8_t kFrameMajor = 1;        ///< another major is refused
inline constexpr std::uint8_t kFrameMinor = 0;        ///< another minor is read: it may only add to the end of bodies
inline constexpr std::size_t kFrameHeaderBytes = 36;
inline constexpr ByteCount kFrameBodyBytesMax = UINT32_MAX;  ///< what the header's field can say

/// The transport's own types, all below kFirstUserFrameType.
inline constexpr std::uint16_t kHelloType = 1;
inline constexpr std::uint16_t kHeartbeatType = 2;
inline constexpr std::uint16_t kRefusalType = 3;

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

/// XXH3-64 without a seed.
[[nodiscard]] std::uint64_t checksum_of(ByteView bytes);

[[nodiscard]] ByteCount body_bytes(std::span<const SharedView> parts) noexcept;

/// `parts` is the body in order, at most kFrameBodyBytesMax bytes together. Reads every byte once, for the checksum.
[[nodiscard]] FrameHeaderBytes build_frame_header(const FrameHeader& header, std::span<const SharedView> parts);

/// Reads a header and checks the body against it. `header`: the first kFrameHeaderBytes of the message (fewer are
/// refused); `body`: all that follows. Errors, each with the value seen and what is allowed: kCorrupt (too short,
/// magic, length, checksum), kVersionMismatch (both versions named), kResourceExhausted (body over `limit_bytes`).
[[nodiscard]] Result<FrameHeader> parse_frame(ByteView header, ByteView body, ByteCount limit_bytes);

}  // namespace gradsieve::transport
