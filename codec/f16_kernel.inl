// Half precision in vectors. For files that are compiled once per instruction set (payload_kernels.inl,
// dense_pass_kernel.hpp); internal linkage. The same operations as codec/element.hpp, lane by lane: the instructions for
// it are not among those that every AVX2 file may use, and give infinity beyond the range.
#pragma once

#include "codec/element.hpp"
#include "codec/vector_types.inl"

namespace gradsieve::codec {
namespace {

/// element::f16_bits of each lane.
[[gnu::always_inline]] inline Words f16_codes(Floats values) {
    constexpr std::uint32_t kHalf = 0x3F000000U;  // bits of 1/2
    const Words bits = reinterpret_cast<Words>(values);
    // Signed, since that is what baseline vectors can compare.
    const auto exact = reinterpret_cast<Integers>(bits & 0x7FFFFFFFU);
    const Integers largest = Integers{} + static_cast<std::int32_t>(element::kLargestF16);
    const Integers limited = exact < largest ? exact : largest;
    const auto size = reinterpret_cast<Words>(limited);
    const Words normal = (size - element::kF16ExponentOffset + 0xFFFU + ((size >> 13U) & 1U)) >> 13U;
    const Words subnormal = reinterpret_cast<Words>(reinterpret_cast<Floats>(limited) + 0.5F) - kHalf;
    const auto is_subnormal = reinterpret_cast<Words>(limited < static_cast<std::int32_t>(element::kLeastNormalF16));
    return (subnormal & is_subnormal) | (normal & ~is_subnormal) | bits >> 31U << 15U;
}

/// element::f16_value_bits of each lane.
[[gnu::always_inline]] inline Words f16_words(Words codes) {
    constexpr std::uint32_t kHalf = 0x3F000000U;
    const Words size = codes & 0x7FFFU;
    const auto limited = reinterpret_cast<Integers>(size);
    const auto is_special = reinterpret_cast<Words>(limited >= 0x7C00);
    const auto is_subnormal = reinterpret_cast<Words>(limited < 0x400);
    const Words normal = ((size << 13U) + element::kF16ExponentOffset) | (is_special & element::kExponentMask);
    const Words subnormal = reinterpret_cast<Words>(reinterpret_cast<Floats>(size + kHalf) - 0.5F);
    return (subnormal & is_subnormal) | (normal & ~is_subnormal) | (codes & 0x8000U) << 16U;
}

}  // namespace
}  // namespace gradsieve::codec
