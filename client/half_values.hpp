// float16 and bfloat16 to float32 and back on the CPU, for tensors that are staged through host memory: the same bits
// as the GPU's own conversions. Pure; any thread. Depends on no mode of the processor but rounding to nearest.
#pragma once

#include "gradsieve/gradsieve.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradsieve::client {

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t bytes_of(ElementType type) noexcept {
    return type == ElementType::kF32 ? sizeof(float) : sizeof(std::uint16_t);
}

/// Every value is exact. The packed values stand in the upper half of `values`, which they are widened in. `type` is
/// one of the two halves.
void widen_in_place(ElementType type, std::span<float> values) noexcept;

/// Rounds to nearest, ties to even; what is too large becomes infinite, a NaN 0x7FFF. `ret_halves` has room for all
/// `values` and lies elsewhere.
void narrow(ElementType type, std::span<const float> values, std::uint16_t* ret_halves) noexcept;

}  // namespace gradsieve::client
