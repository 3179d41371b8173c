// What a kernel's lane loads or stores at once, and the boundaries that allow it. Plain arithmetic; any thread.
#pragma once

#include "base/id.hpp"

namespace gradsieve::codec::cuda {

inline constexpr ByteCount kVectorBytes = 16;

/// The next multiple of a vector. `bytes` is far from overflow: sizes of memory that exists.
[[nodiscard]] constexpr ByteCount aligned(ByteCount bytes) noexcept {
    return (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
}

/// Bytes of a cache line. A warp that stores whole lines, from their beginning, writes no part of a memory sector
/// twice.
inline constexpr ByteCount kLineBytes = 128;

/// The next multiple of a line.
[[nodiscard]] constexpr ByteCount aligned_to_line(ByteCount bytes) noexcept {
    return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

}  // namespace gradsieve::codec::cuda
