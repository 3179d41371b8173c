// What rounding to the powers of a base makes of a vector, by formulas in double: exponential dithering, and general
// rounding (Beznosikov, Horvath, Richtarik, Safaryan 2020), which has no lowest level. Independent of the codec's code
// on purpose.
#pragma once

#include "operator_moments.hpp"

namespace gradsieve::codec {

struct ExponentialTheory {
    double base = 2;
    int levels = 7;  ///< 0: general rounding, levels are all powers of the base whatever the norm
    bool is_max_norm = true;
    bool is_biased = false;
    bool is_scaled = false;
    bool is_list = false;  ///< the scale is a bf16 number, rounded up

    /// In norms; 0: there is none.
    [[nodiscard]] double lowest() const;
};
[[nodiscard]] Moments exponential_rounding(Values values, const ExponentialTheory& rule);

/// A bound of E ||C(x)||^2 / ||x||^2, unbiased and unscaled: what magnitudes between two levels add to 1 at most, and
/// what those below the lowest one, which are dithered, add at most (codec/stages/exponential_dither.hpp derives it).
[[nodiscard]] double exponential_second_moment(const ExponentialTheory& rule, double count);

/// A magnitude midway between two levels and the one that it goes to, in norms.
struct MidwayRounding {
    double size = 0;
    double level = 0;
};
/// The biased form with norm=max errs most where one element is the norm, which has no error, and all others are at one
/// of four places: beside the middle of the first two levels, or of the lowest one and 0. (Each constant is the extreme
/// of a ratio of sums over the elements; at that ratio, what an element adds to its numerator less the ratio times what
/// it adds to its denominator is extreme at the same place for all. Between two levels it is convex, or monotone, or
/// concave with its least value at an end.) This is where, for each constant.
struct NearestLevelWorst {
    MidwayRounding a;
    MidwayRounding b;
    MidwayRounding g;
    MidwayRounding delta;
    Classes classes;
};
[[nodiscard]] NearestLevelWorst nearest_level_worst(const ExponentialTheory& rule, std::size_t count);

}  // namespace gradsieve::codec
