// What the kernel of the low-pass form of error feedback is told, see low_pass.hpp. Plain struct, shared by the files
// compiled for wider instructions.
#pragma once

namespace gradsieve::codec {

/// Arrays from the tensor's first element on.
struct LowPassStep {
    const float* before = nullptr;
    float* after = nullptr;  ///< what was not sent; filtered in place
    float keep = 0;
    float take = 1;
};

}  // namespace gradsieve::codec
