#include "codec/chunk_coder.hpp"

#include "codec/dense_coder.hpp"
#include "codec/index_coder.hpp"
#include "codec/payload.hpp"
#include "codec/quantize.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/tile_table.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace gradsieve::codec {
namespace {

/// Room for a list's codes.
void make_room(QuantizerKind quantizer, std::size_t count, CodeScratch& scratch) {
    if (has_step(quantizer))
        scratch.integers.resize(count);
    else
        scratch.codes.resize(count);
}

// ---- a list ----

/// Drops what is not sent. Without drops nothing is copied.
SentList keep_sent(std::span<const std::uint32_t> indices, std::span<const float> decoded, std::uint32_t sent,
                   bool has_words, CodeScratch& scratch) {
    if (sent == indices.size()) return {indices, decoded};
    const bool is_in_place = indices.data() == scratch.indices.data();
    if (!is_in_place) scratch.indices.resize(indices.size());
    scratch.decoded.resize(decoded.size());
    std::size_t kept = 0;
    for (std::size_t i = 0; i < indices.size(); ++i) {
        scratch.indices[kept] = indices[i];
        scratch.decoded[kept] = decoded[i];
        if (has_words)
            scratch.integers[kept] = scratch.integers[i];
        else
            scratch.codes[kept] = scratch.codes[i];
        kept += decoded[i] != 0.0F ? 1U : 0U;
    }
    return {std::span(scratch.indices).first(kept), std::span(scratch.decoded).first(kept)};
}

/// Each tile's exponent, from the exponent and the code of its first element.
void find_exponents(const SentList& sent, unsigned bits, const CodeScratch& scratch, TileTable& inout_tiles) {
    const std::uint32_t octave_mask = (1U << (bits - 1)) - 1;
    for (std::uint32_t tile = 0, first = 0; tile < inout_tiles.count; first = inout_tiles.ends[tile++])
        inout_tiles.exponents[tile] =
            static_cast<std::uint8_t>(biased_exponent(sent.decoded[first]) + (scratch.codes[first] & octave_mask));
}

/// The header whose payload is smallest among the forms allowed; on a tie the earlier one of every, Rice, bitmap,
/// words.
PayloadHeader choose_form(const Pipeline& pipeline, PayloadHeader header, const PayloadContent& content,
                          const RicePlan& rice) {
    static constexpr std::array kForms = {IndexForm::kEvery, IndexForm::kRice, IndexForm::kBitmap, IndexForm::kRaw32,
                                          IndexForm::kEliasFano};
    const auto allowed = [&](IndexForm form) {
        switch (pipeline.index_coder) {
            // elias_fano is at most a byte smaller than Rice (docs/codecs.md).
            case IndexCoderKind::kAuto:
                return form != IndexForm::kEliasFano &&
                       (form != IndexForm::kEvery || header.count == content.chunk_elements);
            case IndexCoderKind::kRice: return form == IndexForm::kRice;
            case IndexCoderKind::kBitmap: return form == IndexForm::kBitmap;
            case IndexCoderKind::kRaw32: return form == IndexForm::kRaw32;
            case IndexCoderKind::kEliasFano: return form == IndexForm::kEliasFano;
        }
        return false;
    };
    const unsigned low_bits = elias_fano_low_bits(static_cast<std::uint32_t>(content.chunk_elements), header.count);
    PayloadHeader best;
    ByteCount best_bytes = ~ByteCount{0};
    for (const IndexForm form : kForms) {
        header.index_form = form;
        header.index_parameter = form == IndexForm::kRice        ? rice.parameter
                                 : form == IndexForm::kEliasFano ? low_bits
                                                                 : 0;
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
            out = build_low_fields(scratch.gaps, header.index_parameter, *scratch.kernels, out);
            return build_rice_quotients(scratch.gaps, header.index_parameter, out);
        case IndexForm::kBitmap: return build_bitmap(sent.indices, elements, out);
        case IndexForm::kRaw32: return build_words(sent, header.is_paper_word(), scratch.codes, out);
        case IndexForm::kEliasFano:
            out = build_low_fields(sent.indices, header.index_parameter, *scratch.kernels, out);
            return build_elias_fano_highs(sent.indices, elements, header.index_parameter, out);
        case IndexForm::kSubset:
        case IndexForm::kBernoulli: break;
    }
    return out;
}

std::byte* build_tile_scales(const PayloadHeader& header, const SentList& sent, const TileTable& tiles,
                             const CodeScratch& scratch, std::byte* out) {
    const std::uint32_t sides = scales_per_tile(header.quantizer);
    for (std::uint32_t tile = 0, first = 0; tile < tiles.count; first = tiles.ends[tile++]) {
        for (std::uint32_t side = 0; side < sides; ++side) {
            const float scale = scratch.scales[std::size_t{sent.indices[first] / kTileElements} * sides + side];
            if (header.is_list()) {
                const std::uint16_t rounded = bf16_of(scale);
                std::memcpy(out, &rounded, sizeof(rounded));
            } else {
                std::memcpy(out, &scale, sizeof(scale));
            }
            out += header.scale_bytes();
        }
    }
    return out;
}

ListJob list_job(const Quantizer& quantizer, const ChunkSelection& selection, std::span<const std::uint32_t> indices,
                 CodeScratch& scratch, std::span<float> ret_decoded) {
    return {
        quantizer, indices,    selection.values, selection.random, selection.first_element, selection.tensor_maximum,
        scratch,   ret_decoded};
}

PayloadBytes code_list(const Pipeline& pipeline, const ChunkSelection& selection,
                       std::span<const std::uint32_t> indices, CodeScratch& scratch, std::span<float> ret_decoded) {
    const QuantizerKind quantizer = pipeline.quantizer.kind;
    const QuantizerCoder& coder = coder_of(quantizer);
    make_room(quantizer, indices.size(), scratch);
    const std::uint32_t sent_count =
        coder.code_list(list_job(pipeline.quantizer, selection, indices, scratch, ret_decoded));
    if (sent_count == 0) return {};
    const SentList sent =
        keep_sent(indices, ret_decoded.first(indices.size()), sent_count, has_step(quantizer), scratch);

    PayloadHeader header = header_of(pipeline.quantizer, IndexForm::kEvery, sent.indices.size());
    coder.settle_header(sent, scratch, header);
    PayloadContent content;
    content.chunk_elements = selection.chunk_elements;
    TileTable tiles;
    ExponentPlan exponents;
    find_tiles(sent.indices, tiles);
    content.tiles = tiles.count;
    if (has_exponents(quantizer)) {
        find_exponents(sent, header.code_bits, scratch, tiles);
        exponents =
            plan_exponents(tiles, *std::max_element(tiles.exponents.begin(), tiles.exponents.begin() + tiles.count));
        header.base_exponent = exponents.base;
        header.exponent_parameter = exponents.parameter;
        content.exponent_bits = exponents.bits;
    }
    RicePlan rice;
    if (pipeline.index_coder == IndexCoderKind::kAuto || pipeline.index_coder == IndexCoderKind::kRice)
        rice = plan_rice(sent.indices, *scratch.kernels, scratch.gaps);
    content.unary_bits = rice.unary_bits;
    header = choose_form(pipeline, header, content, rice);

    PayloadBytes payload = scratch.payloads.take(encoded_bytes(header, content));
    std::byte* out = build_header(header, payload.data());
    out = build_index_section(header, sent, content.chunk_elements, scratch, out);
    if (has_exponents(quantizer)) out = build_exponents(tiles, exponents, out);
    if (header.has_tile_scales()) out = build_tile_scales(header, sent, tiles, scratch, out);
    out = coder.write_values(header, sent, scratch, out);
    GRADSIEVE_CHECK(out == payload.data() + payload.size());
    return payload;
}

/// Everything that a key stands for is sent, zeros as well.
PayloadBytes code_keyed(const Quantizer& quantizer, const ChunkSelection& selection, CodeScratch& scratch,
                        std::span<float> ret_decoded) {
    const std::span<const std::uint32_t> indices = selection.indices;
    if (indices.empty()) return {};
    const QuantizerCoder& coder = coder_of(quantizer.kind);
    // A tile that a coder leaves out decodes to zeros: code 0, scale 0.
    scratch.codes.clear();
    make_room(quantizer.kind, indices.size(), scratch);
    scratch.scales.fill(0.0F);
    coder.code_every(list_job(quantizer, selection, indices, scratch, ret_decoded));
    const SentList sent{indices, ret_decoded.first(indices.size())};
    PayloadHeader header = header_of(quantizer, index_form_of(*selection.keyed), indices.size());
    coder.settle_header(sent, scratch, header);
    PayloadContent content;
    content.chunk_elements = selection.chunk_elements;
    TileTable tiles;
    find_tiles(sent.indices, tiles);
    content.tiles = tiles.count;
    PayloadBytes payload = scratch.payloads.take(encoded_bytes(header, content));
    std::byte* out = build_key(*selection.keyed, build_header(header, payload.data()));
    if (header.has_tile_scales()) out = build_tile_scales(header, sent, tiles, scratch, out);
    out = coder.write_values(header, sent, scratch, out);
    GRADSIEVE_CHECK(out == payload.data() + payload.size());
    return payload;
}

PayloadBytes code_dense_words(const Quantizer& quantizer, const ChunkSelection& selection, CodeScratch& scratch,
                              std::span<float> ret_decoded) {
    const QuantizerCoder& coder = coder_of(quantizer.kind);
    scratch.integers.resize(selection.values.size());
    const std::uint32_t magnitudes =
        coder.code_words({quantizer, selection.values, selection.first_element, selection.random, *scratch.kernels,
                          scratch.integers.data(), ret_decoded.data()});
    return coder.build_chunk(quantizer, scratch.integers, magnitudes, scratch.payloads, *scratch.kernels);
}

PayloadBytes code_plain(const Pipeline& pipeline, const ChunkSelection& selection, CodeScratch& scratch,
                        std::span<float> ret_decoded) {
    if (selection.keyed != nullptr) return code_keyed(pipeline.quantizer, selection, scratch, ret_decoded);
    if (!selection.is_dense) return code_list(pipeline, selection, selection.indices, scratch, ret_decoded);
    const DenseRoute route = facts_of(pipeline.quantizer.kind).route;
    if (route == DenseRoute::kChunk) return code_dense_words(pipeline.quantizer, selection, scratch, ret_decoded);
    if (route != DenseRoute::kList)
        return code_dense(pipeline.quantizer, selection, scratch.payloads, *scratch.kernels, ret_decoded);
    // Without a code for zero every element of a dense selection becomes a list, and what is too small is not in it.
    scratch.indices.resize(selection.values.size());
    std::iota(scratch.indices.begin(), scratch.indices.end(), 0U);
    return code_list(pipeline, selection, scratch.indices, scratch, ret_decoded);
}

}  // namespace

PayloadBytes code_chunk(const Pipeline& pipeline, const ChunkSelection& selection, CodeScratch& scratch,
                        std::span<float> ret_decoded) {
    PayloadBytes plain = code_plain(pipeline, selection, scratch, ret_decoded);
    if (!pipeline.has_entropy) return plain;
    return code_entropy(std::move(plain), selection.chunk_elements, scratch.payloads, scratch.entropy);
}

}  // namespace gradsieve::codec
