// Dithering of tiles on the CPU: what a tile's elements say about its unit, and the steps that the kernels take. One
// thread; plain values; the caller owns every array.
#pragma once

#include "codec/payload_kernels.hpp"
#include "codec/pipeline.hpp"

#include <optional>
#include <span>

namespace gradsieve::codec {

/// The constants of `dither`. `is_list`: index and value of what is sent, with bf16 scales.
[[nodiscard]] DitherRule dither_rule(const Quantizer& quantizer, bool is_list) noexcept;

/// The step of a tile or of a list's part that lies in one; nothing if nothing is sent.
[[nodiscard]] std::optional<DitherStep> dither_step(const DitherRule& rule, const DitherTile& tile,
                                                    const RandomStream& random, ElementCount first_element) noexcept;

/// What dither_unit wants to know of at most kTileElements values.
[[nodiscard]] DitherTile measure_tile(const DitherRule& rule, std::span<const float> values,
                                      const PayloadKernels& kernels) noexcept;

/// dither of a chunk's list, tile by tile: fills `ret_decoded` (+0: not sent), `ret_codes` and, by the tile's number in
/// the chunk, `ret_scales`. Returns how many are sent. `first_element`: the chunk's first in the tensor.
[[nodiscard]] std::uint32_t dither_chunk_list(const Quantizer& quantizer, std::span<const std::uint32_t> indices,
                                              std::span<const float> values, const RandomStream& random,
                                              ElementCount first_element, const PayloadKernels& kernels,
                                              float* ret_decoded, std::uint8_t* ret_codes, float* ret_scales);

}  // namespace gradsieve::codec
