// Adaptive random sparsification on the CPU: cuts the candidates of a span's blocks to those that are drawn. One
// thread.
#pragma once

#include "codec/select_list.hpp"
#include "codec/stages/adaptive_random.hpp"

#include <vector>

namespace gradsieve::codec {

/// Leaves of the span's cells, nonzero, ascending, those that are drawn, and returns how many. `block`: elements of a
/// block, a power of two; `end`: behind the span's last element in its chunk; `chunk_first`: the chunk's first element
/// in the tensor. `scratch`: memory that is used again.
[[nodiscard]] std::size_t keep_drawn(double ratio, std::uint32_t block, std::uint32_t end, ElementCount chunk_first,
                                     const RandomStream& stream, std::size_t listed, SpanCells& inout_cells,
                                     std::vector<std::uint64_t>& scratch);

}  // namespace gradsieve::codec
