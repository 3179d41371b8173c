#include "codec/select_topk.hpp"

#include <array>
#include <bit>
#include <cmath>

namespace gradsieve::codec {
namespace {

constexpr std::uint32_t kMagnitudeMask = 0x7FFFFFFFU;
/// Bins of one look at the candidates: 16 kB of counters stay in the first-level cache.
constexpr unsigned kBinBits = 11;
/// The list may hold this many times k before it is cut back to k: one cut then serves at least 3 k candidates.
constexpr std::size_t kListFactor = 4;
constexpr std::size_t kLeastListLimit = std::size_t{1} << 16U;

/// Low bits of the hint's word hold the margin's logarithm.
constexpr std::uint32_t kMarginMask = 31;
/// Margins from 1/128 to 1/4 of the threshold, in steps of the bit pattern; a first one in between.
constexpr std::uint32_t kLeastMarginLog2 = 17;
constexpr std::uint32_t kMostMarginLog2 = 21;
constexpr std::uint32_t kFirstMarginLog2 = 20;
constexpr std::uint32_t kInfinityBits = 0x7F800000U;

std::uint32_t magnitude_bits(float value) { return std::bit_cast<std::uint32_t>(value) & kMagnitudeMask; }

}  // namespace

std::size_t top_k_count(double ratio, ElementCount elements) noexcept {
    if (elements == 0) return 0;
    const double wanted = std::floor(ratio * static_cast<double>(elements));
    if (!(wanted > 1.0)) return 1;
    return std::min<std::size_t>(static_cast<std::size_t>(wanted), elements);
}

ByteCount top_k_list_bytes(std::size_t k) noexcept {
    // Beyond its limit one more span is listed, and arrays grow by half.
    const std::size_t cells = std::max(k * kListFactor, kLeastListLimit);
    return (cells + cells / 2) * (sizeof(std::uint32_t) + sizeof(float));
}

TopKHint::TopKHint(std::uint32_t word) noexcept {
    const std::uint32_t margin = word & kMarginMask;
    const std::uint32_t threshold = word & ~kMarginMask;
    if (margin < kLeastMarginLog2 || margin > kMostMarginLog2) return;
    if (threshold >= kInfinityBits || threshold <= (std::uint32_t{1} << margin)) return;
    threshold_ = threshold;
    margin_log2_ = margin;
}

TopKHint TopKHint::next(std::uint32_t magnitude) const noexcept {
    std::uint32_t margin = kFirstMarginLog2;
    if (is_known()) {
        const std::uint32_t fall = threshold_ > magnitude ? threshold_ - magnitude : 0;
        const auto wanted = static_cast<std::uint32_t>(std::bit_width(fall)) + 2;
        margin = std::clamp(std::max(wanted, margin_log2_ - 1), kLeastMarginLog2, kMostMarginLog2);
    }
    return TopKHint((magnitude & ~kMarginMask) | margin);
}

TopKCutoff find_top_k_cutoff(std::span<const std::span<const float>> lists, std::size_t k) noexcept {
    std::int32_t least = kMagnitudeMask;  // signed, since that is what baseline vectors can compare
    std::int32_t most = 0;
    for (const auto values : lists) {
        for (const float value : values) {
            least = std::min(least, static_cast<std::int32_t>(magnitude_bits(value)));
            most = std::max(most, static_cast<std::int32_t>(magnitude_bits(value)));
        }
    }
    auto low = static_cast<std::uint32_t>(least);
    // Bins over what the candidates really span: top-k candidates share an exponent or two, so the first look leaves a
    // few hundred in the bin that matters. Invariant: the k-th magnitude is one of the `wanted` largest in its bin.
    std::size_t wanted = k;
    unsigned width =
        std::bit_width(static_cast<std::uint32_t>(most) - low);  // the bin under examination is [low, low + 2^width)
    while (width > 0) {
        const unsigned shift = width > kBinBits ? width - kBinBits : 0;
        std::array<std::size_t, std::size_t{1} << kBinBits> counts{};
        for (const auto values : lists) {
            for (const float value : values) {
                const std::uint32_t place = magnitude_bits(value) - low;
                if ((place >> width) == 0) ++counts[place >> shift];
            }
        }
        std::uint32_t bin = (1U << (width - shift)) - 1U;
        while (bin > 0 && counts[bin] < wanted) wanted -= counts[bin--];
        low += bin << shift;
        width = shift;
    }
    return {low, wanted};
}

TopKCutoff find_top_k_cutoff(std::span<const float> values, std::size_t k) noexcept {
    return find_top_k_cutoff(std::span(&values, 1), k);
}

void TopKCollector::begin(SelectionList& list, std::size_t k, std::uint32_t floor, std::uint32_t drops_from) noexcept {
    list_ = &list;
    list_->clear();
    dropped_.clear();
    drops_from_ = drops_from;
    k_ = k;
    limit_ = std::max(k * kListFactor, kLeastListLimit);
    const bool is_usable = floor > 1 && floor < 0x7F800000U;
    floor_ = is_usable ? floor : 1U;
    was_guess_ = is_usable;
}

void TopKCollector::raise_floor() {
    if (list_->count() > limit_) floor_ = keep_best().magnitude + 1U;
}

std::uint32_t TopKCollector::finish() {
    if (list_->count() < k_) return 0;
    return keep_best().magnitude;
}

TopKCutoff TopKCollector::keep_best() {
    const TopKCutoff cutoff = find_top_k_cutoff(list_->all_values(), k_);
    finish_with(cutoff);
    return cutoff;
}

void TopKCollector::finish_with(const TopKCutoff& cutoff) {
    std::size_t ties_left = cutoff.ties_kept;
    list_->filter(
        [&](float value) {
            const std::uint32_t bits = magnitude_bits(value);
            const bool is_tie = bits == cutoff.magnitude && ties_left > 0;
            ties_left -= is_tie ? 1U : 0U;
            if (bits > cutoff.magnitude || is_tie) return SelectionList::Fate::kKeep;
            return bits >= drops_from_ ? SelectionList::Fate::kDropAndTell : SelectionList::Fate::kDrop;
        },
        [&](ElementCount element, float value, float variance) {
            dropped_.push_back({element, value, variance});
        });
}

}  // namespace gradsieve::codec
