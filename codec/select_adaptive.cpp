#include "codec/select_adaptive.hpp"

#include "codec/element.hpp"
#include "codec/select_topk.hpp"

#include <algorithm>

namespace gradsieve::codec {
namespace {

/// Bit 63 of a sum of weights: the candidate was drawn.
constexpr std::uint64_t kDrawn = std::uint64_t{1} << 63U;

}  // namespace

std::size_t keep_drawn(double ratio, std::uint32_t block, std::uint32_t end, ElementCount chunk_first,
                       const RandomStream& stream, std::size_t listed, SpanCells& inout_cells,
                       std::vector<std::uint64_t>& scratch) {
    std::uint32_t* indices = inout_cells.indices.data();
    float* values = inout_cells.values.data();
    std::size_t kept = 0;
    for (std::size_t first = 0; first < listed;) {
        const std::uint32_t block_first = indices[first] & ~(block - 1U);
        const auto behind = static_cast<std::size_t>(
            std::lower_bound(indices + first, indices + listed, block_first + block) - indices);
        const std::size_t draws = top_k_count(ratio, std::min(block, end - block_first));
        std::uint32_t largest = 0;
        for (std::size_t cell = first; cell < behind; ++cell)
            largest = std::max(largest, element::magnitude_bits(values[cell]));
        scratch.resize(behind - first);  // ends of the candidates' weights
        std::uint64_t total = 0;
        for (std::size_t cell = first; cell < behind; ++cell)
            scratch[cell - first] = total += draw_weight(element::magnitude_bits(values[cell]), largest);
        for (std::size_t draw = 0; draw < draws; ++draw) {
            const std::uint64_t target =
                draw_target(draw_word(stream, chunk_first + block_first, static_cast<std::uint32_t>(draw)), total);
            const auto drawn = std::upper_bound(scratch.begin(), scratch.end(), target,
                                                [](std::uint64_t a, std::uint64_t b) { return a < (b & ~kDrawn); });
            *drawn |= kDrawn;
        }
        for (std::size_t cell = first; cell < behind; ++cell) {
            indices[kept] = indices[cell];
            values[kept] = values[cell];
            kept += (scratch[cell - first] & kDrawn) != 0 ? 1U : 0U;
        }
        first = behind;
    }
    return kept;
}

}  // namespace gradsieve::codec
