// The points of the figures in docs/codecs.md. Every one is a run of the real encoder and decoder on one vector, unless
// it says that it is arithmetic. For tests and for codec_figures; reads no clock and writes no file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradsieve::codec {

/// Elements of the vectors in figures 1 and 3 of Beznosikov et al. 2020: standard normal numbers.
inline constexpr std::uint64_t kFigureElements = 10'000;

/// One vector through one operator.
struct OperatorPoint {
    std::string panel;  ///< of figure 3
    std::string curve;
    std::string codec;
    double knob = 0;        ///< what the curve varies: share kept, levels, bits; 0: nothing
    double bits = 0;        ///< of the payloads, headers included, per element of the vector
    double ideal_bits = 0;  ///< with positions at their entropy, log2 binom(d, k), and no headers; 0: not counted
    double error = 0;       ///< ||C(x) - x||^2 / ||x||^2
    double delta = 1;  ///< 1 / (1 - error); of an unbiased operator E ||C(x)||^2 / ||x||^2, as if times its inverse
};
/// Figure 1: Top-k and Rand-k over k, `vectors` vectors each.
[[nodiscard]] std::vector<OperatorPoint> sparsifier_points(int vectors);
/// Figure 3: every operator.
[[nodiscard]] std::vector<OperatorPoint> operator_points(int vectors);

/// What one index coder needs for the positions of a uniform random support.
struct IndexPoint {
    std::string coder;
    double density = 0;
    double bits = 0;     ///< per kept element, headers of payloads included
    double entropy = 0;  ///< H(f) / f
};
/// Every index coder of the stage table, of a tensor of `elements`.
[[nodiscard]] std::vector<IndexPoint> index_points(std::uint64_t elements);

/// What scales of tiles add.
struct ScalePoint {
    std::string quantizer;
    double density = 0;
    double bits = 0;  ///< per kept element
};
[[nodiscard]] std::vector<ScalePoint> scale_points(std::uint64_t elements);

/// Share of a gradient's energy that Top-5 keeps, and that Rand-5 keeps in the mean, along gradient descent.
struct EnergyPoint {
    std::string problem;
    int step = 0;
    double top = 0;
    double rand = 0;  ///< k/d: arithmetic
};
/// Figure 2's form: three quadratics, and logistic regression on two classes of Fashion-MNIST in `dataset_folder`, its
/// images reduced to 7 x 7. 50 dimensions each. Throws std::runtime_error if the folder does not hold the data.
[[nodiscard]] std::vector<EnergyPoint> energy_points(const std::string& dataset_folder);

/// log2 of the number of k-subsets of d.
[[nodiscard]] double subset_bits(double elements, double kept);

}  // namespace gradsieve::codec
