// What the kernels that add dense payloads want to know of one payload's tile. Any thread; the term borrows the view's
// bytes and the table.
#pragma once

#include "codec/payload_kernels.hpp"
#include "codec/payload_reader.hpp"

#include <array>

namespace gradsieve::codec {

/// How many elements from a tile's first one on have one term: a tile, or a bucket of minmax.
[[nodiscard]] std::uint32_t term_elements(const PayloadHeader& header) noexcept;

/// A dense payload's values from element `first` of the chunk on, a multiple of term_elements. `table`: where a
/// quantizer whose codes are looked up leaves what they decode to.
[[nodiscard]] DenseTerm dense_term(const PayloadView& view, float factor, std::uint32_t first,
                                   std::array<float, 256>& table);

}  // namespace gradsieve::codec
