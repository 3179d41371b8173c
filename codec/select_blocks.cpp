#include "codec/select_blocks.hpp"

#include "codec/element.hpp"
#include "codec/select_topk.hpp"

#include <algorithm>
#include <array>
#include <functional>

namespace gradsieve::codec {
namespace {

/// Fewer candidates than this are put in order rather than counted by their bits, whose counters have to be cleared.
constexpr std::size_t kCountedCandidates = 1024;
/// How far below a block's k-th magnitude the next one's may lie: a quarter of it at most.
constexpr std::uint32_t kFloorMargin = std::uint32_t{1} << 21U;

TopKCutoff find_cutoff(std::span<const float> values, std::size_t k) noexcept {
    if (values.size() >= kCountedCandidates) return find_top_k_cutoff(values, k);
    std::array<std::uint32_t, kCountedCandidates> sizes;
    std::ranges::transform(values, sizes.begin(), [](float value) { return element::magnitude_bits(value); });
    const auto end = sizes.begin() + static_cast<std::ptrdiff_t>(values.size());
    const auto last = sizes.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(sizes.begin(), last, end, std::greater<>());
    const auto above = std::count_if(sizes.begin(), last, [last](std::uint32_t size) { return size > *last; });
    return {*last, k - static_cast<std::size_t>(above)};
}

}  // namespace

std::size_t keep_block_best(double ratio, std::uint32_t block, std::uint32_t end, std::size_t listed,
                            SpanCells& inout_cells, std::uint32_t& inout_floor) noexcept {
    std::uint32_t* indices = inout_cells.indices.data();
    float* values = inout_cells.values.data();
    // Moves the cells [from, to) of at least that magnitude to `at`, and returns the end of them.
    const auto gather = [&](std::size_t from, std::size_t to, std::uint32_t floor, std::size_t at) {
        for (std::size_t cell = from; cell < to; ++cell) {
            const float value = values[cell];
            indices[at] = indices[cell];
            values[at] = value;
            at += element::magnitude_bits(value) >= floor ? 1U : 0U;
        }
        return at;
    };
    std::size_t kept = 0;
    for (std::size_t first = 0; first < listed;) {
        const std::uint32_t block_first = indices[first] & ~(block - 1U);
        const auto behind = static_cast<std::size_t>(
            std::lower_bound(indices + first, indices + listed, block_first + block) - indices);
        const std::size_t k = top_k_count(ratio, std::min(block, end - block_first));
        const auto enough = std::count_if(values + first, values + behind,
                                          [&](float value) { return element::magnitude_bits(value) >= inout_floor; });
        const std::uint32_t floor = static_cast<std::size_t>(enough) >= k ? inout_floor : 0U;
        std::size_t cell = kept;
        const std::size_t last = gather(first, behind, floor, kept);
        first = behind;
        TopKCutoff cutoff{0, last - kept};
        if (last - kept > k) {
            cutoff = find_cutoff({values + kept, last - kept}, k);
            inout_floor = cutoff.magnitude > kFloorMargin ? cutoff.magnitude - kFloorMargin : 0U;
        }
        for (; cell < last; ++cell) {
            const std::uint32_t size = element::magnitude_bits(values[cell]);
            const bool is_tie = size == cutoff.magnitude && cutoff.ties_kept > 0;
            cutoff.ties_kept -= is_tie ? 1U : 0U;
            indices[kept] = indices[cell];
            values[kept] = values[cell];
            kept += size > cutoff.magnitude || is_tie ? 1U : 0U;
        }
    }
    return kept;
}

}  // namespace gradsieve::codec
