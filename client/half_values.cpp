#include "client/half_values.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace gradsieve::client {
namespace {

constexpr std::uint32_t kExponentShift = 23;
constexpr std::uint32_t kInfinity = 0xFFU << kExponentShift;
constexpr std::uint32_t kMagnitude = 0x7FFFFFFF;
constexpr std::uint16_t kHalfNan = 0x7FFF;
/// From a float16's bits, moved to where a float32 has them, to the float32 of that value.
constexpr std::uint32_t kRebias = (127U - 15U) << kExponentShift;

struct Float16 {
    static float widen(std::uint16_t half) noexcept {
        const std::uint32_t magnitude = half & 0x7FFFU;
        const std::uint32_t sign = std::uint32_t{half & 0x8000U} << 16U;
        const std::uint32_t normal = (magnitude << 13U) + (magnitude >= 0x7C00 ? 2 * kRebias : kRebias);
        // Through an integer, and not as a float32 below the normal ones, which a program may have flushed to zero.
        const auto small = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24F);
        return std::bit_cast<float>(sign | (magnitude >= 0x0400 ? normal : small));
    }
    static std::uint16_t narrow(float value) noexcept {
        constexpr std::uint32_t kTooLarge = 0x477FF000;     // 65,520: halfway between the largest and 2^16
        constexpr std::uint32_t kFirstNormal = 0x38800000;  // 2^-14
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const auto magnitude = bits & kMagnitude;
        const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
        const std::uint32_t normal = (magnitude - kRebias + 0xFFF + ((magnitude >> 13U) & 1U)) >> 13U;
        // One half has the place value of the smallest float16 as its last: the addition rounds.
        const std::uint32_t small =
            std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
        std::uint32_t half = magnitude >= kFirstNormal ? normal : small;
        half = magnitude >= kTooLarge ? 0x7C00 : half;
        return magnitude > kInfinity ? kHalfNan : static_cast<std::uint16_t>(sign | half);
    }
};

struct BFloat16 {
    static float widen(std::uint16_t half) noexcept { return std::bit_cast<float>(std::uint32_t{half} << 16U); }
    static std::uint16_t narrow(float value) noexcept {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16U) & 1U)) >> 16U;
        return (bits & kMagnitude) > kInfinity ? kHalfNan : static_cast<std::uint16_t>(rounded);
    }
};

/// From the first to the last: what is written never reaches the packed values that are still to be read.
template <typename Half>
void widen_all(std::span<float> values) noexcept {
    constexpr std::size_t kBlock = 64;
    std::array<std::uint16_t, kBlock> packed{};
    std::array<float, kBlock> wide{};
    const auto* const halves =
        reinterpret_cast<const std::byte*>(values.data()) + values.size() * sizeof(std::uint16_t);
    for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
        const auto count = std::min(kBlock, values.size() - begin);
        std::memcpy(packed.data(), halves + begin * sizeof(std::uint16_t), count * sizeof(std::uint16_t));
        for (std::size_t place = 0; place < kBlock; ++place) wide[place] = Half::widen(packed[place]);
        std::memcpy(values.data() + begin, wide.data(), count * sizeof(float));
    }
}

template <typename Half>
void narrow_all(std::span<const float> values, std::uint16_t* ret_halves) noexcept {
    for (std::size_t place = 0; place < values.size(); ++place) ret_halves[place] = Half::narrow(values[place]);
}

}  // namespace

void widen_in_place(ElementType type, std::span<float> values) noexcept {
    if (type == ElementType::kF16) return widen_all<Float16>(values);
    widen_all<BFloat16>(values);
}

void narrow(ElementType type, std::span<const float> values, std::uint16_t* ret_halves) noexcept {
    if (type == ElementType::kF16) return narrow_all<Float16>(values, ret_halves);
    narrow_all<BFloat16>(values, ret_halves);
}

}  // namespace gradsieve::client
