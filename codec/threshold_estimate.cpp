#include "codec/threshold_estimate.hpp"

#include "codec/select_topk.hpp"
#include "codec/stages/stage_list.hpp"

#include <algorithm>
#include <numbers>

namespace gradsieve::codec {
namespace {

/// Phi^-1(1 - ratio / 2): the z with erfc(z / sqrt 2) = ratio, by Newton's method from above 0, where erfc is convex.
double normal_quantile(double ratio) {
    constexpr int kMostSteps = 200;
    double z = 0;
    for (int step = 0; step < kMostSteps; ++step) {
        const double slope = std::sqrt(2 / std::numbers::pi) * std::exp(-z * z / 2);
        const double next = z + (std::erfc(z / std::numbers::sqrt2) - ratio) / slope;
        if (!(next > z)) break;
        z = next;
    }
    return z;
}

}  // namespace

bool is_estimated(const Selector& selector) noexcept { return selection_of(selector) == Selection::kEstimated; }

EstimateRule estimate_rule(const Selector& selector, ElementCount elements) noexcept {
    EstimateRule rule;
    rule.elements = static_cast<double>(elements);
    const std::size_t wanted = top_k_count(selector.ratio, elements);
    rule.wanted = wanted;
    rule.most = std::min<std::uint64_t>(elements, wanted * 4 / 3);
    rule.is_gaussian = stage_of(selector).takes_normal;
    if (rule.is_gaussian) {
        rule.first_factor = normal_quantile(selector.ratio);
        rule.looks = 2;
        return rule;
    }
    const bool has_one = selector.stages == 1 || selector.ratio >= kFirstStageShare;
    rule.looks = static_cast<std::uint8_t>(has_one ? 1 : selector.stages);
    rule.first_factor = -std::log(has_one ? selector.ratio : kFirstStageShare);
    if (!has_one) rule.next_factor = -std::log(selector.ratio / kFirstStageShare) / (rule.looks - 1);
    return rule;
}

}  // namespace gradsieve::codec
