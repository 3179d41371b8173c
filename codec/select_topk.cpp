#include "codec/select_topk.hpp"

#include <array>
#include <bit>
#include <cmath>

namespace gradsieve::codec {
namespace {

constexpr std::uint32_t kMagnitudeMask = 0x7FFFFFFFU;
/// Three digits cover the 31 magnitude bits: 11, 10 and 10 bits.
constexpr std::array<unsigned, 3> kDigitShifts = {20, 10, 0};
constexpr std::array<unsigned, 3> kDigitBits = {11, 10, 10};
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
    std::uint32_t prefix = 0;  // the digits decided so far
    std::size_t wanted = k;    // how many are still to be taken among those with this prefix
    for (std::size_t digit = 0; digit < kDigitShifts.size(); ++digit) {
        const unsigned shift = kDigitShifts[digit];
        const unsigned above = shift + kDigitBits[digit];
        std::array<std::size_t, std::size_t{1} << 11U> counts{};
        for (const float value : values) {
            const std::uint32_t bits = magnitude_bits(value);
            if ((std::uint64_t{bits} >> above) != (std::uint64_t{prefix} >> above)) continue;
            ++counts[(bits >> shift) & ((1U << kDigitBits[digit]) - 1U)];
        }
        std::size_t bin = (std::size_t{1} << kDigitBits[digit]) - 1;
        while (bin > 0 && counts[bin] < wanted) wanted -= counts[bin--];
        prefix |= static_cast<std::uint32_t>(bin) << shift;
    }
    return {prefix, wanted};
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
        if (bits != cutoff.magnitude) return bits > cutoff.magnitude;
        if (ties_left == 0) return false;
        --ties_left;
        return true;
    });
    return cutoff;
}

}  // namespace gradsieve::codec
