// Send rates of the variance rule on Gaussian samples, as in the table that the rates are held against.
#pragma once

#include "encoder_harness.hpp"

namespace gradsieve::codec {

/// Gaussian per-sample gradients with B = 64 and a given mean; the sum of a step's samples is known to one provider in
/// one way: second moments, group means, or the step's mean alone.
struct RateCase {
    VarianceSource provider = VarianceSource::kSingle;
    std::size_t groups = 1;      ///< M; 1 unless the provider is kGroups
    double signal_to_noise = 0;  ///< mean * sqrt(B) / sigma
    double alpha = 1;
    double expected_rate = 0;
    double zeta = 0.999;
};
struct RateRun {
    ElementCount elements = 40000;
    int steps = 1500;
    int counted_from = 700;
};
/// Elements sent per element and step, counted over the last steps of the run.
[[nodiscard]] double simulate_send_rate(const RateCase& which, const RateRun& run, std::uint64_t seed);
/// The rates of the table: every provider, signal and alpha.
[[nodiscard]] std::vector<RateCase> rate_table();
[[nodiscard]] std::string rate_case_name(const RateCase& which);

}  // namespace gradsieve::codec
