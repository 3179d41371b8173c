#include "codec/random_mask.hpp"

#include "codec/select_topk.hpp"
#include "codec/stages/stage_list.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace gradsieve::codec {
namespace {

__extension__ using Wide = unsigned __int128;

/// A number below `bound`, each as likely, from pairs of words.
std::uint64_t draw_wide(PhiloxKey key, std::uint64_t bound) {
    const std::uint64_t surplus = (0 - bound) % bound;  // 2^64 mod bound
    for (std::uint32_t attempt = 0;; ++attempt) {
        const PhiloxBlock block = selection_words(key, kSharePurpose, 0, attempt);
        const std::uint64_t word = block.words[0] | std::uint64_t{block.words[1]} << 32U;
        if (word >= surplus) return word % bound;
    }
}

PhiloxKey halves(std::uint64_t key) {
    return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32U)};
}

/// Floyd's draws: number i of `draws` is below elements - draws + i + 1, and stands for itself unless it was there.
void draw_subset(PhiloxKey key, std::uint32_t tile, std::uint32_t elements, std::uint32_t draws,
                 std::uint32_t* inout_words) {
    PhiloxBlock block;
    for (std::uint32_t draw = 0; draw < draws; ++draw) {
        const std::uint32_t number = tile * kTileCounters + draw / 4;
        if (draw % 4 == 0) block = selection_words(key, kDrawPurpose, number, 0);
        const std::uint32_t last = elements - draws + draw;
        std::uint32_t drawn = selection_number(key, kDrawPurpose, number, draw % 4, last + 1, block.words[draw % 4]);
        if ((inout_words[drawn / 32] >> (drawn % 32) & 1U) != 0) drawn = last;
        inout_words[drawn / 32] |= 1U << (drawn % 32);
    }
}

void invert(std::uint32_t elements, std::uint32_t* inout_words) {
    for (std::uint32_t word = 0; word < elements / 32; ++word) inout_words[word] = ~inout_words[word];
    if (elements % 32 != 0) inout_words[elements / 32] ^= (1U << (elements % 32)) - 1U;
}

std::uint32_t draw_subset_tile(const SelectionRule& rule, std::uint32_t offset, std::uint32_t elements,
                               std::uint32_t tile, std::uint32_t* inout_words) {
    const std::uint32_t first = tile * static_cast<std::uint32_t>(kTileElements);
    const std::uint32_t of_tile = std::min(static_cast<std::uint32_t>(kTileElements), elements - first);
    const std::uint32_t share = tile_share(rule.count, offset, elements, first, first + of_tile);
    const std::uint32_t draws = drawn_share(share, of_tile);
    draw_subset(rule.key, tile, of_tile, draws, inout_words);
    if (draws != share) invert(of_tile, inout_words);
    return share;
}

/// Of a selector without a key: all.
Probabilities probabilities_of(const Selector& selector) noexcept {
    const auto probabilities = stage_of(selector).probabilities;
    return probabilities != nullptr ? probabilities(selector) : Probabilities{};
}

}  // namespace

bool is_subset(const Selector& selector) noexcept {
    return is_keyed(selector) && stage_of(selector).probabilities == nullptr;
}

std::uint32_t selection_limit(double probability) noexcept {
    const double share = std::floor(probability * 0x1p32 + 0.5);
    return static_cast<std::uint32_t>(std::clamp(share, 1.0, 0x1p32) - 1);
}

float raise_factor(const Selector& selector, ElementCount elements) noexcept {
    if (selector.feedback != Feedback::kNone) return 1;
    if (is_subset(selector))
        return static_cast<float>(static_cast<double>(elements) /
                                  static_cast<double>(top_k_count(selector.ratio, elements)));
    return static_cast<float>(1 / limit_probability(selection_limit(probabilities_of(selector).first)));
}

SelectionPlan::SelectionPlan(const Selector& selector, std::uint64_t seed, TensorId tensor, Step step,
                             ElementCount elements)
    : key_(mix64(mix64(mix64(seed) + tensor) + step)), elements_(elements), is_subset_(is_subset(selector)) {
    if (elements == 0) return;
    if (is_subset_) {
        keep_count_ = top_k_count(selector.ratio, elements);
        offset_ = draw_wide(halves(key_), elements);
        return;
    }
    const Probabilities probabilities = probabilities_of(selector);
    first_limit_ = selection_limit(probabilities.first);
    last_limit_ = selection_limit(probabilities.last);
}

/// Elements before `first` that are sent, and the offset's part.
ElementCount SelectionPlan::share_before(ElementCount first) const {
    return static_cast<ElementCount>((offset_ + static_cast<Wide>(keep_count_) * first) / elements_);
}

std::uint32_t SelectionPlan::limit_of_tile(std::uint64_t tile) const {
    const std::uint64_t last = (elements_ - 1) / kTileElements;
    if (last == 0) return first_limit_;
    const bool falls = last_limit_ < first_limit_;
    const std::uint32_t span = falls ? first_limit_ - last_limit_ : last_limit_ - first_limit_;
    const auto step = static_cast<std::uint32_t>(static_cast<Wide>(span) * tile / last);
    return falls ? first_limit_ - step : first_limit_ + step;
}

SelectionRule SelectionPlan::rule(std::uint32_t chunk) const {
    const ElementCount first = chunk * kChunkElements;
    const ElementCount end = std::min(elements_, first + kChunkElements);
    SelectionRule rule;
    rule.key = halves(mix64(key_ + chunk + 1));
    rule.is_subset = is_subset_ ? 1 : 0;
    if (is_subset_) {
        rule.count = static_cast<std::uint32_t>(share_before(end) - share_before(first));
    } else {
        rule.first_limit = limit_of_tile(first / kTileElements);
        rule.last_limit = limit_of_tile((end - 1) / kTileElements);
    }
    return rule;
}

std::uint32_t draw_indices(const SelectionRule& rule, ElementCount elements, std::uint32_t most,
                           const PayloadKernels& kernels, std::uint32_t* ret_indices) {
    const auto count = static_cast<std::uint32_t>(elements);
    const auto tiles = static_cast<std::uint32_t>((elements + kTileElements - 1) / kTileElements);
    const std::uint32_t offset = rule.is_subset != 0 ? chunk_offset(rule, count) : 0;
    const RandomRounds random = random_rounds({rule.key, 0, 0});
    std::uint32_t drawn = 0;
    for (std::uint32_t tile = 0; tile < tiles; ++tile) {
        alignas(64) std::array<std::uint32_t, kTileMaskWords> words{};
        const std::uint32_t first = tile * static_cast<std::uint32_t>(kTileElements);
        const std::uint32_t of_tile = std::min(static_cast<std::uint32_t>(kTileElements), count - first);
        const std::uint32_t kept = rule.is_subset != 0 ? draw_subset_tile(rule, offset, count, tile, words.data())
                                                       : kernels.draw_kept(random, first, of_tile,
                                                                           tile_limit(rule, tile, tiles), words.data());
        if (kept > most - drawn) return most + 1;
        if (kept > 0)
            static_cast<void>(kernels.bitmap_indices(reinterpret_cast<const std::byte*>(words.data()),
                                                     (of_tile + 7) / 8, first, ret_indices + drawn));
        drawn += kept;
    }
    return drawn;
}

}  // namespace gradsieve::codec
