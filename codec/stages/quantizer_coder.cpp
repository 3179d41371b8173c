#include "codec/stages/quantizer_coder.hpp"

#include "codec/bit_stream.hpp"
#include "codec/stages/quantizer_list.hpp"

namespace gradsieve::codec {

Status non_finite_value() { return corrupt_payload("value", "not finite", "any finite number"); }

Status read_width(std::uint8_t byte, PayloadHeader& inout_header) {
    const unsigned width_code = byte & 7U;
    if (byte >> 6U != 0) return corrupt_payload("reserved value bits", byte >> 6U, "0");
    inout_header.is_coded = (byte & kCodedValues) != 0;
    if (inout_header.is_coded && width_code == 0) return corrupt_payload("coded values of one bit", 1, "0");
    inout_header.code_bits = width_code + 1;
    return {};
}

Status read_plain_sign_byte(std::uint8_t byte, PayloadHeader& inout_header) {
    GRADSIEVE_TRY(read_width(byte, inout_header));
    return byte == 0 ? Status{} : corrupt_payload("value form of signs", byte, "0");
}

Status QuantizerCoder::read_value_byte(std::uint8_t byte, PayloadHeader& inout_header) const {
    GRADSIEVE_TRY(read_width(byte, inout_header));
    const auto name = [&] { return std::string(facts_of(inout_header.quantizer).name); };
    const unsigned scale_code = (byte >> 3U) & 3U;
    if (inout_header.code_bits == 1) return corrupt_payload(name() + " width code", 0, "1 to 7");
    if (scale_code != 0) return corrupt_payload(name() + " scale code", scale_code, "0");
    return {};
}

std::byte* QuantizerCoder::write_values(const PayloadHeader& header, const SentList& sent, const CodeScratch& scratch,
                                        std::byte* out) const {
    const std::span codes = std::span(scratch.codes).first(sent.indices.size());
    const unsigned width = header.code_bits;
    const std::size_t groups = codes.size() / 8;
    scratch.kernels->pack_bytes(codes.data(), static_cast<std::uint32_t>(groups), width, out);
    BitPacker packer(out + groups * width);
    for (const std::uint8_t code : codes.subspan(8 * groups)) packer.put(code, width);
    return packer.end();
}

Status QuantizerCoder::check_scales(const PayloadView& view) const {
    const std::size_t sides = scales_per_tile(view.header.quantizer);
    for (std::size_t number = 0; number < view.scales.size() / sizeof(float); ++number) {
        const float scale = view.scale_of(number / sides, number % sides);
        if (!is_tile_scale(view.header, scale)) return corrupt_tile_scale(view.header, scale);
    }
    return {};
}

DenseTerm table_term(const PayloadView& view, float factor, std::uint32_t first, const TermRoom& room) {
    const std::uint32_t bits = view.header.code_bits;
    DenseTerm term{DenseTerm::Kind::kTable, factor, view.values.data() + std::size_t{first} / 8 * bits};
    term.code_bits = bits;
    term.table = room.table.data();
    return term;
}

}  // namespace gradsieve::codec
