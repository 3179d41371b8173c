// Exponential dithering of tiles on the CPU. One thread; plain values; the caller owns every array.
#pragma once

#include "codec/exponential_step.hpp"
#include "codec/payload_kernels.hpp"
#include "codec/pipeline.hpp"
#include "codec/stages/exponential_dither.hpp"

#include <span>

namespace gradsieve::codec {

/// The constants of `exponential_dither`. `is_list`: index and value of what is sent, with bf16 scales.
[[nodiscard]] ExponentialRule exponential_rule(const Quantizer& quantizer, bool is_list) noexcept;

/// A whole tile, `first_element` its first one's number in the tensor: fields of rule.dither.bits with padding bits
/// zero, and up to six bytes behind them; what they decode to, and what they leave, where not null; each may be
/// `values`. Returns the tile's scale; +0: every code is 0.
[[nodiscard]] float code_exponential_tile(const ExponentialRule& rule, std::span<const float> values,
                                          const RandomStream& random, ElementCount first_element,
                                          const PayloadKernels& kernels, std::byte* ret_codes, float* ret_decoded,
                                          float* ret_left) noexcept;

/// exponential_dither of a chunk's list, as dither_chunk_list.
[[nodiscard]] std::uint32_t exponential_chunk_list(const Quantizer& quantizer, std::span<const std::uint32_t> indices,
                                                   std::span<const float> values, const RandomStream& random,
                                                   ElementCount first_element, const PayloadKernels& kernels,
                                                   float* ret_decoded, std::uint8_t* ret_codes, float* ret_scales);

/// What each code of `bits` decodes to: fills 2^bits cells.
void list_exponential_values(std::uint32_t bits, float base, float scale, float* ret_values) noexcept;

}  // namespace gradsieve::codec
