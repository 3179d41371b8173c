#include "reference_random.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <set>

namespace gradsieve::codec::reference {
namespace {

double probability_at(const Input& input, ElementCount tile) {
    const Selector& selector = input.pipeline.selector;
    const auto limit_of = [](double probability) {
        return std::max(0.0, std::min(std::floor(probability * 4294967296.0 + 0.5), 4294967296.0) - 1);
    };
    if (selector.kind == SelectorKind::kBernoulli) return limit_of(selector.probability);
    const ElementCount last = (input.elements - 1) / kTileElements;
    const double from = limit_of(selector.probability);
    const double to = limit_of(selector.last_probability);
    if (last == 0) return from;
    // Exact: a limit times a tile's number has fewer than 53 bits in these tests.
    const double step = std::floor(std::fabs(to - from) * static_cast<double>(tile) / static_cast<double>(last));
    return to < from ? from - step : from + step;
}

PhiloxKey key_of(std::uint64_t key) {
    return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32U)};
}
std::uint64_t tensor_key(const Input& input) {
    return mix64(mix64(mix64(input.selection_seed) + input.tensor) + input.step);
}

/// floor((offset + k of) / n) without overflow, by adding k `of` times in steps of powers of two.
ElementCount systematic(ElementCount offset, ElementCount k, ElementCount n, ElementCount of) {
    ElementCount whole = offset / n;
    ElementCount rest = offset % n;
    for (int bit = 63; bit >= 0; --bit) {  // k * 2^bit as whole and rest of n
        if ((of >> static_cast<unsigned>(bit)) % 2 == 0) continue;
        ElementCount power_whole = 0;
        ElementCount power_rest = k;
        for (int doubled = 0; doubled < bit; ++doubled) {
            power_whole = 2 * power_whole + (2 * power_rest >= n ? 1 : 0);
            power_rest = 2 * power_rest % n;
        }
        whole += power_whole + (rest + power_rest) / n;
        rest = (rest + power_rest) % n;
        if (k == n) break;
    }
    return k == n ? (offset / n) + of : whole;
}

}  // namespace

SelectionRule keyed_rule(const Input& input, ElementCount first) {
    const Selector& selector = input.pipeline.selector;
    SelectionRule rule;
    if (!is_keyed(selector)) return rule;
    const ElementCount end = std::min(input.elements, first + kChunkElements);
    rule.key = key_of(mix64(tensor_key(input) + first / kChunkElements + 1));
    rule.is_subset = selector.kind == SelectorKind::kRandK ? 1 : 0;
    if (rule.is_subset == 0) {
        rule.first_limit = static_cast<std::uint32_t>(probability_at(input, first / kTileElements));
        rule.last_limit = static_cast<std::uint32_t>(probability_at(input, (end - 1) / kTileElements));
        return rule;
    }
    const ElementCount n = input.elements;
    const auto k =
        std::max<ElementCount>(1, static_cast<ElementCount>(std::floor(selector.ratio * static_cast<double>(n))));
    ElementCount offset = 0;
    for (std::uint32_t attempt = 0;; ++attempt) {
        const PhiloxBlock block = philox({{0, 5U << 24U, attempt, 0}}, key_of(tensor_key(input)));
        const std::uint64_t word = block.words[0] + block.words[1] * 4294967296ULL;
        if (word < (0 - n) % n) continue;
        offset = word % n;
        break;
    }
    rule.count = static_cast<std::uint32_t>(systematic(offset, k, n, end) - systematic(offset, k, n, first));
    return rule;
}

/// What a key stands for, by the page on payloads: Floyd's subsets with a set.
std::vector<ElementCount> keyed_selection(const Input& input) {
    std::vector<ElementCount> selected;
    for (ElementCount first = 0; first < input.elements; first += kChunkElements) {
        const SelectionRule rule = keyed_rule(input, first);
        const auto elements = static_cast<std::uint32_t>(std::min(kChunkElements, input.elements - first));
        const auto below = [&](std::uint32_t purpose, std::uint32_t counter, std::uint32_t place, std::uint64_t bound) {
            for (std::uint32_t attempt = 0;; ++attempt) {
                const std::uint64_t word = philox({{counter, purpose << 24U, attempt, 0}}, rule.key).words[place];
                if (word * bound % 4294967296ULL >= 4294967296ULL % bound)
                    return static_cast<std::uint32_t>(word * bound / 4294967296ULL);
            }
        };
        const std::uint32_t tiles = (elements + 4095) / 4096;
        const std::uint64_t offset = rule.is_subset != 0 ? below(3, 0, 0, elements) : 0;
        for (std::uint32_t tile = 0; tile < tiles; ++tile) {
            const std::uint32_t begin = tile * 4096;
            const std::uint32_t m = std::min(4096U, elements - begin);
            if (rule.is_subset == 0) {
                const auto from = static_cast<std::int64_t>(rule.first_limit);
                const std::int64_t difference = static_cast<std::int64_t>(rule.last_limit) - from;
                const std::int64_t limit = tiles < 2 ? from : from + difference * tile / (tiles - 1);
                for (std::uint32_t i = begin; i < begin + m; ++i)
                    if (philox({{i / 4, 4U << 24U, 0, 0}}, rule.key).words[i % 4] <= limit)
                        selected.push_back(first + i);
                continue;
            }
            const std::uint64_t k = rule.count;
            const std::uint64_t share = (offset + k * (begin + m)) / elements - (offset + k * begin) / elements;
            const bool is_rest = share > m / 2;
            const auto draws = static_cast<std::uint32_t>(is_rest ? m - share : share);
            std::set<std::uint32_t> drawn;
            for (std::uint32_t draw = 0; draw < draws; ++draw) {
                const std::uint32_t last = m - draws + draw;
                const std::uint32_t number = below(2, tile * 512 + draw / 4, draw % 4, last + 1);
                drawn.insert(drawn.count(number) != 0 ? last : number);
            }
            for (std::uint32_t i = 0; i < m; ++i)
                if ((drawn.count(i) != 0) != is_rest) selected.push_back(first + begin + i);
        }
    }
    return selected;
}

/// With feedback=none: the value over its probability.
float raised(const Input& input, float value) {
    const Selector& selector = input.pipeline.selector;
    if (!is_keyed(selector) || selector.feedback != Feedback::kNone) return value;
    const auto n = static_cast<double>(input.elements);
    const double probability = selector.kind == SelectorKind::kRandK ? std::max(1.0, std::floor(selector.ratio * n)) / n
                                                                     : (probability_at(input, 0) + 1) / 4294967296.0;
    const double reciprocal =
        selector.kind == SelectorKind::kRandK ? n / std::max(1.0, std::floor(selector.ratio * n)) : 1 / probability;
    const float product = value * static_cast<float>(reciprocal);
    return std::isinf(product) ? std::copysign(FLT_MAX, product) : product;
}

void keep_drawn_of_blocks(const Input& input, const std::vector<float>& residual,
                          std::vector<ElementCount>& inout_selected) {
    const auto block = static_cast<ElementCount>(input.pipeline.selector.block);
    const RandomStream stream = rounding_stream(input.random_seed, input.tensor, input.step);
    std::set<ElementCount> drawn;
    for (ElementCount first = 0; first < input.elements; first += block) {
        const ElementCount end = std::min(first + block, input.elements);
        float largest = 0;
        for (ElementCount i = first; i < end; ++i) largest = std::max(largest, std::fabs(residual[i]));
        if (largest == 0) continue;
        // In units of 2^-30 of the largest one's power of two; those of subnormal numbers are the least normal one's.
        const int unit = std::max(std::ilogb(largest), -126) - 30;
        std::vector<std::uint64_t> weights;
        std::uint64_t total = 0;
        for (ElementCount i = first; i < end; ++i) {
            weights.push_back(
                static_cast<std::uint64_t>(std::ldexp(std::fabs(static_cast<double>(residual[i])), -unit)));
            total += weights.back();
        }
        const double share = std::floor(input.pipeline.selector.ratio * static_cast<double>(end - first));
        const auto draws = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(share));
        for (std::uint64_t draw = 0; draw < draws; ++draw) {
            const std::uint64_t number = first / 2 + draw / 2;
            const auto high = static_cast<std::uint32_t>(number >> 32U);
            const PhiloxBlock words =
                philox({{static_cast<std::uint32_t>(number), high + (6U << 24U), stream.step_low, stream.step_high}},
                       stream.key);
            const std::uint64_t word =
                words.words[draw % 2 * 2] + words.words[draw % 2 * 2 + 1] * std::uint64_t{4294967296};
            // floor(word total / 2^64), by long multiplication with single bits.
            std::uint64_t target = 0;
            std::uint64_t rest = 0;  // in units of 2^-64
            for (int bit = 0; bit < 64; ++bit) {
                const bool is_set = (total >> bit) % 2 == 1;
                if (!is_set) continue;
                const std::uint64_t low = bit == 0 ? word : word << bit;
                target += bit == 0 ? 0 : word >> (64 - bit);
                rest += low;
                target += rest < low ? 1 : 0;
            }
            std::uint64_t before = 0;
            for (std::size_t i = 0; i < weights.size(); ++i) {
                if (target >= before && target < before + weights[i]) drawn.insert(first + i);
                before += weights[i];
            }
        }
    }
    std::erase_if(inout_selected, [&](ElementCount element) { return drawn.count(element) == 0; });
}

}  // namespace gradsieve::codec::reference
