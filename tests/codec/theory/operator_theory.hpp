// One row per operator: what theory says it does to a vector, in double and by formulas of its own, and the constants
// of the classes that it is in. The suites of this folder run every row against the real codec; a new stage joins with
// a row in operator_theory.cpp. Vectors have at most kTileElements elements, so that one tile is the whole vector.
#pragma once

#include "codec/pipeline.hpp"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::codec {

/// What C(x)_i is, over the random numbers of the operator.
struct Moment {
    double mean = 0;
    double variance = 0;
    double low = 0;  ///< the two values that it takes, if its variance is not zero
    double high = 0;
};

/// Constants of the classes of Beznosikov, Horvath, Richtarik, Safaryan 2020, on vectors of a given length:
/// B1(a, b): a ||x||^2 <= E ||C(x)||^2 <= b <E C(x), x>; B2(g, b): g ||x||^2 <= <E C(x), x>, and b as before;
/// B3(delta): E ||C(x) - x||^2 <= (1 - 1/delta) ||x||^2; U(z): E C(x) = x, E ||C(x)||^2 <= z ||x||^2.
struct Classes {
    double a = 1;
    double b = 1;
    double g = 1;
    double delta = 1;
    double z = 0;  ///< 0: biased
};

using MakeVector = std::function<std::vector<float>(std::size_t)>;
/// Vectors at which a constant is attained, or nearly so where `slack` says it is a limit; empty: none is known.
struct Extremal {
    MakeVector a;
    MakeVector b;
    MakeVector g;
    MakeVector delta;
    double slack = 1e-4;  ///< relative, at 1000 elements or more
};

struct OperatorTheory {
    std::string text;  ///< the codec
    bool is_random = false;
    std::function<std::vector<Moment>(std::span<const float>)> moments;
    std::function<Classes(std::size_t)> classes;  ///< empty: in none of them
    Extremal extremal;

    [[nodiscard]] Pipeline pipeline() const;
};
/// Every operator with a stage.
[[nodiscard]] const std::vector<OperatorTheory>& operator_theories();

/// Numbers of the rows for which `predicate` holds; suites are instantiated with them.
[[nodiscard]] std::vector<std::size_t> rows_with(bool (*predicate)(const OperatorTheory&));
[[nodiscard]] bool is_any(const OperatorTheory& row);
[[nodiscard]] bool has_classes(const OperatorTheory& row);
[[nodiscard]] bool has_extremes(const OperatorTheory& row);
/// A delta, and a residual around it.
[[nodiscard]] bool has_contraction(const OperatorTheory& row);
/// Letters and digits of its text, for the names of tests.
[[nodiscard]] std::string name_of(const OperatorTheory& row);

/// Normalized by ||x||^2, which must not be zero.
struct Energies {
    double sent = 0;       ///< E ||C(x)||^2
    double aligned = 0;    ///< <E C(x), x>
    double error = 0;      ///< E ||C(x) - x||^2
    double mean_sent = 0;  ///< ||E C(x)||^2
};
[[nodiscard]] Energies energies(std::span<const float> values, std::span<const Moment> moments);

/// The variance of ||C(x) - x||^2, elements being independent; not normalized.
[[nodiscard]] double error_variance(std::span<const float> values, std::span<const Moment> moments);

/// Times the power of two that brings the largest magnitude into [4, 8), so that no format's range ends in the vector.
[[nodiscard]] std::vector<float> in_range(std::vector<float> values);
/// Vectors of many kinds, and the row's own extremal ones.
[[nodiscard]] std::vector<std::vector<float>> vectors_for(const OperatorTheory& row, std::size_t count);

/// n of one magnitude.
[[nodiscard]] std::vector<float> constant_vector(std::size_t count, float value);
[[nodiscard]] std::vector<float> one_hot_vector(std::size_t count);

}  // namespace gradsieve::codec
