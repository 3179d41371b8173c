// A stream of random words as the CPU's vector kernels want it: with the keys of all rounds. Plain values; the files
// compiled for wider instructions may include it.
#pragma once

#include "codec/philox.hpp"

namespace gradsieve::codec {

struct RandomRounds {
    RandomStream stream;
    std::uint64_t keys[kPhiloxRounds][2] = {};  ///< of the rounds, widened to the lanes that they are spread over
};

[[nodiscard]] RandomRounds random_rounds(const RandomStream& stream) noexcept;

}  // namespace gradsieve::codec
