// Bytes of the status page: a header page, then two copies of the document. Field by field in docs/shared-memory.md.
// Pure; any thread.
#pragma once

#include "base/bytes.hpp"

#include <cstdint>

namespace gradsieve::shm {

/// "GSVSTAT" and a zero, little-endian.
inline constexpr std::uint64_t kStatusMagic = 0x0054415453565347ULL;
inline constexpr std::uint32_t kStatusPageVersion = 1;
/// Per copy: some 8,000 tensors at 250 bytes each.
inline constexpr std::uint64_t kStatusCapacityBytes = std::uint64_t{2} << 20U;
inline constexpr std::uint64_t kStatusHeaderBytes = 4096;
inline constexpr std::uint64_t kStatusCopyHeadBytes = 64;
inline constexpr std::uint64_t kStatusHeartbeatOffset = 64;
inline constexpr std::uint64_t kStatusStateOffset = 72;

enum class StatusPageState : std::uint32_t { kRunning = 1, kStopped = 2 };

struct StatusPageHeader {
    std::uint64_t magic = kStatusMagic;
    std::uint32_t version = kStatusPageVersion;
    std::uint32_t pid = 0;
    std::uint64_t start_ticks = 0;  ///< of the process, since boot
    std::uint64_t boot_hash = 0;
    std::uint64_t pid_namespace = 0;  ///< where `pid` means something
    std::uint64_t capacity_bytes = kStatusCapacityBytes;
    std::int64_t heartbeat_ns = 0;  ///< CLOCK_MONOTONIC
    StatusPageState state = StatusPageState::kRunning;
};
/// Exactly kStatusHeaderBytes.
[[nodiscard]] Bytes build_status_header(const StatusPageHeader& header);
/// `bytes`: kStatusHeaderBytes; the caller judges magic and version first.
[[nodiscard]] StatusPageHeader parse_status_header(ByteView bytes);

/// Stands before each copy of the document.
struct StatusCopyHead {
    std::uint64_t sequence = 0;  ///< odd while the copy is being written; the larger even one is the newer
    std::uint64_t length_bytes = 0;
    std::uint64_t checksum = 0;
};
/// Exactly kStatusCopyHeadBytes.
[[nodiscard]] Bytes build_status_copy_head(const StatusCopyHead& head);
[[nodiscard]] StatusCopyHead parse_status_copy_head(ByteView bytes);

/// XXH3-64 of the document, seeded with its (even) sequence.
[[nodiscard]] std::uint64_t status_checksum(std::uint64_t sequence, ByteView document) noexcept;

[[nodiscard]] constexpr std::uint64_t status_copy_offset(std::uint64_t index, std::uint64_t capacity_bytes) noexcept {
    return kStatusHeaderBytes + index * (kStatusCopyHeadBytes + capacity_bytes);
}
[[nodiscard]] constexpr std::uint64_t status_file_bytes(std::uint64_t capacity_bytes) noexcept {
    return status_copy_offset(2, capacity_bytes);
}

}  // namespace gradsieve::shm
