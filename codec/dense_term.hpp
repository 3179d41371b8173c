// What the kernels that add dense payloads want to know of one payload's tile. Any thread; the term borrows the view's
// bytes and the room.
#pragma once

#include "codec/payload_kernels.hpp"
#include "codec/payload_reader.hpp"

#include <array>
#include <vector>

namespace gradsieve::codec {

/// Where one payload's tile leaves what its codes decode to. Grown once and then reused.
struct TermRoom {
    std::array<float, 256> table;  ///< of quantizers whose codes are looked up
    std::vector<float> values;     ///< of integer: the tile's
};

/// How many elements from a tile's first one on have one term: a tile, or a bucket of minmax.
[[nodiscard]] std::uint32_t term_elements(const PayloadHeader& header) noexcept;

/// A dense payload's values from element `first` of the chunk on, a multiple of term_elements. It stands
/// until the room is used again.
[[nodiscard]] DenseTerm dense_term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& room);

}  // namespace gradsieve::codec
