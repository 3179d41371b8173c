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
                            SpanCells& inout_cells) noexcept {
    std::uint32_t* indices = inout_cells.indices.data();
    float* values = inout_cells.values.data();
    std::size_t kept = 0;
    for (std::size_t first = 0; first < listed;) {
        const std::uint32_t block_first = indices[first] & ~(block - 1U);
        const auto behind = static_cast<std::size_t>(
            std::lower_bound(indices + first, indices + listed, block_first + block) - indices);
        const std::size_t k = top_k_count(ratio, std::min(block, end - block_first));
        TopKCutoff cutoff{0, behind - first};
        if (behind - first > k) cutoff = find_cutoff({values + first, behind - first}, k);
        for (; first < behind; ++first) {
            const std::uint32_t size = element::magnitude_bits(values[first]);
            const bool is_tie = size == cutoff.magnitude && cutoff.ties_kept > 0;
            cutoff.ties_kept -= is_tie ? 1U : 0U;
            indices[kept] = indices[first];
            values[kept] = values[first];
            kept += size > cutoff.magnitude || is_tie ? 1U : 0U;
        }
    }
    return kept;
}

}  // namespace gradsieve::codec
