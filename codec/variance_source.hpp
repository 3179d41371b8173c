// Where the variance increment of one step comes from, and the constants of its formula, fixed before the dense pass
// starts. Must not look at gradient values. Any thread; plain values.
#pragma once

#include "codec/encoder.hpp"

namespace gradsieve::codec {

/// Elements that share one variance estimate when there are few samples: aligned groups counted from the tensor's
/// start.
inline constexpr unsigned kPooledElements = 32;
/// From this many samples on each element has its own estimate.
inline constexpr std::uint32_t kPooledBelowSamples = 8;

/// The increment of v, all in fp32 in the order written, every product rounded:
///   g2 = min(gbar * gbar, FLT_MAX)
///   kSecondMoment   inc = max((q_1 + q_2 + ..) * moment_scale, 0)
///   kGroups         S = sum over samples of w * ((h - gbar) * (h - gbar)); s2 = min(S * deviation_scale, FLT_MAX)
///                   inc = s2 * noise_share + g2 * mean_share
///   kGroupsPooled   as kGroups, with s2 = min(sum of s2 over the group * fl(1 / its elements), FLT_MAX); the sum adds
///                   lane i + 16 to lane i, then i + 8, 4, 2, 1; lanes behind the tensor's end are +0
///   kSingle         inc = g2
/// and v = min(fl(c * c) * v + inc, FLT_MAX), where min(x, y) = x < y ? x : y, so that an overflow saturates.
struct VarianceRule {
    VarianceSource source = VarianceSource::kNone;
    float moment_scale = 0;     ///< 1 / B^2
    float deviation_scale = 0;  ///< 1 / (M - 1)
    float noise_share = 1;      ///< 1 - 1/B; 1 if B is unknown
    float mean_share = 0;       ///< 1/B; 0 if B is unknown
};

/// Second moments win over groups, groups over a single gradient. M counts the samples with a positive weight: a rank
/// that hands in zeros with weight 0 observes nothing. With unequal weights w_m = b_m / B this is the unbiased
/// s2 = sum w_m (h_m - gbar)^2 / (M - 1); equal weights give S / (M (M - 1)).
[[nodiscard]] VarianceRule choose_variance_rule(const EncodeRequest& request, bool may_pool) noexcept;

}  // namespace gradsieve::codec
