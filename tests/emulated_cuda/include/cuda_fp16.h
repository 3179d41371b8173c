// Half precision of the emulated card: what the kernels use of CUDA's header of this name.
#pragma once

#include "emulated_kernel.hpp"

struct __half {
    std::uint16_t bits = 0;
};
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half half) { return half.bits; }
inline float __half2float(__half half) { return static_cast<float>(std::bit_cast<_Float16>(half.bits)); }
/// To nearest, ties to even.
inline __half __float2half_rn(float value) {
    if (value != value) return {0x7FFF};  // the card's one NaN
    return {std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))};
}
