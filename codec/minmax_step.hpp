// One bucket of minmax as the CPU's kernels want it: constants and random numbers. Plain values; the files compiled for
// wider instructions may include it.
#pragma once

#include "codec/random_rounds.hpp"
#include "codec/stages/minmax.hpp"

namespace gradsieve::codec {

struct MinMaxStep {
    MinMaxUnit unit;
    float step_size = 0;     ///< see minmax_step_size
    float most = 0;          ///< see minmax_most
    std::uint32_t bits = 0;  ///< of a code, 2..8
    RandomRounds random;
    std::uint64_t first_element = 0;  ///< number in the tensor of the bucket's first element
};

}  // namespace gradsieve::codec
