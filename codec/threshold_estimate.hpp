// Thresholds estimated from a tensor's moments, as cheap top-k: the arithmetic of both estimators, once for the CPU and
// the GPU. Sums in fp64 in a fixed order, every operation rounded on its own, logarithms and quantiles of the ratio
// alone, on the host. Must hold no state and no memory access. Any thread.
//
// gaussian_k (Shi, Chu, Cheung, See 2019, arXiv:1911.08772, and their code): r is taken to be normal, and the threshold
// is mean + z std of the signed values with z = Phi^-1(1 - ratio / 2). At most three times it is halved if fewer than
// 2k/3 magnitudes are above it, and multiplied by 1.5 if more than 4k/3 are.
// sidco (Abdelmoniem, Elzanaty, Alouini, Canini 2021, arXiv:2101.10761; the exponential fit): |r| is taken to be
// exponential, and the threshold is -mean ln(ratio). With more stages the first one aims at a quarter of the elements,
// and each of the others fits those above the threshold: (mean - least) (-ln rho) + least, rho the same for all of
// them. The paper changes the number of stages from step to step; here it is given, so that a step depends on r alone.
//
// Sums: in each tile 32 strided lanes in order, of which lane l then takes lane l + 16, 8, 4, 2, 1; of 32 neighbouring
// tiles of a chunk, those that do not exist +0, tile i takes tile i + 16, 8, 4, 2, 1; of a chunk's eight such groups
// group i takes i + 4, 2, 1; the chunks are added in order, from +0.
#pragma once

#include "codec/element.hpp"
#include "codec/pipeline.hpp"

#include <cmath>

namespace gradsieve::codec {

/// Corrections of gaussian_k, and the thresholds whose counts decide them: 1, 1/2, 1/4, 3/4, 3/2, 9/4 of the first.
inline constexpr unsigned kMostCorrections = 3;
inline constexpr unsigned kCountedThresholds = 6;
/// Share that sidco's first stage of several aims at.
inline constexpr double kFirstStageShare = 0.25;
/// Tiles whose sums are joined first, and such groups of a chunk.
inline constexpr std::uint32_t kEstimateGroupTiles = 32;
inline constexpr std::uint32_t kEstimateGroups = kChunkElements / kTileElements / kEstimateGroupTiles;

/// What one look finds among a tensor's elements of at least a floor.
struct EstimateSums {
    double sum = 0;      ///< gaussian_k: of r; sidco: of |r|
    double squares = 0;  ///< gaussian_k: of r^2
    /// gaussian_k's second look: magnitudes of at least each counted floor; otherwise the first: elements summed up.
    std::uint64_t counts[kCountedThresholds] = {};
    std::uint32_t least = ~0U;  ///< magnitude bits
    std::uint32_t largest = 0;
};

/// A tensor's estimator.
struct EstimateRule {
    double first_factor = 0;  ///< gaussian_k: z; sidco: -ln of what the first stage aims at
    double next_factor = 0;   ///< sidco: -ln rho
    double elements = 0;
    std::uint64_t wanted = 0;  ///< k
    std::uint64_t most = 0;    ///< sent at most: 4k/3, the largest ones
    std::uint8_t looks = 0;    ///< at the elements, before they are listed
    bool is_gaussian = false;
};

/// Where an estimate stands.
struct EstimateState {
    double threshold = 0;       ///< magnitudes above it are selected
    std::uint32_t floor = 0;    ///< their least magnitude bits; 0 before the first look
    std::uint32_t largest = 0;  ///< magnitude bits of the tensor's largest
};

[[nodiscard]] bool is_estimated(const Selector& selector) noexcept;

/// The rule of a tensor of `elements` >= 1.
[[nodiscard]] EstimateRule estimate_rule(const Selector& selector, ElementCount elements) noexcept;

/// Least bits of the magnitudes above `threshold`, which is rounded to fp32; above 0 at least.
GRADSIEVE_HOST_DEVICE inline std::uint32_t floor_above(double threshold) {
    if (!(threshold > 0)) return 1;
    const std::uint32_t bits = element::bits_of(static_cast<float>(threshold));
    return bits < element::kExponentMask ? bits + 1U : element::kExponentMask;
}

/// The thresholds that gaussian_k's second look counts at.
GRADSIEVE_HOST_DEVICE inline double counted_threshold(double first, unsigned number) {
    switch (number) {
        case 0: return first;
        case 1: return first * 0.5;
        case 2: return first * 0.25;
        case 3: return first * 0.75;
        case 4: return first * 1.5;
        default: return first * 1.5 * 1.5;
    }
}
/// Which of them half and three halves of one are.
GRADSIEVE_HOST_DEVICE inline unsigned halved(unsigned number) { return number == 0 ? 1 : number == 1 ? 2 : 3; }
GRADSIEVE_HOST_DEVICE inline unsigned raised(unsigned number) { return number == 0 ? 4 : number == 1 ? 3 : 5; }

GRADSIEVE_HOST_DEVICE inline std::uint32_t counted_floor(const EstimateState& state, unsigned number) {
    return number == 0 ? state.floor : floor_above(counted_threshold(state.threshold, number));
}
/// Whether a look counts and sums nothing.
GRADSIEVE_HOST_DEVICE inline bool is_counting(bool is_gaussian, unsigned look) { return is_gaussian && look == 1; }

/// gaussian_k's corrections: the threshold as a share of the first one. The last correction leads to thresholds that
/// nothing is counted for, and needs no count.
GRADSIEVE_HOST_DEVICE inline double corrected_threshold(const EstimateRule& rule, double threshold,
                                                        const std::uint64_t* counts) {
    unsigned number = 0;
    for (unsigned correction = 0; correction < kMostCorrections; ++correction) {
        const std::uint64_t thrice = counts[number] * 3;
        const bool is_low = thrice > rule.wanted * 4;
        if (!is_low && thrice >= rule.wanted * 2) break;
        threshold = threshold * (is_low ? 1.5 : 0.5);
        number = is_low ? raised(number) : halved(number);
    }
    return threshold;
}

/// What a look's sums say. After the last look the floor is the largest magnitude at most, so that something is sent.
GRADSIEVE_HOST_DEVICE inline void decide_threshold(const EstimateRule& rule, unsigned look, const EstimateSums& sums,
                                                   EstimateState& inout_state) {
    if (look == 0) inout_state.largest = sums.largest;
    if (rule.is_gaussian && look == 0) {
        const double mean = sums.sum / rule.elements;
        const double spread = sums.squares / rule.elements - mean * mean;
        inout_state.threshold = mean + rule.first_factor * (spread > 0 ? sqrt(spread) : 0.0);
    } else if (rule.is_gaussian) {
        inout_state.threshold = corrected_threshold(rule, inout_state.threshold, sums.counts);
    } else if (look == 0) {
        inout_state.threshold = sums.sum / rule.elements * rule.first_factor;
    } else if (sums.counts[0] > 0) {
        const double least = element::float_of(sums.least);
        const double mean = sums.sum / static_cast<double>(sums.counts[0]);
        inout_state.threshold = (mean - least) * rule.next_factor + least;
    }
    inout_state.floor = floor_above(inout_state.threshold);
    if (look + 1U < rule.looks) return;
    if (inout_state.floor > inout_state.largest) inout_state.floor = inout_state.largest > 0 ? inout_state.largest : 1U;
}

}  // namespace gradsieve::codec
