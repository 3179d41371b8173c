// Exponential dithering (Horvath, Ho, Horvath, Sahu, Canini, Richtarik 2019, where the base is 2: natural dithering):
// the arithmetic of a tile and of an element, once for the CPU's forms and the GPU's. Every operation is rounded on its
// own, in the order written. Must hold no state, no memory access and nothing of one form. Any thread.
//
// With base c, magnitudes over the tile's norm q are rounded to one of 1, 1/c, ..., c^(1-s) or to 0, s levels and
// nothing: at random to one of the two levels around it, so that the expectation is the magnitude, or (biased) to the
// nearer one. What is sent is that level times scale = q / z, with z = 1 unless the error is fed back and scaled.
//
// z, unbiased: a magnitude t = |x| / q between two levels has a second moment of at most (c+1)^2 / (4 c) times t^2,
// reached at their harmonic mean. One below the lowest level a = c^(1-s) is dithered between 0 and a as
// codec/stages/dither.hpp says with the unit a q; the bound there, less the 1 that is x itself, is what all of those
// add at most. So z = (c+1)^2 / (4 c) - 1 + dither's bound for 1/a levels. (Published for natural dithering is 9/8 + r
// min(1, r) with r = sqrt(d) a, which is wider.)
//
// Biased: nothing is random and z is 1. Above the lowest level, an error is at most (c-1)/(c+1) of the magnitude,
// reached midway: there E ||x - C(x)||^2 <= (1 - 1/delta) ||x||^2 with delta = (c+1)^2 / (4 c). Below it an error is at
// most the magnitude, so the whole is a contraction only because the largest magnitude lies above: delta <= d times
// that.
//
// General rounding, with the powers of a base as its levels, is the same thing where q is not the norm but the least
// power of the base that is not below it: then the levels are powers of the base in every tile, as many as a code can
// say below that one, of which the lowest lies 126 octaves down at most. Its z is (c+1)^2 / (4 c) and nothing to speak
// of.
#pragma once

#include "codec/stages/dither.hpp"
#include "codec/stages/quantizer_facts.hpp"

namespace gradsieve::codec {

struct QuantizerStage;
class QuantizerCoder;

inline constexpr float kLeastBase = 1.1F;
inline constexpr float kMostBase = 16.0F;
/// log2 of the norm over the lowest level, at most: levels are normal numbers.
inline constexpr double kMostOctaves = 126;
/// The random word of a biased rounding: up from the middle on.
inline constexpr std::uint32_t kMiddleWord = 0x7FFFFFFFU;

/// Constants of a pipeline.
struct ExponentialRule {
    DitherRule dither;  ///< its levels are those between the lowest one and the norm, s
    float base = 2;     ///< c
    bool is_biased = false;
    bool is_fixed = false;  ///< the levels are powers of the base; norm=max
    float per_bit = 0;      ///< depth_per_bit of the base
};

/// Level number `depth` from the top: c^-depth, in fp64 by squaring, from the lowest bit of `depth` on. Base 2: exact.
GRADSIEVE_HOST_DEVICE inline float exponential_level(float base, std::uint32_t depth) {
    if (base == 2.0F) return depth <= 126 ? element::float_of((127U - depth) << 23U) : 0.0F;
    double power = 1;
    double factor = 1 / static_cast<double>(base);
    for (; depth > 0; depth >>= 1U) {
        if ((depth & 1U) != 0) power = power * factor;
        factor = factor * factor;
    }
    return static_cast<float>(power);
}

/// How many levels a code can say whose lowest is no more than kMostOctaves below the first.
inline std::uint32_t most_levels(float base) {
    const double levels = kMostOctaves / std::log2(static_cast<double>(base)) + 1;
    return levels < 127 ? static_cast<std::uint32_t>(levels) : 127U;
}

/// base^exponent in fp64, by squaring as exponential_level.
GRADSIEVE_HOST_DEVICE inline double base_power(float base, std::int32_t exponent) {
    double factor = exponent < 0 ? 1 / static_cast<double>(base) : static_cast<double>(base);
    double power = 1;
    for (auto left = static_cast<std::uint32_t>(exponent < 0 ? -exponent : exponent); left > 0; left >>= 1U) {
        if ((left & 1U) != 0) power = power * factor;
        factor = factor * factor;
    }
    return power;
}
/// The least power of the base that is not below a normal magnitude; the largest fp32 number has room for it. The first
/// one tried is below, as exponential_guess says.
GRADSIEVE_HOST_DEVICE inline double fixed_norm(float base, float per_bit, float magnitude) {
    const std::int32_t octaves = static_cast<std::int32_t>(element::bits_of(magnitude)) - 0x3F800000;
    auto exponent = static_cast<std::int32_t>(std::floor(static_cast<float>(octaves) * per_bit - 0.01F));
    double power = base_power(base, exponent);
    while (power < static_cast<double>(magnitude)) power = base_power(base, ++exponent);
    return power <= static_cast<double>(FLT_MAX) ? power : base_power(base, exponent - 1);
}

/// The code's depth is its distance from the largest level that it can say.
GRADSIEVE_HOST_DEVICE inline std::uint32_t top_level(std::uint32_t bits) { return (1U << (bits - 1U)) - 1U; }

GRADSIEVE_HOST_DEVICE inline DitherUnit exponential_unit(const ExponentialRule& rule, const DitherTile& tile) {
    if (!(tile.largest > 0.0F)) return {};
    const DitherRule& dither = rule.dither;
    double norm = dither.is_max_norm ? static_cast<double>(tile.largest) : std::sqrt(tile.square_sum);
    if (!(norm >= kSmallestUnit)) return {};
    if (rule.is_fixed) norm = fixed_norm(rule.base, rule.per_bit, tile.largest);
    double z = 1;
    if (dither.is_scaled) {
        const auto lowest = static_cast<double>(exponential_level(rule.base, dither.levels - 1));
        const double base = rule.base;
        const double least_top = rule.is_fixed ? 1 / base : 1.0;  // of the largest magnitude, in norms
        z = (base + 1) * (base + 1) / (4 * base) - 1 +
            dither_bound(dither, tile, norm * lowest, worst_dither_bound(dither, tile.count, least_top / lowest));
    }
    const double wanted = norm / z;
    const float limit = dither.is_list ? element::float_of(element::bits_of(FLT_MAX) & 0xFFFF0000U) : FLT_MAX;
    float scale = limit;
    if (wanted < static_cast<double>(limit)) scale = dither.is_list ? rounded_up_to_bf16(wanted) : rounded_down(wanted);
    return {scale, rounded_up(0x1p24 / (static_cast<double>(scale) * z))};
}

/// A magnitude in units of the norm, at most 1. `to_levels`: of the unit.
GRADSIEVE_HOST_DEVICE inline float in_norms(float magnitude, float to_levels) {
    const float scaled = magnitude * to_levels;
    return (scaled < 0x1p24F ? scaled : 0x1p24F) * 0x1p-24F;
}

/// Levels that a step of an fp32 pattern is worth, for exponential_guess.
GRADSIEVE_HOST_DEVICE inline float depth_per_bit(float base) {
    return static_cast<float>(0x1p-23 / std::log2(static_cast<double>(base)));
}
/// The depth of the largest level that is not above `size` (of in_norms), or one more; never less. An fp32 pattern is
/// a logarithm in straight lines, which is never above the logarithm and at most 0.0861 octaves below; a level is 0.137
/// octaves at least. The margin is a hundred times what the fp32 operations here may err by, so that it cannot show
/// which machine's logarithm made `per_bit`.
GRADSIEVE_HOST_DEVICE inline std::uint32_t exponential_guess(float size, float per_bit, std::uint32_t levels) {
    constexpr std::int32_t kBitsOfOne = 0x3F800000;
    constexpr float kMargin = 0.01F;
    const auto below = static_cast<float>(kBitsOfOne - static_cast<std::int32_t>(element::bits_of(size)));
    const auto depth = static_cast<std::uint32_t>(static_cast<std::int32_t>(below * per_bit + kMargin)) + 1U;
    return depth < levels ? depth : levels;
}

/// Whether a magnitude between two levels goes up. `word`: the element's random word, or kMiddleWord.
GRADSIEVE_HOST_DEVICE inline bool goes_up(float size, float lower, float upper, std::uint32_t word) {
    const float share = static_cast<float>(static_cast<std::int32_t>(word >> 8U)) * 0x1p-24F;
    return share * (upper - lower) < size - lower;
}

/// The code of a value: its sign above its level; 0 where nothing is sent of it. `level(depth)`: exponential_level, for
/// depths below rule.dither.levels.
template <typename LevelOf>
GRADSIEVE_HOST_DEVICE inline std::uint32_t exponential_code(const ExponentialRule& rule, const DitherUnit& unit,
                                                            float per_bit, float value, std::uint32_t word,
                                                            LevelOf level) {
    const std::uint32_t levels = rule.dither.levels;
    const float size = in_norms(element::magnitude(value), unit.to_levels);
    std::uint32_t depth = exponential_guess(size, per_bit, levels);
    if (level(depth - 1U) <= size) depth -= 1U;
    const float lower = depth < levels ? level(depth) : 0.0F;
    const float upper = depth > 0 ? level(depth - 1U) : lower;
    if (depth > 0 && goes_up(size, lower, upper, word)) depth -= 1U;
    if (depth == levels || !(level(depth) * unit.scale > 0.0F)) return 0;
    const std::uint32_t sign = element::bits_of(value) >> 31U;
    return (top_level(rule.dither.bits) - depth) | sign << (rule.dither.bits - 1U);
}

/// fp32 bits of what a code decodes to.
GRADSIEVE_HOST_DEVICE inline std::uint32_t exponential_decoded_bits(std::uint32_t code, std::uint32_t bits, float base,
                                                                    float scale) {
    const std::uint32_t top = top_level(bits);
    const std::uint32_t level = code & top;
    const float size = level == 0 ? 0.0F : exponential_level(base, top - level) * scale;
    return element::bits_of(size) | (code >> (bits - 1U)) << 31U;
}

namespace stages {

struct ExponentialDither {
    static constexpr QuantizerFacts kFacts = {.kind = QuantizerKind::kExponentialDither,
                                              .name = "exponential_dither",
                                              .version = 4,
                                              .tile_scales = 1,
                                              .is_dithered = true,
                                              .has_base = true,
                                              .is_random = true};
    static const QuantizerStage kStage;
    static const QuantizerCoder& kCoder;
};

}  // namespace stages

}  // namespace gradsieve::codec
