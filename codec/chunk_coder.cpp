#include "codec/chunk_coder.hpp"

#include "codec/bit_stream.hpp"
#include "codec/dense_coder.hpp"
#include "codec/index_coder.hpp"
#include "codec/payload.hpp"
#include "codec/quantize.hpp"
#include "codec/tile_table.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace gradsieve::codec {
namespace {

// BitPacker writes whole words: room behind the payload while it is built.
constexpr std::size_t kPackSlackBytes = 8;

/// What is sent: indices and the values that receivers decode, none of them zero.
struct SentList {
    std::span<const std::uint32_t> indices;
    std::span<const float> decoded;
};

PayloadHeader header_of(const Quantizer& quantizer, IndexForm form, std::size_t count) noexcept {
    PayloadHeader header;
    header.quantizer = quantizer.kind;
    header.index_form = form;
    header.count = static_cast<std::uint32_t>(count);
    if (quantizer.kind == QuantizerKind::kPow2) header.pow2_bits = static_cast<unsigned>(quantizer.bits);
    if (quantizer.kind == QuantizerKind::kSign && quantizer.tau > 0) {
        header.has_chunk_scale = true;
        header.chunk_scale = static_cast<float>(quantizer.tau);
    }
    return header;
}

void code_dense(const Pipeline& pipeline, std::span<const float> values, std::span<float> ret_decoded,
                Bytes& ret_payload) {
    DenseCoder coder(pipeline.quantizer, values.size(), ret_payload);
    for (std::size_t first = 0; first < values.size(); first += kTileElements) {
        const std::size_t count = std::min<std::size_t>(kTileElements, values.size() - first);
        coder.code_tile(values.subspan(first, count), ret_decoded.subspan(first, count));
    }
}

// ---- a list ----

/// Drops what is not sent. Without drops nothing is copied.
SentList keep_sent(std::span<const std::uint32_t> indices, std::span<const float> decoded, std::uint32_t sent,
                   CodeScratch& scratch) {
    if (sent == indices.size()) return {indices, decoded};
    const bool is_in_place = indices.data() == scratch.indices.data();
    if (!is_in_place) scratch.indices.resize(indices.size());
    scratch.decoded.resize(decoded.size());
    std::size_t kept = 0;
    for (std::size_t i = 0; i < indices.size(); ++i) {
        scratch.indices[kept] = indices[i];
        scratch.decoded[kept] = decoded[i];
        kept += decoded[i] != 0.0F ? 1U : 0U;
    }
    return {std::span(scratch.indices).first(kept), std::span(scratch.decoded).first(kept)};
}

/// One tile's exponents and codes: sign above the octaves below the tile's exponent.
void fill_tile_codes(std::span<const float> decoded, std::uint8_t exponent, unsigned bits, std::uint8_t* ret_codes) {
    for (std::size_t i = 0; i < decoded.size(); ++i) {
        const auto sign = std::bit_cast<std::uint32_t>(decoded[i]) >> 31U;
        ret_codes[i] = static_cast<std::uint8_t>((sign << (bits - 1)) | (exponent - biased_exponent(decoded[i])));
    }
}

void fill_pow2_codes(const SentList& sent, const Quantizer& quantizer, float tensor_maximum, CodeScratch& scratch,
                     TileTable& inout_tiles) {
    scratch.codes.resize(sent.decoded.size());
    for (std::uint32_t tile = 0, first = 0; tile < inout_tiles.count; first = inout_tiles.ends[tile++]) {
        const auto run = sent.decoded.subspan(first, inout_tiles.ends[tile] - first);
        std::uint32_t exponent = 0;
        if (quantizer.scope == Scope::kTensor)
            exponent = biased_exponent(tensor_maximum);
        else
            for (const float value : run) exponent = std::max(exponent, biased_exponent(value));
        inout_tiles.exponents[tile] = static_cast<std::uint8_t>(exponent);
        fill_tile_codes(run, inout_tiles.exponents[tile], static_cast<unsigned>(quantizer.bits),
                        scratch.codes.data() + first);
    }
}

/// The header whose payload is smallest among the forms allowed; on a tie the earlier one of every, Rice, bitmap,
/// words.
PayloadHeader choose_form(const Pipeline& pipeline, PayloadHeader header, const PayloadContent& content,
                          const RicePlan& rice) {
    static constexpr std::array kForms = {IndexForm::kEvery, IndexForm::kRice, IndexForm::kBitmap, IndexForm::kRaw32};
    const auto allowed = [&](IndexForm form) {
        switch (pipeline.index_coder) {
            case IndexCoderKind::kAuto: return form != IndexForm::kEvery || header.count == content.chunk_elements;
            case IndexCoderKind::kRice: return form == IndexForm::kRice;
            case IndexCoderKind::kBitmap: return form == IndexForm::kBitmap;
            case IndexCoderKind::kRaw32: return form == IndexForm::kRaw32;
        }
        return false;
    };
    PayloadHeader best;
    ByteCount best_bytes = ~ByteCount{0};
    for (const IndexForm form : kForms) {
        header.index_form = form;
        header.rice_parameter = form == IndexForm::kRice ? rice.parameter : 0;
        const ByteCount bytes = encoded_bytes(header, content);
        if (!allowed(form) || bytes >= best_bytes) continue;
        best = header;
        best_bytes = bytes;
    }
    return best;
}

std::byte* build_words(const SentList& sent, bool is_paper_word, const std::vector<std::uint8_t>& codes,
                       std::byte* out) {
    for (std::size_t i = 0; i < sent.indices.size(); ++i) {
        const std::uint32_t code = is_paper_word ? codes[i] : 0U;
        const std::uint32_t word = sent.indices[i] | (code << kPaperWordCodeShift);
        std::memcpy(out, &word, sizeof(word));
        out += sizeof(word);
    }
    return out;
}

std::byte* build_index_section(const PayloadHeader& header, const SentList& sent, ElementCount elements,
                               const CodeScratch& scratch, std::byte* out) {
    switch (header.index_form) {
        case IndexForm::kEvery: return out;
        case IndexForm::kRice:
            out = build_rice_remainders(scratch.gaps, header.rice_parameter, out);
            return build_rice_quotients(scratch.gaps, header.rice_parameter, out);
        case IndexForm::kBitmap: return build_bitmap(sent.indices, elements, out);
        case IndexForm::kRaw32: return build_words(sent, header.is_paper_word(), scratch.codes, out);
    }
    return out;
}

std::byte* build_tile_scales(const PayloadHeader& header, const SentList& sent, const TileTable& tiles,
                             std::byte* out) {
    for (std::uint32_t tile = 0, first = 0; tile < tiles.count; first = tiles.ends[tile++]) {
        const float scale = std::abs(sent.decoded[first]);
        if (header.is_list()) {
            const std::uint16_t rounded = bf16_of(scale);
            std::memcpy(out, &rounded, sizeof(rounded));
        } else {
            std::memcpy(out, &scale, sizeof(scale));
        }
        out += header.tile_scale_bytes();
    }
    return out;
}

std::byte* build_values(const PayloadHeader& header, const SentList& sent, const CodeScratch& scratch, std::byte* out) {
    BitPacker packer(out);
    switch (header.quantizer) {
        case QuantizerKind::kF32:
            std::memcpy(out, sent.decoded.data(), sent.decoded.size_bytes());
            return out + sent.decoded.size_bytes();
        case QuantizerKind::kBf16:
            for (const float value : sent.decoded) packer.put(std::bit_cast<std::uint32_t>(value) >> 16U, 16);
            break;
        case QuantizerKind::kSign:
            for (const float value : sent.decoded) packer.put(std::bit_cast<std::uint32_t>(value) >> 31U, 1);
            break;
        case QuantizerKind::kPow2:
            if (header.is_paper_word()) return out;
            for (const std::uint8_t code : scratch.codes) packer.put(code, header.pow2_bits);
            break;
    }
    return packer.end();
}

void code_list(const Pipeline& pipeline, const ChunkSelection& selection, std::span<const std::uint32_t> indices,
               CodeScratch& scratch, std::span<float> ret_decoded, Bytes& ret_payload) {
    const std::uint32_t sent_count =
        quantize_list(pipeline.quantizer, indices, selection.values, selection.tensor_maximum, ret_decoded);
    if (sent_count == 0) return;
    const SentList sent = keep_sent(indices, ret_decoded.first(indices.size()), sent_count, scratch);

    PayloadHeader header = header_of(pipeline.quantizer, IndexForm::kEvery, sent.indices.size());
    PayloadContent content;
    content.chunk_elements = selection.chunk_elements;
    TileTable tiles;
    ExponentPlan exponents;
    find_tiles(sent.indices, tiles);
    content.tiles = tiles.count;
    if (header.quantizer == QuantizerKind::kPow2) {
        fill_pow2_codes(sent, pipeline.quantizer, selection.tensor_maximum, scratch, tiles);
        exponents =
            plan_exponents(tiles, *std::max_element(tiles.exponents.begin(), tiles.exponents.begin() + tiles.count));
        header.base_exponent = exponents.base;
        header.exponent_parameter = exponents.parameter;
        content.exponent_bits = exponents.bits;
    }
    RicePlan rice;
    if (pipeline.index_coder == IndexCoderKind::kAuto || pipeline.index_coder == IndexCoderKind::kRice)
        rice = plan_rice(sent.indices, scratch.gaps);
    content.unary_bits = rice.unary_bits;
    header = choose_form(pipeline, header, content, rice);

    const std::size_t begin = ret_payload.size();
    const std::size_t end = begin + encoded_bytes(header, content);
    ret_payload.reserve(end + kPackSlackBytes);
    build_header(header, ret_payload);
    std::size_t position = ret_payload.size();
    ret_payload.resize(end + kPackSlackBytes);
    std::byte* out = build_index_section(header, sent, content.chunk_elements, scratch, ret_payload.data() + position);
    if (header.quantizer == QuantizerKind::kPow2) out = build_exponents(tiles, exponents, out);
    if (header.quantizer == QuantizerKind::kSign && !header.has_chunk_scale)
        out = build_tile_scales(header, sent, tiles, out);
    out = build_values(header, sent, scratch, out);
    GRADSIEVE_CHECK(out == ret_payload.data() + end);
    ret_payload.resize(end);
}

}  // namespace

void code_chunk(const Pipeline& pipeline, const ChunkSelection& selection, CodeScratch& scratch,
                std::span<float> ret_decoded, Bytes& ret_payload) {
    if (selection.is_dense && pipeline.quantizer.kind != QuantizerKind::kPow2)
        return code_dense(pipeline, selection.values, ret_decoded, ret_payload);
    if (!selection.is_dense)
        return code_list(pipeline, selection, selection.indices, scratch, ret_decoded, ret_payload);
    // pow2 has no code for zero: every element of a dense selection becomes a list, and what is too small is not in it.
    scratch.indices.resize(selection.values.size());
    std::iota(scratch.indices.begin(), scratch.indices.end(), 0U);
    code_list(pipeline, selection, scratch.indices, scratch, ret_decoded, ret_payload);
}

}  // namespace gradsieve::codec
