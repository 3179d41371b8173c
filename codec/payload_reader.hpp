// Reading a chunk's payload: every byte is untrusted until its check has passed. Lists come out as indices and values,
// dense payloads as a view that the decoder adds block by block. Any thread; the view borrows the payload's bytes.
#pragma once

#include "codec/payload.hpp"
#include "codec/stages/minmax.hpp"

#include <vector>

namespace gradsieve::codec {

/// A payload whose header and, if dense, whose every byte but the finiteness of its values is checked.
struct PayloadView {
    PayloadHeader header;
    ElementCount elements = 0;
    bool is_expanded = false;  ///< values were coded: `body` and its parts lie in the memory given to open_payload
    ByteView body;             ///< behind the header
    ByteView scales;           ///< dense: fp32, of each tile as many as its quantizer has, or empty
    ByteView values;           ///< dense: value section
    /// To be read with decode_list: a list, or pow2, whose elements are always read as one.
    [[nodiscard]] bool is_list() const noexcept { return header.is_list() || has_exponents(header.quantizer); }
    /// Dense, a quantizer with scales: number `side` of a tile's.
    [[nodiscard]] float scale_of(std::size_t tile, std::size_t side = 0) const noexcept;
    /// minmax: the least and the largest element of a bucket.
    [[nodiscard]] MinMaxRange range_of(std::size_t bucket) const noexcept;
};

/// Refuses payloads of one chunk of which one says a vote and the other a value, or one a
/// rotation's and the other not. Errors: kCorrupt.
[[nodiscard]] Status check_combine(const PayloadHeader& first, const PayloadHeader& other);

/// Coded values are expanded into `inout_memory`, which the view then borrows too; it is left alone otherwise, and may
/// be used again. Errors: kCorrupt, kVersionMismatch.
[[nodiscard]] Result<PayloadView> open_payload(ByteView payload, ElementCount elements, Bytes& inout_memory);

/// Reusable memory for one list.
struct DecodedList {
    std::uint32_t count = 0;
    std::vector<std::uint32_t>
        indices;                ///< `count`, strictly ascending, inside the chunk; then 2^32 - 1 as an end mark
    std::vector<float> values;  ///< at least `count`, finite
    std::vector<std::uint8_t> codes;
};
/// Reads and checks a whole list. Errors: kCorrupt; `ret_list` is then unspecified.
[[nodiscard]] Status decode_list(const PayloadView& view, DecodedList& ret_list);

}  // namespace gradsieve::codec
