// One tile's dithering as the CPU's kernels want it: constants and random numbers. Plain
// values; the files compiled for wider instructions may include it.
#pragma once

#include "codec/random_rounds.hpp"
#include "codec/stages/dither.hpp"

namespace gradsieve::codec {

struct DitherStep {
    float to_levels = 0;     ///< see DitherUnit
    float most = 0;          ///< S in 2^-24 levels
    float scale = 0;         ///< what a level decodes to; > 0
    std::uint32_t bits = 0;  ///< of a code, 2..8: sign above the level
    RandomRounds random;
    std::uint64_t first_element = 0;  ///< number in the tensor of the tile's first element, or the list's index 0
};

}  // namespace gradsieve::codec
