// One tensor's natural compression as the CPU's kernels want it. Plain values; the files compiled for wider
// instructions may include it.
#pragma once

#include "codec/random_rounds.hpp"
#include "codec/stages/natural.hpp"

namespace gradsieve::codec {

struct NaturalStep {
    float factor = 1;  ///< natural_factor
    RandomRounds random;
    std::uint64_t first_element = 0;  ///< number in the tensor of the first element, or of the list's index 0
};

}  // namespace gradsieve::codec
