// The stage `entropy`: what it does to payloads is entropy_coder.hpp's. A constant; any thread.
#pragma once

#include "codec/pipeline.hpp"

namespace gradsieve::codec::stages {

struct Entropy {
    static const StageRow kRow;
    /// Refuses what has no codes before it. Errors: kInvalidArgument.
    [[nodiscard]] static Status check(const Pipeline& pipeline);
};

}  // namespace gradsieve::codec::stages
