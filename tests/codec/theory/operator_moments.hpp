// What operators make of a vector, by formulas in double: the means and variances that rows of the operator table are
// made of. Independent of the codec's code on purpose.
#pragma once

#include "operator_theory.hpp"

namespace gradsieve::codec {

using Values = std::span<const float>;
using Moments = std::vector<Moment>;
using Quantize = std::function<Moments(Values)>;

[[nodiscard]] Moments exactly(Values values);
/// To the nearest number with `bits` mantissa bits, ties to even; below 2^least_exponent they are as far apart as
/// there.
[[nodiscard]] Moments nearest_float(Values values, int bits, int least_exponent = -126);
/// Largest |x| < 2^(E + 1): nearest power of two, down to `octaves` below E; above 2^E: 2^E.
[[nodiscard]] Moments nearest_power(Values values, int octaves);
[[nodiscard]] Moments signs_times(Values values, double scale);
/// Signs times the mean magnitude; of a list, whose scale is a bf16 number.
[[nodiscard]] Moments scaled_signs(Values values);
[[nodiscard]] Moments scaled_signs_of_list(Values values);
[[nodiscard]] Moments two_means(Values values);
[[nodiscard]] Moments two_means_of_list(Values values);
/// Natural compression of factor * x.
[[nodiscard]] Moments natural_rounding(Values values, double factor);

struct DitherTheory {
    int levels = 7;
    bool is_max_norm = true;
    bool is_scaled = false;
};
/// The largest E ||C(x)||^2 / ||x||^2 of standard dithering (codec/stages/dither.hpp derives it).
[[nodiscard]] double dither_second_moment(const DitherTheory& rule, double count);
[[nodiscard]] Moments dithering(Values values, const DitherTheory& rule);
/// How much rounding it up to bf16 may enlarge the scale of a list.
inline constexpr double kListEnlarged = 1 + 1.0 / 128;
/// Of a list, whose scale is a bf16 number, rounded up: its unit is larger by 2^-7 at most, and no magnitude need be a
/// whole level. By the largest magnitude.
[[nodiscard]] double list_dither_second_moment(int levels, double count);
[[nodiscard]] Moments dithering_of_list(Values values, int levels, bool is_scaled);

/// To one of 2^bits levels between the least and the largest value, at random.
struct MinMaxTheory {
    int bits = 4;
    bool is_scaled = false;
};
/// The largest E ||C(x)||^2 / ||x||^2 of it (codec/stages/minmax.hpp derives it).
[[nodiscard]] double minmax_second_moment(const MinMaxTheory& rule, std::size_t count);
[[nodiscard]] Moments between_ends(Values values, const MinMaxTheory& rule);

/// max(1, floor(ratio * count)).
[[nodiscard]] std::size_t kept_of(double ratio, std::size_t count);
/// A quantizer of the kept_of(ratio, n) largest magnitudes; ties go to the lower index.
[[nodiscard]] Moments largest_then(Values values, double ratio, const Quantize& quantize);
/// Of each block of so many elements, the last one having what is left, the kept_of(ratio, its size) largest.
[[nodiscard]] Moments largest_of_blocks_then(Values values, double ratio, std::size_t block, const Quantize& quantize);
/// The block that keeps the least share of its elements, which is the least of the energy that is kept of any vector.
struct Block {
    std::size_t first = 0;
    std::size_t count = 0;
    double share = 1;
};
[[nodiscard]] Block worst_block(double ratio, std::size_t block, std::size_t count);
/// Of those above tau.
[[nodiscard]] Moments above_then(Values values, double tau, const Quantize& quantize);

[[nodiscard]] double largest_magnitude(Values values);
[[nodiscard]] double square_sum(Values values);

}  // namespace gradsieve::codec
