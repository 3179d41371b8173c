// One tile's exponential dithering as the CPU's kernels want it: constants, levels and random numbers. Plain values;
// the files compiled for wider instructions may include it.
#pragma once

#include "codec/random_rounds.hpp"

namespace gradsieve::codec {

/// Levels that a code can say, the one above the first, and 0.
inline constexpr unsigned kLevelTable = 129;

struct ExponentialStep {
    float to_levels = 0;  ///< see DitherUnit
    float scale = 0;      ///< what the largest level decodes to; > 0
    float per_bit = 0;    ///< see depth_per_bit
    std::int32_t levels = 0;
    std::uint32_t bits = 0;  ///< of a code, 2..8: sign above the level
    bool is_biased = false;
    RandomRounds random;
    std::uint64_t first_element = 0;  ///< number in the tensor of the tile's first element, or the list's index 0
    float above[kLevelTable] = {};    ///< number d: the level above depth d, which is none for 0; behind the last one 0
};

}  // namespace gradsieve::codec
