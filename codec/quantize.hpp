// Quantizers on a list of selected values: what each value becomes on the far side. Works tile by tile on ascending
// indices, keeps no state, allocates nothing. Any thread; the caller owns every array.
#pragma once

#include "codec/payload_kernels.hpp"
#include "codec/pipeline.hpp"

#include <bit>
#include <cstdint>
#include <span>

namespace gradsieve::codec {

/// Fills ret_decoded[i] with the value that receivers decode for values[i], +0 where the element is not sent: a zero, a
/// magnitude too small for pow2's range, for f16 or for bf16. Returns how many are sent.
/// `indices`: strictly ascending, as many as `values`; `tensor_maximum`: read by pow2(scope=tensor) only. `ret_codes`:
/// pow2 only, as many: sign << (bits - 1) | octaves below the tile's exponent, for what is sent.
///
/// pow2 (Tsuzuku et al. 2018, the 4-bit quantization; scale per tile, not per tensor): E = floor(log2 of the largest
/// magnitude); magnitudes above 2^E become 2^E, others the nearer power of two, the middle going up; not sent if more
/// than 2^(bits-1) - 1 octaves below E, or subnormal. sign in a list: the mean magnitude of the tile's sent elements
/// (fp64, the fixed tree of `magnitude_sum` in list order), rounded to fp32 and then to bf16.
[[nodiscard]] std::uint32_t quantize_list(const Quantizer& quantizer, std::span<const std::uint32_t> indices,
                                          std::span<const float> values, float tensor_maximum,
                                          const PayloadKernels& kernels, std::span<float> ret_decoded,
                                          std::uint8_t* ret_codes);

/// sign of what is sent whatever it is: as many as `values`, zeros as positive; with a mean magnitude of zero +0.
void sign_every(const Quantizer& quantizer, std::span<const std::uint32_t> indices, std::span<const float> values,
                const PayloadKernels& kernels, std::span<float> ret_decoded) noexcept;

/// First position behind `first` whose index lies in another tile.
[[nodiscard]] std::uint32_t tile_run_end(std::span<const std::uint32_t> indices, std::uint32_t first) noexcept;

/// Biased fp32 exponent of a magnitude: floor(log2 |value|) + 127 of a normal number, 0 of zero and subnormals.
[[nodiscard]] constexpr std::uint32_t biased_exponent(float value) noexcept {
    return (std::bit_cast<std::uint32_t>(value) >> 23U) & 0xFFU;
}

}  // namespace gradsieve::codec
