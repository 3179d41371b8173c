// Exact top-k block by block over the cells that a dense pass listed. Integer work only, so that the answer is the same
// everywhere. One thread.
#pragma once

#include "codec/select_list.hpp"

#include <optional>

namespace gradsieve::codec {

/// Where blocks begin and what they may send.
struct BlockRule {
    double ratio = 1;         ///< of a block's elements, at least one
    std::uint32_t block = 0;  ///< elements: a power of two, at most a tile; blocks begin at multiples of it
};
/// Elements [first, end) of a chunk, `first` a multiple of the block, and how many cells were listed of them:
/// ascending, all whose magnitudes have bits of at least `floor`. 1 leaves out only zeros.
struct ListedBlocks {
    std::uint32_t first = 0, end = 0;
    std::size_t listed = 0;
    std::uint32_t floor = 1;
};

/// Leaves of each block its max(1, floor(ratio n)) largest magnitudes, n the elements that it has, the lower index
/// first among equals; returns how many cells are left. Nothing, and cells that mean nothing, if a block lists fewer
/// than that above a floor beyond 1: they are to be listed again with 1. Cells' variances are left alone. `ret_floor`:
/// a floor to list the next span with, a little below the least of the k-th magnitudes.
[[nodiscard]] std::optional<std::size_t> keep_block_best(const BlockRule& rule, const ListedBlocks& span,
                                                         SpanCells& inout_cells, std::uint32_t& ret_floor) noexcept;

}  // namespace gradsieve::codec
