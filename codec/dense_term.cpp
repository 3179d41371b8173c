#include "codec/dense_term.hpp"

#include "codec/exponential_coder.hpp"

namespace gradsieve::codec {

DenseTerm dense_term(const PayloadView& view, float factor, std::uint32_t first, std::array<float, 256>& table) {
    const std::byte* values = view.values.data();
    switch (view.header.quantizer) {
        case QuantizerKind::kF32: return {DenseTerm::Kind::kF32, factor, values + std::size_t{first} * sizeof(float)};
        case QuantizerKind::kF16:
            return {DenseTerm::Kind::kF16, factor, values + std::size_t{first} * sizeof(std::uint16_t)};
        case QuantizerKind::kBf16:
            return {DenseTerm::Kind::kBf16, factor, values + std::size_t{first} * sizeof(std::uint16_t)};
        case QuantizerKind::kSign: {
            const float size = factor * view.scale_of(first / kTileElements);
            return {DenseTerm::Kind::kSign, size, values + first / 8, size};
        }
        case QuantizerKind::kTwoMean:
            return {DenseTerm::Kind::kSign, factor * view.scale_of(first / kTileElements, 0), values + first / 8,
                    factor * view.scale_of(first / kTileElements, 1)};
        case QuantizerKind::kVote: return {DenseTerm::Kind::kSign, factor, values + first / 8, factor};
        case QuantizerKind::kNatural: return {DenseTerm::Kind::kNatural, factor, values + first};
        case QuantizerKind::kDither: {
            const std::uint32_t bits = view.header.code_bits;
            return {DenseTerm::Kind::kDither, factor, values + std::size_t{first} / 8 * bits,
                    view.scale_of(first / kTileElements), bits};
        }
        case QuantizerKind::kExponentialDither: {
            const PayloadHeader& header = view.header;
            list_exponential_values(header.code_bits, header.base, view.scale_of(first / kTileElements), table.data());
            DenseTerm term{DenseTerm::Kind::kTable, factor, values + std::size_t{first} / 8 * header.code_bits};
            term.code_bits = header.code_bits;
            term.table = table.data();
            return term;
        }
        case QuantizerKind::kPow2: break;  // always a list
    }
    return {};
}

}  // namespace gradsieve::codec
