#include "codec/dense_term.hpp"

#include "codec/exponential_coder.hpp"
#include "codec/integer_coder.hpp"
#include "codec/minmax_coder.hpp"

#include <algorithm>

namespace gradsieve::codec {

std::uint32_t term_elements(const PayloadHeader& header) noexcept {
    return header.quantizer == QuantizerKind::kMinMax ? 1U << header.bucket_log2
                                                      : static_cast<std::uint32_t>(kTileElements);
}

DenseTerm dense_term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& room) {
    std::array<float, 256>& table = room.table;
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
        case QuantizerKind::kMinMax: {
            const PayloadHeader& header = view.header;
            const MinMaxRange range = view.range_of(first >> header.bucket_log2);
            list_minmax_values(header.code_bits, range.low, range.high, table.data());
            DenseTerm term{DenseTerm::Kind::kTable, factor, values + std::size_t{first} / 8 * header.code_bits};
            term.code_bits = header.code_bits;
            term.table = table.data();
            return term;
        }
        case QuantizerKind::kInteger: {
            if (room.values.size() < kTileElements) room.values.resize(kTileElements);
            const auto count = static_cast<std::uint32_t>(std::min<ElementCount>(kTileElements, view.elements - first));
            read_integers(view.values, first, count, view.header.code_bits, view.header.step, room.values.data());
            return {DenseTerm::Kind::kF32, factor, reinterpret_cast<const std::byte*>(room.values.data())};
        }
        case QuantizerKind::kPow2: break;  // always a list
    }
    return {};
}

}  // namespace gradsieve::codec
