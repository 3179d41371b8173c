#include "codec/dense_term.hpp"

#include "codec/stages/quantizer_coder.hpp"

namespace gradsieve::codec {

std::uint32_t term_elements(const PayloadHeader& header) noexcept {
    return has_bucket_byte(header.quantizer) ? 1U << header.bucket_log2 : static_cast<std::uint32_t>(kTileElements);
}

DenseTerm dense_term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& room) {
    return coder_of(view.header.quantizer).term(view, factor, first, room);
}

}  // namespace gradsieve::codec
