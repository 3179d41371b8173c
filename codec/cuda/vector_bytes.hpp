// What a kernel's lane loads or stores at once, and the boundaries that allow it. Plain arithmetic; any thread.
#pragma once

#include "base/id.hpp"

namespace gradsieve::codec::cuda {

inline constexpr ByteCount kVectorBytes = 16;

/// The next multiple of a vector. `bytes` is far from overflow: sizes of memory that exists.
[[nodiscard]] constexpr ByteCount aligned(ByteCount bytes) noexcept {
    return (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
}

}  // namespace gradsieve::codec::cuda
