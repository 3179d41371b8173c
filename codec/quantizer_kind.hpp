// Numbers of the quantizers' forms. Plain values; the files compiled for wider instructions may include it.
#pragma once

#include <cstdint>

namespace gradsieve::codec {

/// Numbers are part of the payload format. What each of them is, its own header in codec/stages says.
enum class QuantizerKind : std::uint8_t {
    kF32 = 0,
    kF16 = 1,
    kBf16 = 2,
    kPow2 = 3,
    kSign = 4,
    kTwoMean = 5,  ///< sign(scale=two_mean)
    kVote = 6,     ///< sign(scale=none)
    kNatural = 7,
    kDither = 8,
    kExponentialDither = 9,
    kInteger = 10,
    kMinMax = 11
};

}  // namespace gradsieve::codec
