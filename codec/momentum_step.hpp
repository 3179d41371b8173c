// What the kernel of the momentum stage is told, see momentum.hpp. Plain struct, shared by the files compiled for wider
// instructions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradsieve::codec {

/// Arrays from the tensor's first element on.
struct MomentumStep {
    const float* const* samples = nullptr;
    const float* weights = nullptr;
    std::size_t sample_count = 0;  ///< at least 1
    float factor = 0;
    const float* before = nullptr;
    float* after = nullptr;
};

}  // namespace gradsieve::codec
