// Values that are one bit, for `sign` and its other forms. Included by their .cpp files only. Any thread.
#pragma once

#include "codec/stages/quantizer_coder.hpp"

#include <array>

namespace gradsieve::codec {

/// A value section of the signs of what receivers decode. Returns the byte behind it.
[[nodiscard]] std::byte* write_signs(std::span<const float> decoded, std::byte* out);
/// A tile's signs, once its scales are known: of what is not negative, and of what is. Without one all are zero.
void code_sign_tile(const TileJob& job, const std::array<float, 2>& scales);
/// A list whose tiles have scales. Errors: kCorrupt.
[[nodiscard]] Status read_scaled_signs(const PayloadHeader& header, const TileTable& tiles, SectionReader sections,
                                       DecodedList& ret_list);

}  // namespace gradsieve::codec
