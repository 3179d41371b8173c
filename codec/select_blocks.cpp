#include "codec/select_blocks.hpp"

#include "codec/element.hpp"
#include "codec/select_topk.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

namespace gradsieve::codec {
namespace {

/// Fewer candidates than this need no counters for all of their bits, which have to be cleared.
constexpr std::size_t kCountedCandidates = 1024;
/// How far below a block's k-th magnitude the next one's may lie: an eighth of it at most.
constexpr std::uint32_t kFloorMargin = std::uint32_t{1} << 20U;

/// The k-th magnitude of a few values, 1 <= k <= their number: counted in 128 classes of their range first, so that
/// only the class that holds it is put in order.
TopKCutoff find_cutoff_of_few(std::span<const float> values, std::size_t k) noexcept {
    constexpr int kClassBits = 7;
    std::array<std::uint32_t, kCountedCandidates> sizes;
    std::uint32_t least = UINT32_MAX;
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        sizes[i] = element::magnitude_bits(values[i]);
        least = std::min(least, sizes[i]);
        most = std::max(most, sizes[i]);
    }
    const int shift = std::max(0, static_cast<int>(std::bit_width(most - least)) - kClassBits);
    std::array<std::uint16_t, std::size_t{1} << kClassBits> counts{};
    for (std::size_t i = 0; i < values.size(); ++i) ++counts[(sizes[i] - least) >> shift];
    std::size_t above = 0;
    std::uint32_t wanted = (most - least) >> shift;
    for (; above + counts[wanted] < k; --wanted) above += counts[wanted];

    std::size_t members = 0;  // at the front of `sizes`
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint32_t size = sizes[i];
        sizes[members] = size;
        members += (size - least) >> shift == wanted ? 1U : 0U;
    }
    const auto begin = sizes.begin();
    const auto last = begin + static_cast<std::ptrdiff_t>(k - above - 1);
    std::nth_element(begin, last, begin + static_cast<std::ptrdiff_t>(members), std::greater<>());
    const auto larger = std::count_if(begin, last, [last](std::uint32_t size) { return size > *last; });
    return {*last, k - above - static_cast<std::size_t>(larger)};
}

TopKCutoff find_cutoff(std::span<const float> values, std::size_t k) noexcept {
    return values.size() < kCountedCandidates ? find_cutoff_of_few(values, k) : find_top_k_cutoff(values, k);
}

}  // namespace

std::optional<std::size_t> keep_block_best(const BlockRule& rule, const ListedBlocks& span, SpanCells& inout_cells,
                                           std::uint32_t& ret_floor) noexcept {
    std::uint32_t* indices = inout_cells.indices.data();
    float* values = inout_cells.values.data();
    std::uint32_t least_cutoff = UINT32_MAX;
    std::size_t kept = 0;
    std::size_t cell = 0;
    for (std::uint32_t block = span.first; block < span.end; block += rule.block) {
        const std::uint32_t block_end = std::min(block + rule.block, span.end);
        const std::size_t first = cell;
        while (cell < span.listed && indices[cell] < block_end) ++cell;
        const std::size_t k = top_k_count(rule.ratio, block_end - block);
        TopKCutoff cutoff{0, 0};
        if (cell - first > k) {
            cutoff = find_cutoff({values + first, cell - first}, k);
        } else if (cell - first < k && span.floor > 1) {
            return std::nullopt;
        }
        // With just as many, the k-th is known only to lie above the floor.
        least_cutoff = std::min(least_cutoff, cell - first == k ? span.floor : cutoff.magnitude);
        for (std::size_t at = first; at < cell; ++at) {
            const std::uint32_t size = element::magnitude_bits(values[at]);
            const bool is_tie = size == cutoff.magnitude && cutoff.ties_kept > 0;
            cutoff.ties_kept -= is_tie ? 1U : 0U;
            indices[kept] = indices[at];
            values[kept] = values[at];
            kept += size > cutoff.magnitude || is_tie ? 1U : 0U;
        }
    }
    ret_floor = least_cutoff > kFloorMargin ? least_cutoff - kFloorMargin : 1U;
    return kept;
}

}  // namespace gradsieve::codec
