#include "reference.hpp"

#include "codec/threshold_estimate.hpp"
#include "reference_clip.hpp"
#include "reference_delta.hpp"
#include "reference_random.hpp"
#include "reference_rotation.hpp"
#include "reference_warmup.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numeric>

namespace gradsieve::codec::reference {
namespace {

float saturated(float value) { return value < FLT_MAX ? value : FLT_MAX; }

std::size_t observed_samples(const Input& input) {
    return static_cast<std::size_t>(std::ranges::count_if(input.weights, [](float weight) { return weight > 0; }));
}

std::optional<NonFinite> find_non_finite(const Input& input, const std::vector<float>& residual) {
    const bool reads_moments = has_variance(input.pipeline);
    for (ElementCount element = 0; element < input.elements; ++element) {
        for (std::size_t sample = 0; sample < input.samples.size(); ++sample) {
            if (!std::isfinite(input.samples[sample][element]))
                return NonFinite{static_cast<std::uint32_t>(sample), element};
        }
        for (std::size_t rank = 0; reads_moments && rank < input.second_moments.size(); ++rank) {
            if (std::isfinite(input.second_moments[rank][element])) continue;
            return NonFinite{static_cast<std::uint32_t>(rank * input.samples.size() / input.second_moments.size()),
                             element};
        }
        if (!std::isfinite(residual[element])) return NonFinite{0, element};
    }
    return std::nullopt;
}

bool is_candidate(const Input& input, float residual, float variance) {
    const Selector& selector = input.pipeline.selector;
    switch (selector.kind) {
        case SelectorKind::kAll: return true;
        case SelectorKind::kVariance: return passes_test(residual, static_cast<float>(selector.alpha), variance);
        case SelectorKind::kVarianceHybrid:
            return std::fabs(residual) > static_cast<float>(selector.tau) &&
                   passes_test(residual, static_cast<float>(selector.alpha), variance);
        case SelectorKind::kThreshold: return std::fabs(residual) > static_cast<float>(selector.tau);
        case SelectorKind::kGaussianK:
        case SelectorKind::kSidco:
        case SelectorKind::kBlockTopK:
        case SelectorKind::kAdaptiveRandom: return residual != 0;
        case SelectorKind::kRandK:
        case SelectorKind::kBernoulli:
        case SelectorKind::kBiasedRandom: return false;  // whatever they hold
        case SelectorKind::kTopK:
            if (residual == 0) return false;
            return selector.gate == 0 || passes_test(residual, static_cast<float>(selector.gate), variance);
    }
    return false;
}

std::size_t wanted_count(const Input& input, ElementCount elements) {
    const double wanted = std::floor(input.pipeline.selector.ratio * static_cast<double>(elements));
    return std::max<std::size_t>(1, static_cast<std::size_t>(wanted));
}

/// The k largest magnitudes, the lower index first among equals, by sorting everything.
void keep_largest(std::size_t k, const std::vector<float>& residual, std::vector<ElementCount>& ret_selected) {
    std::stable_sort(ret_selected.begin(), ret_selected.end(),
                     [&](ElementCount a, ElementCount b) { return std::fabs(residual[a]) > std::fabs(residual[b]); });
    if (ret_selected.size() > k) ret_selected.resize(k);
    std::sort(ret_selected.begin(), ret_selected.end());
}

/// The same block by block.
void keep_largest_of_blocks(const Input& input, const std::vector<float>& residual,
                            std::vector<ElementCount>& ret_selected) {
    const auto block = static_cast<ElementCount>(input.pipeline.selector.block);
    std::vector<ElementCount> kept;
    auto candidate = ret_selected.begin();  // ascending: each block's own follow those of the one before
    for (ElementCount first = 0; first < input.elements; first += block) {
        std::vector<ElementCount> own;
        for (; candidate != ret_selected.end() && *candidate / block == first / block; ++candidate)
            own.push_back(*candidate);
        keep_largest(wanted_count(input, std::min(block, input.elements - first)), residual, own);
        kept.insert(kept.end(), own.begin(), own.end());
    }
    ret_selected = kept;
}

/// One term for each element, in the order that threshold_estimate.hpp states.
double sum_in_order(const std::vector<double>& terms) {
    double total = 0;
    for (std::size_t chunk = 0; chunk < terms.size(); chunk += kChunkElements) {
        std::vector<double> groups;
        for (std::size_t group = chunk; group < chunk + kChunkElements; group += 32 * kTileElements) {
            std::vector<double> tiles;
            for (std::size_t tile = group; tile < group + 32 * kTileElements; tile += kTileElements) {
                std::vector<double> lanes(32, 0.0);
                for (std::size_t i = tile; i < std::min<std::size_t>(tile + kTileElements, terms.size()); ++i)
                    lanes[i % 32] += terms[i];
                tiles.push_back(folded(lanes));
            }
            groups.push_back(folded(tiles));
        }
        total += folded(groups);
    }
    return total;
}

std::size_t count_above(const std::vector<float>& residual, double threshold) {
    std::size_t count = 0;
    for (const float value : residual)
        count += std::fabs(value) > std::max(static_cast<float>(threshold), 0.0F) ? 1 : 0;
    return count;
}
double gaussian_threshold(const Input& input, const std::vector<float>& residual, const EstimateRule& rule) {
    std::vector<double> values(residual.begin(), residual.end());
    const double mean = sum_in_order(values) / static_cast<double>(values.size());
    for (double& value : values) value = value * value;
    const double variance = sum_in_order(values) / static_cast<double>(values.size()) - mean * mean;
    double threshold = mean + rule.first_factor * std::sqrt(std::max(variance, 0.0));
    const auto k = static_cast<double>(wanted_count(input, input.elements));
    for (int correction = 0; correction < 3; ++correction) {
        const auto count = static_cast<double>(count_above(residual, threshold));
        if (3 * count < 2 * k)
            threshold *= 0.5;
        else if (3 * count > 4 * k)
            threshold *= 1.5;
        else
            break;
    }
    return threshold;
}
double exponential_threshold(const std::vector<float>& residual, const EstimateRule& rule) {
    double threshold = 0;
    for (int stage = 0; stage < rule.looks; ++stage) {
        std::vector<double> terms(residual.size(), 0.0);
        double count = 0;
        double least = INFINITY;
        for (std::size_t i = 0; i < residual.size(); ++i) {
            const float size = std::fabs(residual[i]);
            if (stage > 0 && !(size > static_cast<float>(threshold))) continue;
            terms[i] = size;
            count += 1;
            least = std::min(least, static_cast<double>(size));
        }
        if (count == 0) break;
        const double mean = sum_in_order(terms) / count;
        threshold = stage == 0 ? mean * rule.first_factor : (mean - least) * rule.next_factor + least;
    }
    return threshold;
}
/// What is above the estimated threshold, at least the largest and at most 4/3 of k.
void keep_estimated(const Input& input, const std::vector<float>& residual, std::vector<ElementCount>& ret_selected) {
    const EstimateRule rule = estimate_rule(input.pipeline.selector, input.elements);
    double threshold = input.pipeline.selector.kind == SelectorKind::kGaussianK
                           ? gaussian_threshold(input, residual, rule)
                           : exponential_threshold(residual, rule);
    threshold = std::max(threshold, 0.0);
    float largest = 0;
    for (const float value : residual) largest = std::max(largest, std::fabs(value));
    std::erase_if(ret_selected, [&](ElementCount element) {
        const float size = std::fabs(residual[element]);
        return !(size > static_cast<float>(threshold)) && size != largest;
    });
    keep_largest(wanted_count(input, input.elements) * 4 / 3, residual, ret_selected);
}

/// State of one element after the exchange knows what was decoded for it (0: not sent).
void settle(const Input& input, bool is_selected, float decoded, float& ret_residual, float* ret_variance) {
    const Selector& selector = input.pipeline.selector;
    const float residual = ret_residual;
    if (selector.kind == SelectorKind::kAll || (is_keyed(selector) && is_selected)) {
        ret_residual = residual - decoded;
        return;
    }
    if (decoded == 0) {
        if (ret_variance != nullptr) *ret_variance = static_cast<float>(selector.zeta) * *ret_variance;
        return;
    }
    ret_residual = selector.is_faithful ? 0.0F : residual - decoded;
    if (ret_variance == nullptr) return;
    if (selector.kind != SelectorKind::kVarianceHybrid) {
        *ret_variance = 0;
        return;
    }
    const float a = std::fabs(residual);
    const float tau = std::fabs(decoded);
    const float two_a_tau = 2.0F * a * tau;
    const float tau_squared = tau * tau;
    *ret_variance = std::max(*ret_variance - two_a_tau + tau_squared, 0.0F);
}

void code_and_settle(const Input& input, const std::vector<float>& residual, const std::vector<float>& variance,
                     Output& ret_output) {
    float tensor_maximum = 0;
    for (const ElementCount element : ret_output.selected)
        tensor_maximum = std::max(tensor_maximum, std::fabs(residual[element]));
    ret_output.decoded.assign(input.elements, 0.0F);
    CodeScratch scratch;
    for (ElementCount first = 0; first < input.elements; first += kChunkElements) {
        ChunkSelection selection;
        selection.chunk_elements = std::min(kChunkElements, input.elements - first);
        selection.is_dense = input.pipeline.selector.kind == SelectorKind::kAll;
        selection.tensor_maximum = tensor_maximum;
        selection.random = rounding_stream(input.random_seed, input.tensor, input.step);
        selection.first_element = first;
        const PhiloxKey rotation = chunk_rotation(input, first);
        if (has_rotation(input.pipeline)) selection.rotation = &rotation;
        std::vector<std::uint32_t> indices;
        std::vector<float> values;
        for (const ElementCount element : ret_output.selected) {
            if (element < first || element >= first + selection.chunk_elements) continue;
            indices.push_back(static_cast<std::uint32_t>(element - first));
            values.push_back(raised(input, residual[element]));
        }
        if (values.empty()) continue;
        if (!selection.is_dense) selection.indices = indices;
        selection.values = values;
        const SelectionRule rule = keyed_rule(input, first);
        if (is_keyed(input.pipeline.selector)) selection.keyed = &rule;
        std::vector<float> decoded(values.size(), std::nanf(""));
        PayloadBytes payload = code_chunk(input.pipeline, selection, scratch, decoded);
        if (payload.empty()) continue;
        ret_output.chunks.push_back({static_cast<std::uint32_t>(first / kChunkElements), std::move(payload)});
        for (std::size_t cell = 0; cell < values.size(); ++cell) {
            ret_output.decoded[first + indices[cell]] = decoded[cell];
            if (selection.is_dense || selection.keyed != nullptr || decoded[cell] != 0) ++ret_output.kept_elements;
        }
    }
    ret_output.state.residual = residual;
    ret_output.state.variance = variance;
    if (!has_residual(input.pipeline)) {
        ret_output.state.residual.clear();
        return;
    }
    for (ElementCount element = 0; element < input.elements; ++element) {
        float* cell = variance.empty() ? nullptr : &ret_output.state.variance[element];
        const bool is_selected = std::binary_search(ret_output.selected.begin(), ret_output.selected.end(), element);
        settle(input, is_selected, ret_output.decoded[element], ret_output.state.residual[element], cell);
    }
}

}  // namespace

float mean_of_samples(const Input& input, ElementCount element) {
    float mean = input.weights[0] * input.samples[0][element];
    for (std::size_t sample = 1; sample < input.samples.size(); ++sample)
        mean = mean + input.weights[sample] * input.samples[sample][element];
    return mean;
}

float momentum_after(const Input& input, const State& before, ElementCount element) {
    const float factor = static_cast<float>(input.pipeline.front.factor) * input.rescale;
    const float carried = factor * before.momentum[element];
    return carried + mean_of_samples(input, element);
}

float handed_in(const Input& input, const State& before, ElementCount element) {
    const auto gamma = static_cast<float>(input.pipeline.front.gamma);
    if (input.pipeline.front.kind != FrontKind::kMomentum) {
        float sum = (gamma * input.weights[0]) * input.samples[0][element];
        for (std::size_t sample = 1; sample < input.samples.size(); ++sample) {
            const float product = (gamma * input.weights[sample]) * input.samples[sample][element];
            sum = sum + product;
        }
        return sum;
    }
    const float u = momentum_after(input, before, element);
    if (!input.pipeline.front.is_nesterov) return gamma * u;
    const float ahead = (gamma * (1.0F + static_cast<float>(input.pipeline.front.factor))) * u;
    const float factor = static_cast<float>(input.pipeline.front.factor) * input.rescale;
    const float behind = (gamma * -factor) * before.momentum[element];
    return ahead + behind;
}

float filtered(const Input& input, float before, float left) {
    const auto share = static_cast<float>(input.pipeline.front.low_pass);
    if (share == 1.0F) return left;
    const float kept = ((1.0F - share) * input.rescale) * before;
    const float taken = share * left;
    return std::clamp(kept + taken, -FLT_MAX, FLT_MAX);
}

VarianceSource variance_source(const Input& input) {
    if (!has_variance(input.pipeline)) return VarianceSource::kNone;
    if (!input.second_moments.empty()) return VarianceSource::kSecondMoment;
    const std::size_t observed = observed_samples(input);
    if (observed < 2) return VarianceSource::kSingle;
    return input.may_pool && observed < 8 ? VarianceSource::kGroupsPooled : VarianceSource::kGroups;
}

float variance_of_mean(const Input& input, ElementCount element) {
    const float mean = mean_of_samples(input, element);
    float sum = 0;
    for (std::size_t sample = 0; sample < input.samples.size(); ++sample) {
        const float deviation = input.samples[sample][element] - mean;
        const float square = deviation * deviation;
        const float term = input.weights[sample] * square;
        sum = sum + term;
    }
    const auto scale = static_cast<float>(1.0 / (static_cast<double>(observed_samples(input)) - 1.0));
    return saturated(sum * scale);
}

float pooled_variance_of_mean(const Input& input, ElementCount element) {
    const ElementCount first = element / 32 * 32;
    const ElementCount count = std::min<ElementCount>(32, input.elements - first);
    std::vector<float> lanes(32, 0.0F);
    for (ElementCount lane = 0; lane < count; ++lane) lanes[lane] = variance_of_mean(input, first + lane);
    for (const std::size_t half : {16U, 8U, 4U, 2U, 1U})
        for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] + lanes[lane + half];
    const float share = 1.0F / static_cast<float>(count);
    return saturated(lanes[0] * share);
}

float increment(const Input& input, ElementCount element) {
    const auto batch = static_cast<double>(input.batch_samples);
    const VarianceSource source = variance_source(input);
    if (source == VarianceSource::kSecondMoment) {
        float sum = input.second_moments[0][element];
        for (std::size_t rank = 1; rank < input.second_moments.size(); ++rank)
            sum = sum + input.second_moments[rank][element];
        const float scaled = sum * static_cast<float>(1.0 / (batch * batch));
        return scaled > 0 ? scaled : 0.0F;
    }
    const float mean = mean_of_samples(input, element);
    const float mean_squared = saturated(mean * mean);
    if (source == VarianceSource::kSingle) return mean_squared;
    const float s2 = source == VarianceSource::kGroupsPooled ? pooled_variance_of_mean(input, element)
                                                             : variance_of_mean(input, element);
    if (input.batch_samples == 0) return s2;
    const float noise = s2 * static_cast<float>(1.0 - 1.0 / batch);
    const float signal = mean_squared * static_cast<float>(1.0 / batch);
    return noise + signal;
}

bool passes_test(float residual, float factor, float variance) {
    const float square = residual * residual;
    const float limit = factor * variance;
    return square > saturated(limit);
}

Output encode(const Input& input, const State& before) {
    if (input.pipeline.front.warmup_steps > 0) return encode(warmed(input), before);
    if (has_local_clip(input.pipeline)) return encode(clipped(input), before);
    if (input.pipeline.front.is_difference) return encode_difference(input, before);
    Output output;
    output.variance_source = variance_source(input);
    std::vector<float> residual(input.elements);
    std::vector<float> variance;
    for (ElementCount element = 0; element < input.elements; ++element) {
        const float own = handed_in(input, before, element);
        residual[element] = own;
        if (!has_residual(input.pipeline)) continue;
        const float carried = static_cast<float>(input.pipeline.front.beta) * input.rescale * before.residual[element];
        residual[element] = carried + own;
    }
    output.non_finite = find_non_finite(input, residual);
    if (!output.non_finite) output.non_finite = find_too_large(input, residual);
    if (output.non_finite) return output;
    if (has_variance(input.pipeline)) {
        variance.resize(input.elements);
        const float rescale_squared = input.rescale * input.rescale;
        for (ElementCount element = 0; element < input.elements; ++element) {
            const float carried = rescale_squared * before.variance[element];
            variance[element] = saturated(carried + increment(input, element));
        }
    }
    for (ElementCount element = 0; element < input.elements; ++element) {
        const float v = variance.empty() ? 0.0F : variance[element];
        if (is_candidate(input, residual[element], v)) output.selected.push_back(element);
    }
    const SelectorKind selector = input.pipeline.selector.kind;
    if (selector == SelectorKind::kTopK) keep_largest(wanted_count(input, input.elements), residual, output.selected);
    if (is_estimated(input.pipeline.selector)) keep_estimated(input, residual, output.selected);
    if (selector == SelectorKind::kBlockTopK) keep_largest_of_blocks(input, residual, output.selected);
    if (selector == SelectorKind::kAdaptiveRandom) keep_drawn_of_blocks(input, residual, output.selected);
    if (is_keyed(input.pipeline.selector)) output.selected = keyed_selection(input);
    if (input.step % static_cast<Step>(input.pipeline.front.period) != 0) output.selected.clear();
    code_and_settle(input, residual, variance, output);
    for (ElementCount element = 0; element < output.state.residual.size(); ++element)
        output.state.residual[element] = filtered(input, before.residual[element], output.state.residual[element]);
    if (input.pipeline.front.kind != FrontKind::kMomentum) return output;
    for (ElementCount element = 0; element < input.elements; ++element) {
        const bool is_masked = selector != SelectorKind::kAll && output.decoded[element] != 0;
        output.state.momentum.push_back(is_masked ? 0.0F : momentum_after(input, before, element));
    }
    return output;
}

}  // namespace gradsieve::codec::reference
