// What the CPU's side asks of a quantizer's form: header fields and their checks, a list and a tile coded, values read
// back. One object of each form, without state, in the form's own .cpp; found by the form's number. Asked once for a
// codec, a chunk or a tile, never for an element. Any thread; the caller owns every array.
#pragma once

#include "codec/chunk_coder.hpp"
#include "codec/dense_pass.hpp"
#include "codec/dense_term.hpp"
#include "codec/payload.hpp"
#include "codec/payload_reader.hpp"
#include "codec/section_reader.hpp"
#include "codec/tile_table.hpp"

#include <cfloat>

namespace gradsieve::codec {

class DensePayload;

/// What is sent: indices and the values that receivers decode; without a key none of them is zero.
struct SentList {
    std::span<const std::uint32_t> indices;
    std::span<const float> decoded;
};

/// A chunk's list that is to be quantized.
struct ListJob {
    const Quantizer& quantizer;
    std::span<const std::uint32_t> indices;
    std::span<const float> values;  ///< as many
    const RandomStream& random;
    ElementCount first_element = 0;  ///< of the chunk in the tensor
    float tensor_maximum = 0;        ///< read by tensor scope only
    /// Gets codes, which have their room, and scales: by the tile's number in the chunk, as many for each as it has.
    CodeScratch& scratch;
    std::span<float> ret_decoded;  ///< +0: not sent; it may be `values`
};

/// A tile, or a chunk's last part of one, of which every element is sent.
struct TileJob {
    const Quantizer& quantizer;
    std::span<const float> values;
    std::size_t tile = 0;            ///< number in the payload
    ElementCount first_element = 0;  ///< of the tile in the tensor
    const RandomStream& random;
    const PayloadKernels& kernels;
    DensePayload& payload;
    float* ret_decoded = nullptr;  ///< what receivers decode; may be `values`; null with DenseRoute::kTile only
    float* ret_left = nullptr;     ///< DenseRoute::kTile, where not null: what the codes leave
};

/// Elements of a chunk whose codes are words, until all of them are known: DenseRoute::kChunk.
struct WordsJob {
    const Quantizer& quantizer;
    std::span<const float> values;
    ElementCount first_element = 0;
    const RandomStream& random;
    const PayloadKernels& kernels;
    std::uint32_t* ret_codes = nullptr;
    float* ret_decoded = nullptr;  ///< as TileJob, each where not null
    float* ret_left = nullptr;
};

class QuantizerCoder {
public:
    // ---- a codec ----

    /// Bits of a code; 0 of what is an fp number, and where each chunk says them.
    [[nodiscard]] virtual std::uint32_t code_bits(const Quantizer& quantizer) const noexcept = 0;
    /// Of a value and its share of scales, as far as that is known before there are gradients.
    [[nodiscard]] virtual double expected_bits(const Quantizer& quantizer) const noexcept {
        return code_bits(quantizer);
    }
    /// What the dense pass does where every element is sent.
    [[nodiscard]] virtual DenseRule dense_rule(const Quantizer& quantizer) const noexcept = 0;
    /// What the pass may take off r before anybody knows the tile's scale.
    [[nodiscard]] virtual SentGuess guess() const noexcept { return {}; }

    // ---- a header ----

    /// Fields of the header that follow from the quantizer, but for its bits.
    virtual void fill_header(const Quantizer& /*quantizer*/, PayloadHeader& /*inout_header*/) const noexcept {}
    /// The value form byte, of those that have one. Errors: kCorrupt.
    [[nodiscard]] virtual Status read_value_byte(std::uint8_t byte, PayloadHeader& inout_header) const;
    /// Fields that are the quantizer's, once all are read. Errors: kCorrupt.
    [[nodiscard]] virtual Status check_fields(const PayloadHeader& /*header*/) const { return {}; }
    /// Of a tile, so that every value is finite.
    [[nodiscard]] virtual float largest_scale(std::uint32_t /*code_bits*/) const noexcept { return FLT_MAX; }

    // ---- a list on its way out ----

    /// Returns how many are sent. Those that stand behind `all` alone have no lists.
    [[nodiscard]] virtual std::uint32_t code_list(const ListJob& /*job*/) const { return 0; }
    /// The same of what is sent whatever it is, zeros as well.
    virtual void code_every(const ListJob& job) const { static_cast<void>(code_list(job)); }
    /// Fields of the header that follow from what is sent.
    virtual void settle_header(const SentList& /*sent*/, const CodeScratch& /*scratch*/,
                               PayloadHeader& /*inout_header*/) const {}
    /// The value section, from what code_list left in the scratch. Returns the byte behind it.
    [[nodiscard]] virtual std::byte* write_values(const PayloadHeader& header, const SentList& sent,
                                                  const CodeScratch& scratch, std::byte* out) const;

    // ---- every element ----

    /// Writes codes and scales. All but DenseRoute::kChunk and kList.
    virtual void code_tile(const TileJob& /*job*/) const {}
    /// DenseRoute::kHeld: writes a tile's scales, once all of it is read, and leaves in `inout_held` what its codes
    /// need: no scale above 0 where all codes are 0. `magnitude_sum`: of DenseOutcome.
    virtual void measure(const TileJob& /*job*/, double /*magnitude_sum*/, HeldTile& /*inout_held*/) const {}
    /// DenseRoute::kHeld: codes and residual of a tile that was measured, and that no pass takes along.
    virtual void settle(const HeldTile& /*held*/, std::uint32_t /*count*/, const PayloadKernels& /*kernels*/) const {}
    /// DenseRoute::kChunk: codes as words; returns all their magnitudes or-ed.
    [[nodiscard]] virtual std::uint32_t code_words(const WordsJob& /*job*/) const { return 0; }
    /// DenseRoute::kChunk: the payload of a chunk, from all its codes; empty if all of them are zero.
    [[nodiscard]] virtual PayloadBytes build_chunk(const Quantizer& /*quantizer*/,
                                                   std::span<const std::uint32_t> /*codes*/,
                                                   std::uint32_t /*magnitudes*/, const PayloadPool& /*pool*/,
                                                   const PayloadKernels& /*kernels*/) const {
        return {};
    }

    // ---- values on their way in ----

    /// A list's values from `sections`, which are behind the indices. `tiles`: ends, of those whose tiles say
    /// something. Errors: kCorrupt.
    [[nodiscard]] virtual Status read_list(const PayloadHeader& /*header*/, TileTable& /*inout_tiles*/,
                                           SectionReader /*sections*/, DecodedList& /*ret_list*/) const {
        return {};
    }
    /// Every scale of a dense payload. Errors: kCorrupt.
    [[nodiscard]] virtual Status check_scales(const PayloadView& view) const;
    /// Whether all values of a dense payload are finite: of fp numbers; codes always are.
    [[nodiscard]] virtual bool has_finite_values(const PayloadView& /*view*/) const noexcept { return true; }
    /// Whether all values of a rotation are so small that every sum on the way back is finite, as its scales were
    /// checked to be.
    [[nodiscard]] virtual bool has_small_values(const PayloadView& /*view*/) const noexcept { return true; }
    /// What the kernels that add dense payloads want to know: see codec::dense_term.
    [[nodiscard]] virtual DenseTerm term(const PayloadView& /*view*/, float /*factor*/, std::uint32_t /*first*/,
                                         TermRoom& /*room*/) const {
        return {};
    }

protected:
    constexpr QuantizerCoder() = default;
    ~QuantizerCoder() = default;
};

/// A list's codes and scales, from `sections` behind the indices; each tile's values by `decode` (count, codes, scale,
/// ret_values). Errors: kCorrupt.
template <typename Decode>
[[nodiscard]] Status read_scaled_codes(const PayloadHeader& header, const TileTable& tiles, SectionReader sections,
                                       DecodedList& ret_list, Decode decode) {
    GRADSIEVE_ASSIGN(const ByteView scales, sections.take_scales(header, tiles.count));
    GRADSIEVE_TRY(sections.take_values(header));
    read_codes(sections.rest(), header.count, header.code_bits, ret_list.codes.data());
    for (std::uint32_t tile = 0, first = 0; tile < tiles.count; first = tiles.ends[tile++]) {
        const float scale = list_scale_at(scales, tile);
        if (!is_tile_scale(header, scale)) return corrupt_tile_scale(header, scale);
        decode(tiles.ends[tile] - first, ret_list.codes.data() + first, scale, ret_list.values.data() + first);
    }
    return {};
}

/// The term of fields of code_bits that `room`'s table decodes, from element `first` on.
[[nodiscard]] DenseTerm table_term(const PayloadView& view, float factor, std::uint32_t first, const TermRoom& room);

/// Of a number that is taken.
[[nodiscard]] const QuantizerCoder& coder_of(QuantizerKind quantizer) noexcept;

/// What all value form bytes have in common: a code's bits, whether values are coded, and nothing reserved.
[[nodiscard]] Status read_width(std::uint8_t byte, PayloadHeader& inout_header);
/// A value form byte of nothing but the width of a sign. Errors: kCorrupt.
[[nodiscard]] Status read_plain_sign_byte(std::uint8_t byte, PayloadHeader& inout_header);
/// The error of a value that is infinite or no number.
[[nodiscard]] Status non_finite_value();
/// Values of a rotation are at most this: 4,096 elements of at most 127 times that, over 64, add up to something
/// finite.
inline constexpr float kMostRotatedNumber = 0x1p112F;

}  // namespace gradsieve::codec
