// minmax of a tile's values on the CPU: ranges, bounds and codes of its buckets. Any thread; the caller owns all.
#pragma once

#include "codec/minmax_step.hpp"
#include "codec/payload_kernels.hpp"
#include "codec/pipeline.hpp"

#include <span>

namespace gradsieve::codec {

/// log2 of a bucket's elements, of minmax.
[[nodiscard]] std::uint32_t bucket_log2(const Quantizer& quantizer) noexcept;

/// Codes a tile, or a chunk's last part of one. `first_element`: the tensor's number of its first element.
/// `ret_ranges`: what the payload says of each bucket, two fp32 numbers, at any alignment. `ret_decoded`, `ret_left`:
/// as of PayloadKernels::minmax_dense.
void code_minmax_tile(const Quantizer& quantizer, std::span<const float> values, const RandomStream& random,
                      ElementCount first_element, const PayloadKernels& kernels, std::byte* ret_ranges,
                      std::byte* ret_codes, float* ret_decoded, float* ret_left) noexcept;

/// What each of the codes of a bucket decodes to; `ret_values` has room for 2^bits.
void list_minmax_values(std::uint32_t bits, float low, float high, float* ret_values) noexcept;

}  // namespace gradsieve::codec
