// Gradient descent on strongly convex quadratics whose gradients go through the real encoder and decoder: for the rates
// that theory promises. Every node has its own quadratic, all with the same minimizer (D = 0), the origin.
#pragma once

#include "tests/codec/encoder_harness.hpp"

#include <random>
#include <span>
#include <vector>

namespace gradsieve::codec {

/// f(x) = 1/2 x' H D H x: D diagonal from 1 to the condition number, H a mirror, so that no axis is an eigenvector.
class Quadratic {
public:
    Quadratic(std::size_t dimensions, double condition, std::mt19937_64& random);
    [[nodiscard]] std::vector<double> gradient(std::span<const double> x) const;
    [[nodiscard]] double value(std::span<const double> x) const;

private:
    [[nodiscard]] std::vector<double> mirrored(std::span<const double> x) const;
    std::vector<double> eigenvalues_;
    std::vector<double> normal_;  ///< of the mirror, length 1
};

/// x' = x - rate * mean over nodes of C(gradient), with each node's error feedback or without any.
class Descent {
public:
    enum class Feedback { kKept, kDropped };
    /// `condition` = L / mu, mu = 1. Starts at (1, ..., 1) / sqrt(dimensions).
    Descent(const Pipeline& pipeline, std::size_t dimensions, double condition, std::size_t nodes, Feedback feedback,
            std::uint64_t seed);

    /// Between steps of another rate the residual, which is in units of the gradient, is rescaled.
    void step(double rate);
    /// Standard deviation of noise that is added to each component of each node's gradient.
    void set_noise(double noise) { noise_ = noise; }

    [[nodiscard]] const std::vector<double>& position() const { return x_; }
    /// f(x), the mean over nodes; its minimum is 0.
    [[nodiscard]] double value() const { return value_at(x_); }
    [[nodiscard]] double value_at(std::span<const double> x) const;
    /// ||x - rate * mean e||^2: where x would be, had the residuals been sent.
    [[nodiscard]] double virtual_square();
    /// Mean over nodes of ||rate * e||^2.
    [[nodiscard]] double residual_square();

private:
    std::vector<Quadratic> quadratics_;
    std::vector<EncodeLoop> loops_;
    std::vector<double> x_;
    std::mt19937_64 random_;
    Feedback feedback_;
    double noise_ = 0;
    double rate_ = 0;
};

}  // namespace gradsieve::codec
