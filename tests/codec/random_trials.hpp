// What the theory tests of randomly rounding quantizers share: one tile decoded in trial after trial, and the moments
// of what came out. Seeds are fixed: steps number the trials.
#pragma once

#include "codec/chunk_coder.hpp"
#include "codec/philox.hpp"
#include "codec/pipeline.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace gradsieve::codec {

[[nodiscard]] inline double square_norm(std::span<const float> values) {
    double sum = 0;
    for (const float value : values) sum += double{value} * value;
    return sum;
}

/// By the page: the random word of an element.
[[nodiscard]] inline std::uint32_t rounding_word(const RandomStream& random, std::uint64_t element) {
    return philox(rounding_counter(random, element / 4), random.key).words[element % 4];
}

/// Calls `see` with the decoded values of each trial.
template <typename See>
void run_trials(const Pipeline& pipeline, const std::vector<float>& values, int trials, See see) {
    std::vector<float> decoded(values.size());
    CodeScratch scratch;
    for (int trial = 0; trial < trials; ++trial) {
        const ChunkSelection selection{
            values.size(), true, {}, values, 0, rounding_stream(1, 2, static_cast<Step>(trial)), 0};
        static_cast<void>(code_chunk(pipeline, selection, scratch, decoded));
        see(decoded);
    }
}

/// Sums over trials: of each decoded value, and of the squared error.
class TrialMoments {
public:
    explicit TrialMoments(const std::vector<float>& values) : values_(values), sums_(values.size(), 0.0) {}

    void add(const std::vector<float>& decoded) {
        double error = 0;
        for (std::size_t i = 0; i < values_.size(); ++i) {
            sums_[i] += decoded[i];
            error += std::pow(double{decoded[i]} - values_[i], 2);
        }
        errors_ += error;
        squared_errors_ += error * error;
        ++trials_;
    }
    /// Of the mean of element i from its value.
    [[nodiscard]] double deviation(std::size_t i) const { return sums_[i] / trials_ - values_[i]; }
    [[nodiscard]] double mean_error() const { return errors_ / trials_; }
    /// Standard error of `mean_error`.
    [[nodiscard]] double error_spread() const {
        // Not below zero where all trials err alike, but for rounding.
        return std::sqrt(std::max(squared_errors_ / trials_ - mean_error() * mean_error(), 0.0) / trials_);
    }

private:
    const std::vector<float>& values_;
    std::vector<double> sums_;
    double errors_ = 0;
    double squared_errors_ = 0;
    int trials_ = 0;
};

}  // namespace gradsieve::codec
