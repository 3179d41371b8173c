// Integer rounding on the CPU: the step that the kernels take, and fields of whole numbers written and read. Plain
// values; any thread.
#pragma once

#include "base/bytes.hpp"
#include "codec/integer_step.hpp"
#include "codec/payload_kernels.hpp"
#include "codec/payload_pool.hpp"
#include "codec/pipeline.hpp"

#include <span>

namespace gradsieve::codec {

/// `first_element`: number in the tensor of what the kernel counts from.
[[nodiscard]] IntegerStep integer_step(const Quantizer& quantizer, const RandomStream& random,
                                       std::uint64_t first_element) noexcept;

/// All magnitudes or-ed, of codes in words.
[[nodiscard]] std::uint32_t integer_magnitudes(std::span<const std::uint32_t> codes) noexcept;

/// Writes codes in words as fields of `bits` and returns the byte behind them; up to 16 bytes more are overwritten.
[[nodiscard]] std::byte* build_integers(std::span<const std::uint32_t> codes, unsigned bits,
                                        const PayloadKernels& kernels, std::byte* out) noexcept;
/// The payload of a chunk of which every element is sent, from all its codes; empty if all of them are zero.
[[nodiscard]] PayloadBytes build_dense_integers(const Quantizer& quantizer, std::span<const std::uint32_t> codes,
                                                std::uint32_t magnitudes, const PayloadPool& pool,
                                                const PayloadKernels& kernels);

/// Values of `count` fields from number `first` on, a multiple of 8. `section` has at least those.
void read_integers(ByteView section, std::uint32_t first, std::uint32_t count, unsigned bits, float size,
                   float* ret_values) noexcept;

}  // namespace gradsieve::codec
