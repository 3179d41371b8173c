// bfloat16 of the emulated card: what the kernels use of CUDA's header of this name.
#pragma once

#include "emulated_kernel.hpp"

struct __nv_bfloat16 {
    std::uint16_t bits = 0;
};
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
/// To nearest, ties to even.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
    if (value != value) return {0x7FFF};  // the card's one NaN
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return {static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U)};
}
