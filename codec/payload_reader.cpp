#include "codec/payload_reader.hpp"

#include "codec/bit_stream.hpp"
#include "codec/decoder.hpp"
#include "codec/entropy_coder.hpp"
#include "codec/index_coder.hpp"
#include "codec/stages/quantizer_coder.hpp"

#include <cmath>
#include <cstring>

namespace gradsieve::codec {
namespace {

Status open_dense(PayloadView& inout_view) {
    const PayloadHeader& header = inout_view.header;
    PayloadContent content;
    content.chunk_elements = inout_view.elements;
    content.tiles = tiles_of(inout_view.elements);
    const PayloadSizes sizes = payload_sizes(header, content);
    if (inout_view.body.size() != sizes.scales + sizes.values)
        return corrupt_payload("length behind the header", inout_view.body.size(),
                               std::to_string(sizes.scales + sizes.values) + " bytes");
    inout_view.scales = inout_view.body.first(sizes.scales);
    inout_view.values = inout_view.body.subspan(sizes.scales);
    if (!has_zero_padding(inout_view.values, std::uint64_t{header.count} * header.value_bits()))
        return corrupt_payload("values", "with set padding", "zero bits");
    return coder_of(header.quantizer).check_scales(inout_view);
}

Status check_rotated(const PayloadView& view) {
    bool are_all_small = view.header.chunk_scale <= kMostRotatedNumber;
    for (std::size_t at = 0; at < view.scales.size(); at += sizeof(float)) {
        float number = 0;
        std::memcpy(&number, view.scales.data() + at, sizeof(number));
        are_all_small &= std::fabs(number) <= kMostRotatedNumber;
    }
    if (are_all_small && coder_of(view.header.quantizer).has_small_values(view)) return {};
    return corrupt_payload("number of a rotation", "too large", "at most 2^112 in magnitude");
}

/// Codes from the paper's words, whose indices are left alone in `inout_indices`.
void split_words(std::uint32_t count, std::uint32_t* inout_indices, std::uint8_t* ret_codes) noexcept {
    for (std::uint32_t element = 0; element < count; ++element) {
        ret_codes[element] = static_cast<std::uint8_t>(inout_indices[element] >> kPaperWordCodeShift);
        inout_indices[element] &= kPaperWordIndexMask;
    }
}

}  // namespace

float PayloadView::scale_of(std::size_t tile, std::size_t side) const noexcept {
    if (scales.empty()) return header.chunk_scale;
    float scale = 0;
    const std::size_t number = tile * scales_per_tile(header.quantizer) + side;
    std::memcpy(&scale, scales.data() + number * sizeof(scale), sizeof(scale));
    return scale;
}

MinMaxRange PayloadView::range_of(std::size_t bucket) const noexcept {
    MinMaxRange range;
    std::memcpy(&range, scales.data() + bucket * sizeof(range), sizeof(range));
    return range;
}

Status check_combine(const PayloadHeader& first, const PayloadHeader& other) {
    const Combine expected = combine_of(first.quantizer);
    const Combine seen = combine_of(other.quantizer);
    if (seen == expected && first.is_rotated == other.is_rotated) return {};
    if (seen == expected)
        return corrupt_payload("rotation", other.is_rotated ? "of one payload" : "missing",
                               "that all of a chunk's payloads have one, or none");
    return corrupt_payload("combine", combine_name(seen),
                           std::string(combine_name(expected)) + ", as of the chunk's first payload");
}

Result<PayloadView> open_payload(ByteView payload, ElementCount elements, Bytes& inout_memory) {
    GRADSIEVE_ASSIGN(const ParsedHeader parsed, parse_header(payload, elements));
    PayloadView view;
    view.header = parsed.header;
    view.elements = elements;
    view.body = payload.subspan(parsed.header_bytes);
    if (parsed.header.is_coded) {
        GRADSIEVE_ASSIGN(view.body, expand_entropy(parsed.header, view.body, inout_memory));
        view.header.is_coded = false;
        view.is_expanded = true;
    }
    if (!view.is_list()) GRADSIEVE_TRY(open_dense(view));
    if (view.header.is_rotated) GRADSIEVE_TRY(check_rotated(view));
    return view;
}

Status decode_list(const PayloadView& view, DecodedList& ret_list) {
    const PayloadHeader& header = view.header;
    ret_list.count = header.count;
    const std::size_t room = header.count + kIndexSlack;
    if (ret_list.indices.size() < room) ret_list.indices.resize(room);
    if (ret_list.values.size() < room) ret_list.values.resize(room);
    if (ret_list.codes.size() < room) ret_list.codes.resize(room);

    SectionReader sections(view.body);
    std::size_t used_bytes = 0;
    GRADSIEVE_TRY(parse_indices(header, view.body, view.elements, ret_list.indices.data(), used_bytes));
    sections.skip(used_bytes);
    ret_list.indices[header.count] = ~0U;
    if (header.is_paper_word()) split_words(header.count, ret_list.indices.data(), ret_list.codes.data());
    TileTable tiles;
    if (header.has_tile_scales() || has_exponents(header.quantizer))
        find_tiles(std::span(ret_list.indices).first(header.count), tiles);
    return coder_of(header.quantizer).read_list(header, tiles, sections, ret_list);
}

Status validate_chunk(ByteView payload, ElementCount elements) {
    Bytes memory;
    GRADSIEVE_ASSIGN(const PayloadView view, open_payload(payload, elements, memory));
    if (view.is_list()) {
        DecodedList list;
        return decode_list(view, list);
    }
    return coder_of(view.header.quantizer).has_finite_values(view) ? Status{} : non_finite_value();
}

}  // namespace gradsieve::codec
