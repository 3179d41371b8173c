// Bits of an uploaded payload at any byte, for kernels. Reads whole aligned words around them, so up to seven bytes
// behind a section are read too and must be memory of the same upload. Checks nothing: the caller knows that the bits
// exist. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradsieve::codec::cuda {

class BitSection {
public:
    __device__ explicit BitSection(const std::byte* section)
        : words_(
              reinterpret_cast<const std::uint32_t*>(reinterpret_cast<std::uintptr_t>(section) & ~std::uintptr_t{3})),
          shift_(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(section) & 3U) * 8) {}

    /// 32 bits from `bit` on; `bit` < 2^32 - 32.
    [[nodiscard]] __device__ std::uint32_t word_at(std::uint32_t bit) const {
        const std::uint32_t place = bit + shift_;
        const std::uint32_t* word = words_ + place / 32;
        return __funnelshift_r(__ldg(word), __ldg(word + 1), place);
    }
    /// `width` <= 32 bits from `bit` on.
    [[nodiscard]] __device__ std::uint32_t read(std::uint32_t bit, unsigned width) const {
        return width == 32 ? word_at(bit) : word_at(bit) & ((1U << width) - 1);
    }

private:
    const std::uint32_t* words_;
    std::uint32_t shift_;
};

}  // namespace gradsieve::codec::cuda
