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

std::uint32_t magnitude_bits(float value) { return std::bit_cast<std::uint32_t>(value) & kMagnitudeMask; }

}  // namespace

std::size_t top_k_count(double ratio, ElementCount elements) noexcept {
    if (elements == 0) return 0;
    const double wanted = std::floor(ratio * static_cast<double>(elements));
    if (!(wanted > 1.0)) return 1;
    return std::min<std::size_t>(static_cast<std::size_t>(wanted), elements);
}

TopKCutoff find_top_k_cutoff(std::span<const float> values, std::size_t k) noexcept {
    std::int32_t least = kMagnitudeMask;  // signed, since that is what baseline vectors can compare
    std::int32_t most = 0;
    for (const float value : values) {
        least = std::min(least, static_cast<std::int32_t>(magnitude_bits(value)));
        most = std::max(most, static_cast<std::int32_t>(magnitude_bits(value)));
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
        for (const float value : values) {
            const std::uint32_t place = magnitude_bits(value) - low;
            if ((place >> width) == 0) ++counts[place >> shift];
        }
        std::uint32_t bin = (1U << (width - shift)) - 1U;
        while (bin > 0 && counts[bin] < wanted) wanted -= counts[bin--];
        low += bin << shift;
        width = shift;
    }
    return {low, wanted};
}

void TopKCollector::begin(SelectionList& list, std::size_t k, std::uint32_t floor) noexcept {
    list_ = &list;
    list_->clear();
    k_ = k;
    limit_ = std::max(k * kListFactor, kLeastListLimit);
    const bool is_usable = floor > 1 && floor < 0x7F800000U;
    floor_ = is_usable ? floor : 1U;
    was_guess_ = is_usable;
}

void TopKCollector::make_room(std::size_t elements, std::size_t slack) {
    if (list_->count() > limit_) floor_ = keep_best().magnitude + 1U;
    list_->reserve_more(elements + slack, false);
}

std::uint32_t TopKCollector::finish() {
    if (list_->count() < k_) return 0;
    return keep_best().magnitude;
}

TopKCutoff TopKCollector::keep_best() {
    const TopKCutoff cutoff = find_top_k_cutoff(list_->all_values(), k_);
    std::size_t ties_left = cutoff.ties_kept;
    list_->filter([&](float value) {
        const std::uint32_t bits = magnitude_bits(value);
        const bool is_tie = bits == cutoff.magnitude && ties_left > 0;
        ties_left -= is_tie ? 1U : 0U;
        return bits > cutoff.magnitude || is_tie;
    });
    return cutoff;
}

}  // namespace gradsieve::codec
