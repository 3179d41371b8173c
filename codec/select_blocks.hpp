// Exact top-k block by block over the cells that a dense pass listed. Integer work only, so that the answer is the same
// everywhere. One thread.
#pragma once

#include "codec/select_list.hpp"

namespace gradsieve::codec {

/// Leaves of each block of `block` elements its max(1, floor(ratio n)) largest magnitudes, n the elements that it has,
/// the lower index first among equals. `block`: a power of two, at most a tile; blocks begin at multiples of it, and
/// the last one ends at index `end`. The first `listed` cells are a span's, ascending; returns how many are left.
/// Cells' variances are left alone.
/// `inout_floor`: where the k-th magnitudes have been so far, 0 at first; any value is right, and changes speed only.
[[nodiscard]] std::size_t keep_block_best(double ratio, std::uint32_t block, std::uint32_t end, std::size_t listed,
                                          SpanCells& inout_cells, std::uint32_t& inout_floor) noexcept;

}  // namespace gradsieve::codec
