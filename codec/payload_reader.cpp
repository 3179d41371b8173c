#include "codec/payload_reader.hpp"

#include "codec/bit_stream.hpp"
#include "codec/decoder.hpp"
#include "codec/entropy_coder.hpp"
#include "codec/exponential_coder.hpp"
#include "codec/index_coder.hpp"
#include "codec/integer_coder.hpp"
#include "codec/payload_kernels.hpp"
#include "codec/stages/natural.hpp"
#include "codec/tile_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace gradsieve::codec {
namespace {

constexpr std::uint32_t kExponentMask = 0x7F800000U;

bool is_finite_bits(std::uint32_t bits) noexcept { return (bits & kExponentMask) != kExponentMask; }

Status non_finite_value() { return corrupt_payload("value", "not finite", "any finite number"); }

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
    if (header.quantizer == QuantizerKind::kMinMax) {
        for (std::size_t bucket = 0; bucket < sizes.scales / sizeof(MinMaxRange); ++bucket) {
            const MinMaxRange range = inout_view.range_of(bucket);
            if (!is_minmax_range(range.low, range.high))
                return corrupt_payload("minimum and maximum",
                                       std::to_string(range.low) + ", " + std::to_string(range.high),
                                       "ascending, and at most 2^126 in magnitude");
        }
        return {};
    }
    const std::size_t sides = scales_per_tile(header.quantizer);
    for (std::size_t number = 0; number < sizes.scales / sizeof(float); ++number) {
        const float scale = inout_view.scale_of(number / sides, number % sides);
        if (!is_tile_scale(header, scale)) return corrupt_tile_scale(header, scale);
    }
    return {};
}

/// Numbers of a rotation are so small that every sum on the way back is finite: 4,096 elements of at most 127 times
/// that, over 64.
constexpr float kMostRotatedNumber = 0x1p112F;

template <typename Bits>
bool are_small(ByteView numbers) noexcept {
    constexpr unsigned kShift = 32 - 8 * sizeof(Bits);  // bf16 is the upper half
    for (std::size_t at = 0; at < numbers.size(); at += sizeof(Bits)) {
        Bits bits = 0;
        std::memcpy(&bits, numbers.data() + at, sizeof(bits));
        if (!(std::fabs(element::float_of(std::uint32_t{bits} << kShift)) <= kMostRotatedNumber)) return false;
    }
    return true;
}

Status check_rotated(const PayloadView& view) {
    bool are_all_small = view.header.chunk_scale <= kMostRotatedNumber && are_small<std::uint32_t>(view.scales);
    if (view.header.quantizer == QuantizerKind::kF32) are_all_small &= are_small<std::uint32_t>(view.values);
    if (view.header.quantizer == QuantizerKind::kBf16) are_all_small &= are_small<std::uint16_t>(view.values);
    if (are_all_small) return {};
    return corrupt_payload("number of a rotation", "too large", "at most 2^112 in magnitude");
}

/// Takes sections off the front of a list's body.
class SectionReader {
public:
    explicit SectionReader(ByteView body) : rest_(body) {}
    [[nodiscard]] ByteView rest() const noexcept { return rest_; }
    void skip(std::size_t bytes) noexcept { rest_ = rest_.subspan(bytes); }
    /// The value section is the last one: exactly these bytes, padded with zeros.
    [[nodiscard]] Status take_last(std::uint64_t bits) const {
        if (rest_.size() != bytes_of_bits(bits))
            return corrupt_payload("length of the value section", rest_.size(),
                                   std::to_string(bytes_of_bits(bits)) + " bytes");
        if (!has_zero_padding(rest_, bits)) return corrupt_payload("values", "with set padding", "zero bits");
        return {};
    }

private:
    ByteView rest_;
};

/// fp32 bits of a value of f32, f16 or bf16.
template <QuantizerKind kQuantizer>
std::uint32_t float_bits_at(const std::byte* values, std::size_t element) noexcept {
    if constexpr (kQuantizer == QuantizerKind::kF32) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, values + element * sizeof(bits), sizeof(bits));
        return bits;
    }
    std::uint16_t half = 0;
    std::memcpy(&half, values + element * sizeof(half), sizeof(half));
    return kQuantizer == QuantizerKind::kF16 ? element::f16_value_bits(half) : std::uint32_t{half} << 16U;
}

/// Whether all are finite.
template <QuantizerKind kQuantizer>
bool are_finite(const std::byte* values, std::size_t count) noexcept {
    std::uint32_t non_finite = 0;
    for (std::size_t element = 0; element < count; ++element)
        non_finite |= is_finite_bits(float_bits_at<kQuantizer>(values, element)) ? 0U : 1U;
    return non_finite == 0;
}

/// The same, and what they are.
template <QuantizerKind kQuantizer>
bool read_floats(const std::byte* values, std::size_t count, float* ret_values) noexcept {
    std::uint32_t non_finite = 0;
    for (std::size_t element = 0; element < count; ++element) {
        const std::uint32_t bits = float_bits_at<kQuantizer>(values, element);
        non_finite |= is_finite_bits(bits) ? 0U : 1U;
        ret_values[element] = std::bit_cast<float>(bits);
    }
    return non_finite == 0;
}

/// Whether all values of a dense payload are finite; signs, levels and powers of two always are.
bool has_finite_values(const PayloadView& view) noexcept {
    const std::byte* values = view.values.data();
    switch (view.header.quantizer) {
        case QuantizerKind::kF32: return are_finite<QuantizerKind::kF32>(values, view.elements);
        case QuantizerKind::kF16: return are_finite<QuantizerKind::kF16>(values, view.elements);
        case QuantizerKind::kBf16: return are_finite<QuantizerKind::kBf16>(values, view.elements);
        case QuantizerKind::kPow2:
        case QuantizerKind::kSign:
        case QuantizerKind::kTwoMean:
        case QuantizerKind::kVote:
        case QuantizerKind::kNatural:
        case QuantizerKind::kDither:
        case QuantizerKind::kExponentialDither:
        case QuantizerKind::kInteger:
        case QuantizerKind::kMinMax: break;
    }
    return true;
}

/// A list of f32, f16 or bf16.
Status read_float_list(const PayloadHeader& header, SectionReader sections, float* ret_values) {
    GRADSIEVE_TRY(sections.take_last(std::uint64_t{header.count} * header.value_bits()));
    const std::byte* values = sections.rest().data();
    bool is_finite = false;
    if (header.quantizer == QuantizerKind::kF32)
        is_finite = read_floats<QuantizerKind::kF32>(values, header.count, ret_values);
    else if (header.quantizer == QuantizerKind::kF16)
        is_finite = read_floats<QuantizerKind::kF16>(values, header.count, ret_values);
    else
        is_finite = read_floats<QuantizerKind::kBf16>(values, header.count, ret_values);
    return is_finite ? Status{} : non_finite_value();
}

/// `scales`: of clear bits, and of those that are set.
void read_signs(ByteView section, std::uint32_t first, std::uint32_t end, const std::array<float, 2>& scales,
                float* ret_values) noexcept {
    const std::array<float, 2> values = {scales[0], -scales[1]};
    for (std::uint32_t element = first; element < end; ++element) {
        const auto bit = (static_cast<std::uint32_t>(section[element / 8]) >> (element % 8)) & 1U;
        ret_values[element] = values[bit];
    }
}

/// All codes: in groups where a whole word may be read, the last ones field by field.
void read_codes(ByteView section, std::uint32_t count, unsigned width, std::uint8_t* ret_codes) noexcept {
    const std::size_t readable = section.size() > sizeof(std::uint64_t) ? section.size() - sizeof(std::uint64_t) : 0;
    const auto groups = static_cast<std::uint32_t>(std::min<std::size_t>(count / 8, readable / width));
    payload_kernels().unpack_bytes(section.data(), groups, width, ret_codes);
    unpack_fields(section.subspan(std::size_t{groups} * width), count - 8 * groups, width, ret_codes + 8 * groups);
}

/// The scales of a list's tile, of which quantizers with one say that twice. False if one is none.
bool read_tile_scales(const PayloadHeader& header, ByteView scales, std::uint32_t tile,
                      std::array<float, 2>& ret_scales) noexcept {
    const std::uint32_t sides = scales_per_tile(header.quantizer);
    for (std::uint32_t side = 0; side < 2; ++side) {
        std::uint16_t rounded = 0;
        const std::size_t number = std::size_t{tile} * sides + side % sides;
        std::memcpy(&rounded, scales.data() + number * sizeof(rounded), sizeof(rounded));
        ret_scales[side] = float_of_bf16(rounded);
    }
    return is_tile_scale(header, ret_scales[0]) && is_tile_scale(header, ret_scales[1]);
}

/// A list of signs, dither or exponential_dither: tile scales and codes.
Status read_scaled_list(const PayloadHeader& header, const TileTable& tiles, SectionReader sections,
                        DecodedList& ret_list) {
    const bool is_sign = is_sign_bit(header.quantizer);
    float* values = ret_list.values.data();
    const ByteView scales = sections.rest();
    const std::size_t scale_bytes = header.has_chunk_scale ? 0 : std::size_t{tiles.count} * header.tile_scale_bytes();
    if (scales.size() < scale_bytes)
        return corrupt_payload("tile scales", "cut off", "one for each tile with elements");
    sections.skip(scale_bytes);
    GRADSIEVE_TRY(sections.take_last(std::uint64_t{header.count} * header.value_bits()));
    if (header.has_chunk_scale) {
        read_signs(sections.rest(), 0, header.count, {header.chunk_scale, header.chunk_scale}, values);
        return {};
    }
    if (!is_sign) read_codes(sections.rest(), header.count, header.code_bits, ret_list.codes.data());
    for (std::uint32_t tile = 0, first = 0; tile < tiles.count; first = tiles.ends[tile++]) {
        std::array<float, 2> both{};
        if (!read_tile_scales(header, scales, tile, both))
            return corrupt_tile_scale(header, is_tile_scale(header, both[0]) ? both[1] : both[0]);
        const float scale = both[0];
        if (is_sign) {
            read_signs(sections.rest(), first, tiles.ends[tile], both, values);
        } else if (header.quantizer == QuantizerKind::kExponentialDither) {
            std::array<float, 256> table;
            list_exponential_values(header.code_bits, header.base, scale, table.data());
            for (std::uint32_t element = first; element < tiles.ends[tile]; ++element)
                values[element] = table[ret_list.codes[element]];
        } else {
            payload_kernels().decode_levels(ret_list.codes.data() + first, tiles.ends[tile] - first, header.code_bits,
                                            scale, values + first);
        }
    }
    return {};
}

Status read_natural_list(const PayloadHeader& header, SectionReader sections, float* ret_values) {
    GRADSIEVE_TRY(sections.take_last(std::uint64_t{header.count} * header.value_bits()));
    const ByteView codes = sections.rest();
    for (std::uint32_t element = 0; element < header.count; ++element)
        ret_values[element] = std::bit_cast<float>(natural_decoded_bits(static_cast<std::uint32_t>(codes[element])));
    return {};
}

Status read_integer_list(const PayloadHeader& header, SectionReader sections, float* ret_values) {
    GRADSIEVE_TRY(sections.take_last(std::uint64_t{header.count} * header.value_bits()));
    read_integers(sections.rest(), 0, header.count, header.code_bits, header.step, ret_values);
    return {};
}

/// Codes from the paper's words, whose indices are left alone in `inout_indices`.
void split_words(std::uint32_t count, std::uint32_t* inout_indices, std::uint8_t* ret_codes) noexcept {
    for (std::uint32_t element = 0; element < count; ++element) {
        ret_codes[element] = static_cast<std::uint8_t>(inout_indices[element] >> kPaperWordCodeShift);
        inout_indices[element] &= kPaperWordIndexMask;
    }
}

Status read_pow2_list(const PayloadHeader& header, TileTable& tiles, SectionReader sections, DecodedList& ret_list) {
    std::size_t used_bytes = 0;
    GRADSIEVE_TRY(parse_exponents(header, sections.rest(), tiles, used_bytes));
    sections.skip(used_bytes);
    GRADSIEVE_TRY(sections.take_last(std::uint64_t{header.count} * header.value_bits()));
    if (!header.is_paper_word()) read_codes(sections.rest(), header.count, header.code_bits, ret_list.codes.data());
    for (std::uint32_t tile = 0, first = 0; tile < tiles.count; first = tiles.ends[tile++]) {
        if (!payload_kernels().decode_pow2(ret_list.codes.data() + first, tiles.ends[tile] - first,
                                           tiles.exponents[tile], header.code_bits, ret_list.values.data() + first))
            return corrupt_payload("power of two", "below the normal range", "2^-126 or more");
    }
    return {};
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
    if (!has_value_byte(header.quantizer)) return read_float_list(header, sections, ret_list.values.data());
    if (header.quantizer == QuantizerKind::kNatural) return read_natural_list(header, sections, ret_list.values.data());
    if (header.quantizer == QuantizerKind::kInteger) return read_integer_list(header, sections, ret_list.values.data());
    TileTable tiles;
    find_tiles(std::span(ret_list.indices).first(header.count), tiles);
    if (header.quantizer != QuantizerKind::kPow2) return read_scaled_list(header, tiles, sections, ret_list);
    return read_pow2_list(header, tiles, sections, ret_list);
}

Status validate_chunk(ByteView payload, ElementCount elements) {
    Bytes memory;
    GRADSIEVE_ASSIGN(const PayloadView view, open_payload(payload, elements, memory));
    if (view.is_list()) {
        DecodedList list;
        return decode_list(view, list);
    }
    return has_finite_values(view) ? Status{} : non_finite_value();
}

}  // namespace gradsieve::codec
