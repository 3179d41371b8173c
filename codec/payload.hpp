// The first bytes of a chunk's payload and the size of everything behind them: what docs/payload-format.md says, as
// types. Written by the chunk coder, read by the payload reader; must know nothing of state or of the wire. Plain
// values.
#pragma once

#include "base/bytes.hpp"
#include "base/id.hpp"
#include "base/status.hpp"
#include "codec/element.hpp"
#include "codec/philox.hpp"
#include "codec/pipeline.hpp"
#include "codec/stages/quantizer_list.hpp"

namespace gradsieve::codec {

inline constexpr std::uint8_t kOldestPayloadVersion = 2;
inline constexpr std::uint8_t kNewestPayloadVersion = 5;
/// Largest Rice parameter of an index list, and most lower bits of elias_fano: 2^20 is a chunk.
inline constexpr unsigned kMaximumRiceParameter = 20;
/// Exponent code of a pow2 payload whose tiles all have the base exponent: no exponent section follows.
inline constexpr unsigned kNoTileExponents = 7;
inline constexpr std::size_t kMaximumTiles = kChunkElements / kTileElements;
/// The variance paper's word: sign << 31 | octaves below the tile's exponent << 28 | index in the chunk.
inline constexpr unsigned kPaperWordCodeShift = 28;
inline constexpr std::uint32_t kPaperWordIndexMask = (1U << kPaperWordCodeShift) - 1;

/// Quantizers with a fact, for the questions below.
inline constexpr QuantizerSet kSinceVersion3 = quantizers_with([](const auto& facts) { return facts.version >= 3; });
inline constexpr QuantizerSet kSinceVersion4 = quantizers_with([](const auto& facts) { return facts.version >= 4; });
inline constexpr QuantizerSet kSinceVersion5 = quantizers_with([](const auto& facts) { return facts.version >= 5; });
inline constexpr QuantizerSet kCodedQuantizers =
    quantizers_with([](const auto& facts) { return facts.number_bits == 0; });
inline constexpr QuantizerSet kSignQuantizers = quantizers_with([](const auto& facts) { return facts.is_sign_bit; });
inline constexpr QuantizerSet kScaledQuantizers =
    quantizers_with([](const auto& facts) { return facts.tile_scales > 0; });
inline constexpr QuantizerSet kTwoScaleQuantizers =
    quantizers_with([](const auto& facts) { return facts.tile_scales == 2; });
inline constexpr QuantizerSet kDitheredQuantizers =
    quantizers_with([](const auto& facts) { return facts.is_dithered; });
inline constexpr QuantizerSet kExponentQuantizers =
    quantizers_with([](const auto& facts) { return facts.has_exponents; });
inline constexpr QuantizerSet kBaseQuantizers = quantizers_with([](const auto& facts) { return facts.has_base; });
inline constexpr QuantizerSet kStepQuantizers = quantizers_with([](const auto& facts) { return facts.has_step; });
inline constexpr QuantizerSet kBucketQuantizers = quantizers_with([](const auto& facts) { return facts.has_buckets; });

/// How a payload says which elements it holds. Numbers are part of the format.
enum class IndexForm : std::uint8_t {
    kEvery = 0,
    kRice = 1,
    kBitmap = 2,
    kRaw32 = 3,
    kEliasFano = 4,
    kSubset = 5,
    kBernoulli = 6
};
/// Positions follow from a key, which the payload has in place of indices: see random_selection.hpp.
GRADSIEVE_HOST_DEVICE constexpr bool is_keyed(IndexForm form) noexcept {
    return form == IndexForm::kSubset || form == IndexForm::kBernoulli;
}
/// Bytes of the index section of those: the key, and limits.
GRADSIEVE_HOST_DEVICE constexpr std::uint32_t key_bytes(IndexForm form) noexcept {
    return form == IndexForm::kSubset ? 8 : 16;
}

/// What a payload says as its version: the first one that knows its quantizer and its index form.
GRADSIEVE_HOST_DEVICE constexpr std::uint32_t payload_version(QuantizerKind quantizer, IndexForm form) noexcept {
    if (form == IndexForm::kEliasFano || is_keyed(form)) return 5;
    return kOldestPayloadVersion + (is_in(kSinceVersion3, quantizer) ? 1U : 0U) +
           (is_in(kSinceVersion4, quantizer) ? 1U : 0U) + (is_in(kSinceVersion5, quantizer) ? 1U : 0U);
}
/// The form byte: bits 0-4 quantizer, bits 5-7 index form.
GRADSIEVE_HOST_DEVICE constexpr std::uint32_t form_byte(QuantizerKind quantizer, IndexForm form) noexcept {
    return static_cast<std::uint32_t>(quantizer) | static_cast<std::uint32_t>(form) << 5U;
}
/// What the form byte has in place of an index form where every element is sent, of the chunk's rotation; such payloads
/// are of version 5.
inline constexpr std::uint32_t kRotatedForm = 7;
/// Form byte of a payload that stands for an earlier one of its chunk and node (reuse.hpp), and has no values.
inline constexpr std::uint32_t kReuseForm = 31;
/// Quantizers whose codes are no fp numbers say more about them in a byte behind the form byte.
GRADSIEVE_HOST_DEVICE constexpr bool has_value_byte(QuantizerKind quantizer) noexcept {
    return is_in(kCodedQuantizers, quantizer);
}
/// The value form byte: bits 0-2 a code's bits minus one, bit 3 one scale for the chunk. integer: bits 0-4 a code's
/// bits minus one.
GRADSIEVE_HOST_DEVICE constexpr std::uint32_t value_byte(std::uint32_t code_bits, bool has_chunk_scale) noexcept {
    return (code_bits - 1U) | (has_chunk_scale ? 8U : 0U);
}

/// Whether a code is one bit, set for what is negative.
GRADSIEVE_HOST_DEVICE constexpr bool is_sign_bit(QuantizerKind quantizer) noexcept {
    return is_in(kSignQuantizers, quantizer);
}
/// Quantizers whose tiles have scales, unless a chunk has one for all.
GRADSIEVE_HOST_DEVICE constexpr bool has_tile_scales(QuantizerKind quantizer) noexcept {
    return is_in(kScaledQuantizers, quantizer);
}
/// Scales of a tile that has scales.
GRADSIEVE_HOST_DEVICE constexpr std::uint32_t scales_per_tile(QuantizerKind quantizer) noexcept {
    return is_in(kTwoScaleQuantizers, quantizer) ? 2 : 1;
}
/// Quantizers that may have one scale for a chunk instead.
GRADSIEVE_HOST_DEVICE constexpr bool may_have_chunk_scale(QuantizerKind quantizer) noexcept {
    return is_sign_bit(quantizer) && has_tile_scales(quantizer) && scales_per_tile(quantizer) == 1;
}
/// Whether codes are levels of their tile's scale.
GRADSIEVE_HOST_DEVICE constexpr bool is_dithered(QuantizerKind quantizer) noexcept {
    return is_in(kDitheredQuantizers, quantizer);
}
/// Quantizers whose tiles say exponents, and whose payloads are always read as lists.
GRADSIEVE_HOST_DEVICE constexpr bool has_exponents(QuantizerKind quantizer) noexcept {
    return is_in(kExponentQuantizers, quantizer);
}
/// Quantizers whose header says the base of their levels.
GRADSIEVE_HOST_DEVICE constexpr bool has_base(QuantizerKind quantizer) noexcept {
    return is_in(kBaseQuantizers, quantizer);
}
/// Quantizers whose header says what whole numbers are multiplied by, and each chunk how many bits they have.
GRADSIEVE_HOST_DEVICE constexpr bool has_step(QuantizerKind quantizer) noexcept {
    return is_in(kStepQuantizers, quantizer);
}
/// Quantizers whose header says a bucket, in a byte behind the value form byte.
GRADSIEVE_HOST_DEVICE constexpr bool has_bucket_byte(QuantizerKind quantizer) noexcept {
    return is_in(kBucketQuantizers, quantizer);
}
/// That byte: log2 of a bucket's elements, less that of the smallest.
GRADSIEVE_HOST_DEVICE constexpr std::uint32_t bucket_code(std::uint32_t bucket_log2) noexcept {
    return bucket_log2 - 6U;
}

struct PayloadHeader {
    QuantizerKind quantizer = QuantizerKind::kF32;
    IndexForm index_form = IndexForm::kEvery;
    /// pow2, dither, exponential_dither, minmax: 2..8; integer: 2..24; signs: 1; natural: 8
    unsigned code_bits = 0;
    bool has_chunk_scale = false;     ///< sign: one scale for the chunk instead of one per tile
    bool is_coded = false;            ///< the value section is coded: see entropy_coder.hpp; sizes are of plain codes
    std::uint32_t count = 0;          ///< elements sent; all of the chunk for kEvery
    unsigned index_parameter = 0;     ///< kRice: its parameter; kEliasFano: lower bits of an index; 0..20
    unsigned exponent_parameter = 0;  ///< pow2: Rice parameter of tile exponents, 0..6, or kNoTileExponents
    std::uint8_t base_exponent = 0;   ///< pow2: biased fp32 exponent, 1..254
    float base = 0;                   ///< exponential_dither: a level over the next
    float step = 0;                   ///< integer: kLeastStep to kMostStep
    float chunk_scale = 0;            ///< sign with has_chunk_scale: finite, sign bit clear
    std::uint32_t bucket_log2 = 0;    ///< minmax: of a bucket's elements, 6..12
    bool is_rotated = false;          ///< values are those of the chunk's rotation by the key, see rotation.hpp; kEvery
    PhiloxKey rotation_key;

    [[nodiscard]] bool is_list() const noexcept { return index_form != IndexForm::kEvery; }
    /// The variance paper's word: index, sign and exponent in 32 bits, no value section.
    [[nodiscard]] bool is_paper_word() const noexcept {
        return index_form == IndexForm::kRaw32 && has_exponents(quantizer) && code_bits == 4;
    }
    [[nodiscard]] bool has_tile_scales() const noexcept {
        return codec::has_tile_scales(quantizer) && !has_chunk_scale;
    }
    /// Scales are fp32 where every element is sent, and bf16 in a list, where few elements share one.
    [[nodiscard]] std::size_t scale_bytes() const noexcept { return is_list() ? 2 : 4; }
    /// Of a tile that has scales.
    [[nodiscard]] std::size_t tile_scale_bytes() const noexcept { return scales_per_tile(quantizer) * scale_bytes(); }
    /// Bits of one element in the value section.
    [[nodiscard]] unsigned value_bits() const noexcept;
};

/// Bit of the value form byte that says that the value section is coded; such payloads are of version 5.
inline constexpr std::uint32_t kCodedValues = 32;
/// Of the codes that may be.
inline constexpr std::uint32_t kMostCodedBits = 8;

/// What the size of a payload depends on besides its header.
struct PayloadContent {
    ElementCount chunk_elements = 0;
    std::uint64_t unary_bits = 0;     ///< kRice: count + sum of quotients
    std::uint64_t tiles = 0;          ///< tiles that hold a sent element
    std::uint64_t exponent_bits = 0;  ///< pow2: length of the exponent section
};

/// Bytes of each part, in the order in which they lie.
struct PayloadSizes {
    std::uint64_t header = 0;
    std::uint64_t indices = 0;  ///< Rice remainders, lower bits, bitmap, 32-bit words, or a key
    std::uint64_t unary = 0;    ///< Rice quotients, upper parts of elias_fano
    std::uint64_t scales = 0;   ///< tile exponents or tile scales
    std::uint64_t values = 0;
    [[nodiscard]] std::uint64_t total() const noexcept { return header + indices + unary + scales + values; }
};

[[nodiscard]] constexpr std::uint64_t bytes_of_bits(std::uint64_t bits) noexcept { return (bits + 7) / 8; }
[[nodiscard]] constexpr std::uint64_t tiles_of(ElementCount elements) noexcept {
    return (elements + kTileElements - 1) / kTileElements;
}

/// Lower bits of each index that elias_fano keeps apart where `count` of `elements` are sent: floor(log2(elements /
/// count)). Elias 1974; Fano 1971.
[[nodiscard]] GRADSIEVE_HOST_DEVICE constexpr std::uint32_t elias_fano_low_bits(std::uint32_t elements,
                                                                                std::uint32_t count) noexcept {
    std::uint32_t bits = 0;
    while ((elements / count) >> (bits + 1U) != 0) ++bits;
    return bits;
}
/// Bits of its section of upper parts: a one for each index, behind as many zeros as it has whole 2^low_bits.
[[nodiscard]] GRADSIEVE_HOST_DEVICE constexpr std::uint32_t elias_fano_high_bits(std::uint32_t elements,
                                                                                 std::uint32_t count,
                                                                                 std::uint32_t low_bits) noexcept {
    return count + ((elements - 1U) >> low_bits);
}

/// The exact size of a payload, by formula.
[[nodiscard]] PayloadSizes payload_sizes(const PayloadHeader& header, const PayloadContent& content) noexcept;
[[nodiscard]] inline ByteCount encoded_bytes(const PayloadHeader& header, const PayloadContent& content) noexcept {
    return payload_sizes(header, content).total();
}

/// The header of a quantizer's payload, as far as the quantizer decides it.
[[nodiscard]] PayloadHeader header_of(const Quantizer& quantizer, IndexForm form, ElementCount count) noexcept;
/// Whether a tile scale is finite and not negative, and its product with every level of dither finite.
[[nodiscard]] bool is_tile_scale(const PayloadHeader& header, float scale) noexcept;
/// The error of a tile scale that is not.
[[nodiscard]] Status corrupt_tile_scale(const PayloadHeader& header, float scale);
/// Writes the header and returns the byte behind it; `out` has room for kMostHeaderBytes.
[[nodiscard]] std::byte* build_header(const PayloadHeader& header, std::byte* out);
inline constexpr std::size_t kMostHeaderBytes = 15;

struct ParsedHeader {
    PayloadHeader header;
    std::size_t header_bytes = 0;
};
/// Reads and checks the header of a payload for a chunk of `elements`. Errors: kCorrupt, kVersionMismatch.
[[nodiscard]] Result<ParsedHeader> parse_header(ByteView payload, ElementCount elements);

/// The error of every refused payload: "payload <what> <seen>: allowed is <allowed>; ...".
[[nodiscard]] Status corrupt_payload(std::string_view what, std::string_view seen, std::string_view allowed);
[[nodiscard]] Status corrupt_payload(std::string_view what, std::uint64_t seen, std::string_view allowed);

/// bf16, nearest even; what would round to infinity becomes the largest finite value, so that it can be subtracted.
[[nodiscard]] constexpr std::uint16_t bf16_of(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
    return static_cast<std::uint16_t>((rounded & 0x7FFFU) == 0x7F80U ? rounded - 1 : rounded);
}
[[nodiscard]] constexpr float float_of_bf16(std::uint16_t bits) noexcept {
    return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

}  // namespace gradsieve::codec
