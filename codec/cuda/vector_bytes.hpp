// What a kernel's lane loads or stores at once, and the boundaries that allow it. Plain arithmetic; any thread.
#pragma once

#include "base/id.hpp"

namespace gradsieve::codec::cuda {

inline constexpr ByteCount kVectorBytes = 16;

/// The next multiple of `unit`. `bytes` is far from overflow: sizes of memory that exists.
[[nodiscard]] constexpr ByteCount rounded_up(ByteCount bytes, ByteCount unit) noexcept {
    return (bytes + unit - 1) / unit * unit;
}

/// The next multiple of a vector.
[[nodiscard]] constexpr ByteCount aligned(ByteCount bytes) noexcept { return rounded_up(bytes, kVectorBytes); }

/// Bytes of a cache line. A warp that stores whole lines, from their beginning, writes no part of a memory sector
/// twice.
inline constexpr ByteCount kLineBytes = 128;

/// The next multiple of a line.
[[nodiscard]] constexpr ByteCount aligned_to_line(ByteCount bytes) noexcept { return rounded_up(bytes, kLineBytes); }

/// Workspaces grow by whole ones, so that tensors of about one size take no new memory.
inline constexpr ByteCount kWorkspaceUnitBytes = ByteCount{1} << 16U;

}  // namespace gradsieve::codec::cuda
