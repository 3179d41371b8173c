// minmax: each bucket of consecutive elements says its least and its largest one, and an element is rounded at random,
// without bias, to one of 2^bits levels that divide the range between them evenly. The arithmetic is shared: CPU and
// GPU give the same bytes. Any thread; no state.
//
// Source: dithering of a range in buckets is the max-min quantizer of Markov, Ramezanikebrya, Alistarh 2022, CGX,
// arXiv:2111.08617.
//
// Its bound z, with L steps of size u = (max - min) / L for n elements: an element between two levels has variance at
// most u^2 / 4, and the least and the largest one have none, so that
// E ||C(x)||^2 <= ||x||^2 + (n - 2) u^2 / 4 = z ||x||^2. Since (max - min)^2 <= 2 (max^2 + min^2) <= 2 ||x||^2, z is at
// most 1 + (n - 2) / (2 L^2), which (c, -c, 0, .., 0) attains: L is odd, so 0 lies halfway between two levels. Times
// 1/z, for a z of the bucket's own, the operator is a contraction with delta = z.
#pragma once

#include "codec/stages/dither.hpp"
#include "codec/stages/quantizer_facts.hpp"

namespace gradsieve::codec {

struct QuantizerStage;
class QuantizerCoder;

/// Rounding compares 23 bits of a step with a random number, so that 255 steps fit into a signed word.
inline constexpr std::uint32_t kMinMaxFractionBits = 23;
/// Beyond these an element is cut off: differences of two are finite then.
inline constexpr float kMinMaxLimit = 0x1p126F;
/// A range below this counts as none: all of the bucket is its minimum.
inline constexpr float kLeastMinMaxRange = 0x1p-90F;
/// Magnitudes are squared in units of the largest one over this, as whole numbers, whose sum has no order.
inline constexpr std::uint32_t kSquareUnits = 2048;
inline constexpr std::uint32_t kLeastBucketLog2 = 6;
inline constexpr std::uint32_t kMostBucketLog2 = 12;

GRADSIEVE_HOST_DEVICE constexpr std::uint32_t minmax_steps(std::uint32_t bits) noexcept { return (1U << bits) - 1U; }
/// Buckets of a chunk of so many elements.
GRADSIEVE_HOST_DEVICE constexpr std::uint32_t buckets_of(std::uint32_t elements, std::uint32_t bucket_log2) noexcept {
    return (elements + (1U << bucket_log2) - 1U) >> bucket_log2;
}

/// A bucket's least and largest element, cut off at the limit and without a negative zero.
struct MinMaxRange {
    float low = 0;
    float high = 0;
};
GRADSIEVE_HOST_DEVICE inline MinMaxRange minmax_range(float least, float largest) {
    const float low = least < -kMinMaxLimit ? -kMinMaxLimit : least > kMinMaxLimit ? kMinMaxLimit : least;
    const float high = largest > kMinMaxLimit ? kMinMaxLimit : largest < -kMinMaxLimit ? -kMinMaxLimit : largest;
    return {low + 0.0F, high + 0.0F};
}
/// Units of a magnitude's square root: kSquareUnits are the range's largest magnitude.
GRADSIEVE_HOST_DEVICE inline float square_units(const MinMaxRange& range) {
    const float low = element::magnitude(range.low);
    const float high = element::magnitude(range.high);
    const float largest = low > high ? low : high;
    return largest < kLeastMinMaxRange ? 0.0F : static_cast<float>(static_cast<double>(kSquareUnits) / largest);
}
/// A magnitude's square in those units, rounded down.
GRADSIEVE_HOST_DEVICE inline std::uint32_t whole_square(float magnitude, float units) {
    const float scaled = magnitude * units;
    const auto whole = static_cast<std::uint32_t>(static_cast<std::int32_t>(
        scaled < static_cast<float>(kSquareUnits) ? scaled : static_cast<float>(kSquareUnits)));
    return whole * whole;
}
/// z of a bucket of `count` elements; `squares`: the sum of their whole_square.
GRADSIEVE_HOST_DEVICE inline double minmax_bound(const MinMaxRange& range, std::uint32_t bits, std::uint32_t count,
                                                 std::uint64_t squares) {
    if (count <= 2 || squares == 0) return 1.0;
    const auto steps = static_cast<double>(minmax_steps(bits));
    const auto others = static_cast<double>(count - 2U);
    const double low = static_cast<double>(element::magnitude(range.low));
    const double high = static_cast<double>(element::magnitude(range.high));
    const double share = (static_cast<double>(range.high) - static_cast<double>(range.low)) / (low > high ? low : high);
    constexpr double kUnitsSquared = static_cast<double>(kSquareUnits) * kSquareUnits;
    const double own = others * (share * share) * kUnitsSquared / (4.0 * steps * steps * static_cast<double>(squares));
    const double worst = others / (2.0 * steps * steps);
    return 1.0 + (own < worst ? own : worst);
}

/// What a bucket's codes follow from, and what they decode to.
struct MinMaxUnit {
    float low = 0;        ///< level 0's element
    float to_levels = 0;  ///< of a difference to `low`: 2^-23 steps; 0: all elements are level 0
    float sent_low = 0;   ///< what the payload says
    float sent_high = 0;
};
/// What levels decode to: sent_low + level * this.
GRADSIEVE_HOST_DEVICE inline float minmax_step_size(float sent_low, float sent_high, std::uint32_t bits) {
    return (sent_high - sent_low) / static_cast<float>(minmax_steps(bits));
}
GRADSIEVE_HOST_DEVICE inline MinMaxUnit minmax_unit(const MinMaxRange& range, std::uint32_t bits, double z) {
    MinMaxUnit unit;
    unit.low = range.low;
    const float difference = range.high - range.low;
    if (difference >= kLeastMinMaxRange) {
        const auto most = static_cast<double>(minmax_steps(bits) << kMinMaxFractionBits);
        unit.to_levels = rounded_up(most / static_cast<double>(difference));
    }
    unit.sent_low = static_cast<float>(static_cast<double>(range.low) / z);
    unit.sent_high = static_cast<float>(static_cast<double>(range.high) / z);
    return unit;
}

/// The most that an element is, in 2^-23 steps.
GRADSIEVE_HOST_DEVICE inline float minmax_most(std::uint32_t bits) {
    return static_cast<float>(minmax_steps(bits) << kMinMaxFractionBits);
}
/// The level of an element. `word`: its random word.
GRADSIEVE_HOST_DEVICE inline std::uint32_t minmax_level(float value, float low, float to_levels, float most,
                                                        std::uint32_t word) {
    const float above = value > low ? value - low : 0.0F;
    const float exact = above * to_levels;
    const auto whole = static_cast<std::uint32_t>(static_cast<std::int32_t>(exact < most ? exact : most));
    return (whole + (word >> (32U - kMinMaxFractionBits))) >> kMinMaxFractionBits;
}
GRADSIEVE_HOST_DEVICE inline float minmax_decoded(std::uint32_t level, float sent_low, float step_size) {
    return sent_low + static_cast<float>(level) * step_size;
}
/// Whether a payload may say these of a bucket.
GRADSIEVE_HOST_DEVICE inline bool is_minmax_range(float low, float high) {
    return low <= high && low >= -kMinMaxLimit && high <= kMinMaxLimit;
}

namespace stages {

struct MinMax {
    static constexpr QuantizerFacts kFacts = {.kind = QuantizerKind::kMinMax,
                                              .name = "minmax",
                                              .has_buckets = true,
                                              .is_random = true,
                                              .sends_lists = false,
                                              .codes_zero = false};
    static const QuantizerStage kStage;
    static const QuantizerCoder& kCoder;
};

}  // namespace stages

}  // namespace gradsieve::codec
