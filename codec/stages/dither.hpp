// Standard dithering (Alistarh, Grubic, Li, Tomioka, Vojnovic 2017, QSGD): the arithmetic of a tile and of an element,
// once for the CPU's forms and the GPU's. Every operation is rounded on its own, in the order written. Must hold no
// state, no memory access and nothing of one form. Any thread.
//
// A tile's magnitudes are divided by a unit q and rounded up or down at random to whole levels, so that the expectation
// of level * q is the magnitude. q = norm / S at least, so no magnitude is above S levels. What is sent is
// level * scale with scale = q / z. Unscaled, z = 1, the rounding is unbiased. With error feedback z is a bound of
// E ||q level||^2 / ||x||^2 over the tile: then E ||x - level q / z||^2 <= (1 - 1/z) ||x||^2, a contraction, which the
// unscaled operator is for z < 2 only.
//
// The bound, of d elements and in units of q (t = |x| / q, f its fraction): an element's error has variance f (1 - f).
// norm=l2: sum t^2 = S^2. As a function of t^2, f (1 - f) lies below its concave hull, t - t^2 up to t = 1/2 and 1/4
// from there, so the sum is at most d times the hull at S^2 / d: z = sqrt(d) / S if that is 2 or more, else
// 1 + d / (4 S^2); both are reached where all magnitudes are equal. (QSGD's own 1 + min(d / S^2, sqrt(d) / S) is
// wider.) norm=max: one element has t = S and no error. The ratio of m t (1 - t) to S^2 + m t^2, with the others, m of
// them, equal, is largest at t = 1 / (2 z) with z (z - 1) = m / (4 S^2): z = (1 + sqrt(1 + m / S^2)) / 2, reached
// there; S = 1 is the ternary operator's (1 + sqrt(d)) / 2. A tile of many magnitudes alike is far from that: no
// variance is above 1/4, so z <= 1 + d q^2 / (4 sum of x^2) too, and the smaller of the two is taken.
//
// The ternary operator (Wen et al. 2017, TernGrad) is S = 1 with norm=max, where the norm may be clipped to c root mean
// squares of the tile: it is unbiased of y, the x whose magnitudes are cut off at q. About zero, not about the mean: so
// a tile of equal magnitudes is not cut off, and none loses everything. With error feedback, E ||C(x)||^2 = q |y|_1 is
// at most z <x, y>, hence E ||x - C(x) / z||^2 <= ||x||^2 - <x, y> / z. If anything is cut off, an element of y has q,
// and the first bound holds as above since <y, y> <= <x, y>; for the second one, y_i (q - y_i) <= q^2 / 4 again, and
// <x, y> is at least q / largest times the sum of x^2. That is also how much slower it contracts: by 1 - 1 / delta with
// delta = z largest / q <= z sqrt(d) / c.
//
// Squares are exact in fp64. They are added up in an order that the lanes of a GPU's warps and of a CPU's vectors
// share: in each stretch of kSquareStretch elements (of a list: entries; those that do not exist are +0) element j
// takes element j + 128; of the 128 sums four neighbours each make one, (s0 + s1) + (s2 + s3); of those 32, sum i takes
// sum i + 16, 8, 4, 2, 1. Of the stretches' sums, 16 in a tile, sum i takes sum i + 8, 4, 2, 1.
#pragma once

#include "codec/philox.hpp"
#include "codec/stages/quantizer_facts.hpp"

#include <cmath>

namespace gradsieve::codec {

struct QuantizerStage;
class QuantizerCoder;

/// Fraction bits of a magnitude in levels, and of the random number that is added to it.
inline constexpr unsigned kLevelFractionBits = 24;
/// A unit below this is none: magnitudes in levels would leave fp32.
inline constexpr double kSmallestUnit = 0x1p-100;
/// Elements of a tile, or of a list, whose squares are added up by themselves.
inline constexpr std::uint32_t kSquareStretch = 256;
/// How much the rounding to bf16 may enlarge a list's unit.
inline constexpr double kMostEnlarged = 1 + 0x1p-7;

/// Constants of a pipeline.
struct DitherRule {
    std::uint32_t levels = 7;  ///< S, 1 .. 127
    std::uint32_t bits = 4;    ///< of a code: sign and level
    bool is_max_norm = true;   ///< else l2
    bool is_scaled = true;     ///< by 1/z
    bool is_list = false;      ///< the scale is written as bf16
    float clip = 0;            ///< norm=max: at most so many root mean squares; 0: as large as it is
};

/// What a tile's elements are known by.
struct DitherTile {
    std::uint32_t count = 0;  ///< d
    float largest = 0;        ///< magnitude; finite
    double square_sum = 0;    ///< read if needs_squares says so
};

[[nodiscard]] GRADSIEVE_HOST_DEVICE inline bool needs_squares(const DitherRule& rule) {
    return !rule.is_max_norm || rule.is_scaled || rule.clip > 0.0F;
}

struct DitherUnit {
    float scale = 0;      ///< what one level decodes to; +0: nothing of the tile is sent
    float to_levels = 0;  ///< magnitude times this is the magnitude in levels, times 2^24
};

/// The nearest fp32 number not above (below) a positive normal one.
GRADSIEVE_HOST_DEVICE inline float rounded_down(double value) {
    const auto nearest = static_cast<float>(value);
    return static_cast<double>(nearest) > value ? element::float_of(element::bits_of(nearest) - 1U) : nearest;
}
GRADSIEVE_HOST_DEVICE inline float rounded_up(double value) {
    const auto nearest = static_cast<float>(value);
    return static_cast<double>(nearest) < value ? element::float_of(element::bits_of(nearest) + 1U) : nearest;
}
/// The nearest bf16 number not below, as fp32.
GRADSIEVE_HOST_DEVICE inline float rounded_up_to_bf16(double value) {
    return element::float_of((element::bits_of(rounded_up(value)) + 0xFFFFU) & 0xFFFF0000U);
}

/// Largest scale: every level that a code can say times it is finite.
GRADSIEVE_HOST_DEVICE inline float largest_dither_scale(std::uint32_t bits) {
    return element::float_of(element::bits_of(FLT_MAX) - ((bits - 1U) << 23U));
}
/// The largest of a list, a bf16 number.
GRADSIEVE_HOST_DEVICE inline float largest_list_scale(std::uint32_t bits) {
    return element::float_of(element::bits_of(largest_dither_scale(bits)) & 0xFFFF0000U);
}

/// What of z follows from a tile's count, the norm being `norm_in_units` units: with l2 all of it, with max what it is
/// at most.
GRADSIEVE_HOST_DEVICE inline double worst_dither_bound(const DitherRule& rule, std::uint32_t tile_count,
                                                       double norm_in_units) {
    const double count = tile_count;
    const double levels = rule.is_list ? norm_in_units / kMostEnlarged : norm_in_units;
    if (!rule.is_max_norm) {
        const double ratio = std::sqrt(count) / levels;
        return ratio >= 2 ? ratio : 1 + ratio * ratio / 4;
    }
    // In a list the largest magnitude is no whole level, and errs too.
    const double erring = rule.is_list ? count : count - 1;
    return (1 + std::sqrt(1 + erring / (levels * levels))) / 2;
}
/// The same of dither, whose norm is S units.
GRADSIEVE_HOST_DEVICE inline double worst_dither_bound(const DitherRule& rule, std::uint32_t tile_count) {
    return worst_dither_bound(rule, tile_count, rule.levels);
}

/// z of a tile whose unit is `unit`, or larger by kMostEnlarged in a list. `worst`: worst_dither_bound of its count.
GRADSIEVE_HOST_DEVICE inline double dither_bound(const DitherRule& rule, const DitherTile& tile, double unit,
                                                 double worst) {
    if (!rule.is_max_norm) return worst;
    const double widest = rule.is_list ? unit * kMostEnlarged : unit;
    double against = tile.square_sum;
    if (rule.clip > 0.0F) against = against * (unit * rule.levels / static_cast<double>(tile.largest));
    const double even = 1 + static_cast<double>(tile.count) * (widest * widest) / (4 * against);
    return worst < even ? worst : even;
}

/// `worst`: worst_dither_bound of the tile's count; not read if the rule is not scaled.
GRADSIEVE_HOST_DEVICE inline DitherUnit dither_unit(const DitherRule& rule, const DitherTile& tile, double worst) {
    if (!(tile.largest > 0.0F)) return {};
    double norm = rule.is_max_norm ? static_cast<double>(tile.largest) : std::sqrt(tile.square_sum);
    if (rule.clip > 0.0F) {
        const double most = static_cast<double>(rule.clip) * std::sqrt(tile.square_sum / tile.count);
        norm = norm < most ? norm : most;
    }
    const double unit = norm / static_cast<double>(rule.levels);
    if (!(unit >= kSmallestUnit)) return {};
    const double z = rule.is_scaled ? dither_bound(rule, tile, unit, worst) : 1.0;
    const double wanted = rule.is_scaled ? unit / z : unit;
    const float limit = rule.is_list ? largest_list_scale(rule.bits) : largest_dither_scale(rule.bits);
    float scale = limit;
    // Down, so that the largest magnitude is S whole levels; up in a list, where as much as bf16 loses would be cut
    // off.
    if (wanted < static_cast<double>(limit)) scale = rule.is_list ? rounded_up_to_bf16(wanted) : rounded_down(wanted);
    return {scale, rounded_up(0x1p24 / (static_cast<double>(scale) * z))};
}
GRADSIEVE_HOST_DEVICE inline DitherUnit dither_unit(const DitherRule& rule, const DitherTile& tile) {
    return dither_unit(rule, tile, rule.is_scaled ? worst_dither_bound(rule, tile.count) : 1.0);
}

/// fp32 bits of S in 2^-24 levels.
GRADSIEVE_HOST_DEVICE inline std::uint32_t most_bits(std::uint32_t levels) {
    return element::bits_of(static_cast<float>(levels << kLevelFractionBits));
}
/// A magnitude in 2^-24 levels and the element's random number: its upper byte is the level, at most S. `most`:
/// most_bits of S. `word`: the element's random word.
GRADSIEVE_HOST_DEVICE inline std::uint32_t raised_magnitude(float magnitude, float to_levels, std::uint32_t most,
                                                            std::uint32_t word) {
    // Bits of numbers that are not negative have their order.
    const std::uint32_t exact = element::bits_of(magnitude * to_levels);
    const auto whole = static_cast<std::int32_t>(element::float_of(exact < most ? exact : most));
    return static_cast<std::uint32_t>(whole) + (word >> 8U);
}

/// The level of a magnitude, at most `levels`.
GRADSIEVE_HOST_DEVICE inline std::uint32_t dither_level(float magnitude, float to_levels, std::uint32_t levels,
                                                        std::uint32_t word) {
    return raised_magnitude(magnitude, to_levels, most_bits(levels), word) >> kLevelFractionBits;
}

/// fp32 bits of what a code decodes to.
GRADSIEVE_HOST_DEVICE inline std::uint32_t dither_decoded_bits(std::uint32_t code, std::uint32_t bits, float scale) {
    const std::uint32_t level = code & ((1U << (bits - 1U)) - 1U);
    return element::bits_of(static_cast<float>(level) * scale) | (code >> (bits - 1U)) << 31U;
}

namespace stages {

struct Dither {
    static constexpr QuantizerFacts kFacts = {.kind = QuantizerKind::kDither,
                                              .name = "dither",
                                              .version = 2,
                                              .route = DenseRoute::kHeld,
                                              .tile_scales = 1,
                                              .is_dithered = true,
                                              .is_random = true};
    static const QuantizerStage kStage;
    static const QuantizerCoder& kCoder;
};

}  // namespace stages

}  // namespace gradsieve::codec
