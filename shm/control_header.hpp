// The head of the control segment: says what it is, which version made it and when it is ready. Written once by the
// daemon, read once by the client at attach; both ends compute the layout themselves and only compare.
#pragma once

#include "base/status.hpp"
#include "shm/layout.hpp"
#include "shm/ring.hpp"

#include <cstdint>
#include <span>

namespace gradsieve::shm {

/// "GSVCTRL" and a zero, little-endian.
inline constexpr std::uint64_t kControlMagic = 0x004C525443565347ULL;
inline constexpr std::uint32_t kHeaderMarkValue = 0x59444552U;  ///< "REDY"

/// Writes every field, then the header mark with release.
void write_control_header(std::span<std::byte> control, const ControlLayout& layout) noexcept;

/// Errors: kUnavailable (not ready yet: try again), kVersionMismatch (both versions), kCorrupt (magic or a size
/// differs).
[[nodiscard]] Status check_control_header(std::span<std::byte> control, const ControlLayout& layout);

[[nodiscard]] RingPlace submission_ring(const ControlLayout& layout) noexcept;
[[nodiscard]] RingPlace completion_ring(const ControlLayout& layout) noexcept;

/// "client speaks version 2, daemon version 1; ...", the same words wherever versions meet.
[[nodiscard]] Status version_mismatch(std::uint32_t seen, std::uint32_t own);

}  // namespace gradsieve::shm
