// One tensor's integer rounding as the CPU's kernels want it. Plain values; the files compiled for wider instructions
// may include it.
#pragma once

#include "codec/random_rounds.hpp"
#include "codec/stages/integer.hpp"

namespace gradsieve::codec {

struct IntegerStep {
    float scale = 1;
    float size = 1;          ///< integer_step_size
    bool is_biased = false;  ///< to the nearer one
    RandomRounds random;
    std::uint64_t first_element = 0;  ///< number in the tensor of the first element, or of the list's index 0
};

/// A code in a word: the sign in its highest bit, the magnitude in the lowest ones.
inline constexpr std::uint32_t kIntegerSign = 0x80000000U;

}  // namespace gradsieve::codec
