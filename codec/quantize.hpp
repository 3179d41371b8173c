// A list of ascending indices tile by tile, and exponents of fp32 numbers, for those who quantize lists. Any thread;
// plain values.
#pragma once

#include "codec/payload_kernels.hpp"
#include "codec/pipeline.hpp"

#include <bit>
#include <cstdint>
#include <span>

namespace gradsieve::codec {

/// First position behind `first` whose index lies in another tile.
[[nodiscard]] std::uint32_t tile_run_end(std::span<const std::uint32_t> indices, std::uint32_t first) noexcept;

/// Biased fp32 exponent of a magnitude: floor(log2 |value|) + 127 of a normal number, 0 of zero and subnormals.
[[nodiscard]] constexpr std::uint32_t biased_exponent(float value) noexcept {
    return (std::bit_cast<std::uint32_t>(value) >> 23U) & 0xFFU;
}

}  // namespace gradsieve::codec
