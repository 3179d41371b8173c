#include "codec/variance_source.hpp"

#include <algorithm>

namespace gradsieve::codec {

std::string_view variance_source_name(VarianceSource source) noexcept {
    switch (source) {
        case VarianceSource::kNone: return "none";
        case VarianceSource::kSecondMoment: return "second moment";
        case VarianceSource::kGroups: return "groups";
        case VarianceSource::kGroupsPooled: return "groups, pooled";
        case VarianceSource::kSingle: return "single gradient";
    }
    return "unknown";
}

VarianceRule choose_variance_rule(const EncodeRequest& request, bool may_pool) noexcept {
    VarianceRule rule;
    const auto batch = static_cast<double>(request.batch_samples);
    if (!request.second_moments.empty()) {
        rule.source = VarianceSource::kSecondMoment;
        rule.moment_scale = static_cast<float>(1.0 / (batch * batch));
        return rule;
    }
    const auto observed =
        std::count_if(request.weights.begin(), request.weights.end(), [](float weight) { return weight > 0.0F; });
    if (observed < 2) {
        rule.source = VarianceSource::kSingle;
        return rule;
    }
    const bool pools = may_pool && observed < kPooledBelowSamples;
    rule.source = pools ? VarianceSource::kGroupsPooled : VarianceSource::kGroups;
    rule.deviation_scale = static_cast<float>(1.0 / static_cast<double>(observed - 1));
    if (request.batch_samples > 0) {
        rule.noise_share = static_cast<float>(1.0 - 1.0 / batch);
        rule.mean_share = static_cast<float>(1.0 / batch);
    }
    return rule;
}

}  // namespace gradsieve::codec
