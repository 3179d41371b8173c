#include "codec/payload.hpp"

#include "codec/stages/quantizer_coder.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

bool has_parameter_byte(const PayloadHeader& header) noexcept {
    return header.is_list() || has_exponents(header.quantizer);
}
/// Four bytes that are the quantizer's.
bool has_number(const PayloadHeader& header) noexcept {
    return header.has_chunk_scale || has_base(header.quantizer) || has_step(header.quantizer);
}

unsigned varint_bytes(std::uint32_t value) noexcept { return value < (1U << 7U) ? 1 : value < (1U << 14U) ? 2 : 3; }

/// Those of a set as errors say them: "3 (pow2), 5 (two_mean)".
std::string list_quantizers(QuantizerSet set) {
    std::string text;
    for (std::size_t number = 0; number < kMostQuantizers; ++number) {
        const auto quantizer = static_cast<QuantizerKind>(number);
        if (!is_in(set, quantizer)) continue;
        text += (text.empty() ? "" : ", ") + std::to_string(number);
        text.append(" (").append(facts_of(quantizer).name).append(")");
    }
    return text;
}

Status read_form(std::uint8_t form, PayloadHeader& ret_header) {
    const unsigned quantizer = form & 31U;
    const unsigned index_form = form >> 5U;
    ret_header.quantizer = static_cast<QuantizerKind>(quantizer);
    ret_header.is_rotated = index_form == kRotatedForm;
    ret_header.index_form = ret_header.is_rotated ? IndexForm::kEvery : static_cast<IndexForm>(index_form);
    if (is_in(kQuantizers, ret_header.quantizer)) return {};
    if (form == kReuseForm)
        return corrupt_payload("that stands for an earlier one, form", form,
                               "one of a codec with similarity(skip=..) on all nodes");
    return corrupt_payload("quantizer", quantizer, list_quantizers(kQuantizers));
}

/// Whether quantizer and index form may stand together.
Status check_form(const PayloadHeader& header) {
    constexpr QuantizerSet kWithoutZero = quantizers_with([](const auto& facts) { return !facts.codes_zero; });
    constexpr QuantizerSet kDenseOnly = quantizers_with([](const auto& facts) { return !facts.sends_lists; });
    constexpr QuantizerSet kUnrotated = quantizers_with([](const auto& facts) { return !facts.may_be_rotated; });
    const auto quantizer = static_cast<unsigned>(header.quantizer);
    if (is_in(kDenseOnly, header.quantizer) && header.is_list())
        return corrupt_payload("index form of " + std::string(facts_of(header.quantizer).name),
                               static_cast<unsigned>(header.index_form), "0 (every)");
    if (is_keyed(header.index_form) && is_in(kWithoutZero, header.quantizer))
        return corrupt_payload("quantizer after a key", quantizer,
                               "one with a code for zero: not " + list_quantizers(kWithoutZero & ~kDenseOnly));
    if (header.is_rotated && is_in(kUnrotated, header.quantizer))
        return corrupt_payload("quantizer of a rotation", quantizer,
                               "one of numbers for all: not " + list_quantizers(kUnrotated));
    return {};
}

/// The first version that knows all of it, values coded or not.
std::uint32_t header_version(const PayloadHeader& header) noexcept {
    return header.is_rotated ? kNewestPayloadVersion : payload_version(header.quantizer, header.index_form);
}

/// Coded values say so behind the form byte.
std::uint32_t due_version(const PayloadHeader& header, ByteView payload) noexcept {
    const bool is_coded = has_value_byte(header.quantizer) && payload.size() > 2 &&
                          (static_cast<std::uint32_t>(payload[2]) & kCodedValues) != 0;
    return is_coded ? kNewestPayloadVersion : header_version(header);
}

// At most 3 bytes, shortest form only: one count has one spelling.
Status read_count(ByteReader& reader, ElementCount elements, PayloadHeader& ret_header) {
    std::uint32_t count = 0;
    for (unsigned position = 0; position < 3; ++position) {
        const auto byte = reader.read<std::uint8_t>();
        count |= static_cast<std::uint32_t>(byte & 0x7FU) << (7 * position);
        if ((byte & 0x80U) != 0) continue;
        if (!reader.is_ok()) break;
        if (byte == 0 && position > 0)
            return corrupt_payload("count ending in a zero byte", count, "the shortest form");
        if (count == 0 || count > elements)
            return corrupt_payload("count", count, "1 to " + std::to_string(elements) + ", the chunk's elements");
        ret_header.count = count;
        return {};
    }
    return corrupt_payload("count", "without an end", "at most 3 bytes");
}

Status read_parameters(ByteReader& reader, PayloadHeader& ret_header) {
    const auto byte = reader.read<std::uint8_t>();
    ret_header.index_parameter = byte & 31U;
    ret_header.exponent_parameter = byte >> 5U;
    const bool is_elias_fano = ret_header.index_form == IndexForm::kEliasFano;
    const unsigned limit = ret_header.index_form == IndexForm::kRice || is_elias_fano ? kMaximumRiceParameter : 0;
    if (ret_header.index_parameter > limit)
        return corrupt_payload(is_elias_fano ? "elias_fano lower bits" : "rice parameter", ret_header.index_parameter,
                               "0 to " + std::to_string(limit));
    if (!has_exponents(ret_header.quantizer) && ret_header.exponent_parameter != 0)
        return corrupt_payload("exponent parameter", ret_header.exponent_parameter, "0 without pow2");
    return {};
}

}  // namespace

unsigned PayloadHeader::value_bits() const noexcept {
    const unsigned number_bits = facts_of(quantizer).number_bits;
    return number_bits > 0 ? number_bits : is_paper_word() ? 0 : code_bits;
}

PayloadSizes payload_sizes(const PayloadHeader& header, const PayloadContent& content) noexcept {
    PayloadSizes sizes;
    sizes.header = has_value_byte(header.quantizer) ? 3 : 2;
    if (has_bucket_byte(header.quantizer)) sizes.header += 1;
    if (header.is_list()) sizes.header += varint_bytes(header.count);
    if (has_parameter_byte(header)) sizes.header += 1;
    if (has_exponents(header.quantizer)) sizes.header += 1;
    if (has_number(header)) sizes.header += 4;
    if (header.is_rotated) sizes.header += sizeof(header.rotation_key);
    switch (header.index_form) {
        case IndexForm::kEvery: break;
        case IndexForm::kRice:
            sizes.indices = bytes_of_bits(std::uint64_t{header.count} * header.index_parameter);
            sizes.unary = bytes_of_bits(content.unary_bits);
            break;
        case IndexForm::kBitmap: sizes.indices = bytes_of_bits(content.chunk_elements); break;
        case IndexForm::kRaw32: sizes.indices = std::uint64_t{header.count} * 4; break;
        case IndexForm::kEliasFano:
            sizes.indices = bytes_of_bits(std::uint64_t{header.count} * header.index_parameter);
            sizes.unary = bytes_of_bits(elias_fano_high_bits(static_cast<std::uint32_t>(content.chunk_elements),
                                                             header.count, header.index_parameter));
            break;
        case IndexForm::kSubset:
        case IndexForm::kBernoulli: sizes.indices = key_bytes(header.index_form); break;
    }
    if (has_exponents(header.quantizer) && header.exponent_parameter != kNoTileExponents)
        sizes.scales = bytes_of_bits(content.exponent_bits);
    if (header.has_tile_scales()) sizes.scales = content.tiles * header.tile_scale_bytes();
    if (has_bucket_byte(header.quantizer))
        sizes.scales =
            std::uint64_t{buckets_of(static_cast<std::uint32_t>(content.chunk_elements), header.bucket_log2)} *
            (2 * sizeof(float));
    sizes.values = bytes_of_bits(std::uint64_t{header.count} * header.value_bits());
    return sizes;
}

PayloadHeader header_of(const Quantizer& quantizer, IndexForm form, ElementCount count) noexcept {
    PayloadHeader header;
    header.quantizer = quantizer.kind;
    header.index_form = form;
    header.count = static_cast<std::uint32_t>(count);
    header.code_bits = code_bits(quantizer);
    coder_of(quantizer.kind).fill_header(quantizer, header);
    return header;
}

std::byte* build_header(const PayloadHeader& header, std::byte* out) {
    const auto put = [&](std::uint32_t byte) { *out++ = static_cast<std::byte>(byte); };
    put(header.is_coded ? kNewestPayloadVersion : header_version(header));
    put(form_byte(header.quantizer, header.index_form) | (header.is_rotated ? kRotatedForm << 5U : 0U));
    if (has_value_byte(header.quantizer))
        put(value_byte(header.code_bits, header.has_chunk_scale) | (header.is_coded ? kCodedValues : 0U));
    if (has_bucket_byte(header.quantizer)) put(bucket_code(header.bucket_log2));
    if (header.is_list()) {
        std::uint32_t count = header.count;
        for (; count >= 0x80U; count >>= 7U) put((count & 0x7FU) | 0x80U);
        put(count);
    }
    if (has_parameter_byte(header)) put(header.index_parameter | (header.exponent_parameter << 5U));
    if (has_exponents(header.quantizer)) put(header.base_exponent);
    if (has_number(header)) {
        const float number = header.has_chunk_scale       ? header.chunk_scale
                             : has_step(header.quantizer) ? header.step
                                                          : header.base;
        std::memcpy(out, &number, sizeof(number));
        out += sizeof(number);
    }
    if (header.is_rotated) {
        std::memcpy(out, &header.rotation_key, sizeof(header.rotation_key));
        out += sizeof(header.rotation_key);
    }
    return out;
}

Result<ParsedHeader> parse_header(ByteView payload, ElementCount elements) {
    if (elements == 0 || elements > kChunkElements)
        return corrupt_payload("chunk of elements", elements, "1 to " + std::to_string(kChunkElements));
    ByteReader reader(payload);
    const auto version = reader.read<std::uint8_t>();
    const auto form = reader.read<std::uint8_t>();
    if (!reader.is_ok()) return corrupt_payload("length in bytes", payload.size(), "2 or more");
    if (version < kOldestPayloadVersion || version > kNewestPayloadVersion)
        return Status(StatusCode::kVersionMismatch, "payload version " + std::to_string(version) + ": allowed is " +
                                                        std::to_string(kOldestPayloadVersion) + " to " +
                                                        std::to_string(kNewestPayloadVersion) +
                                                        "; install matching releases on all nodes");
    ParsedHeader parsed;
    PayloadHeader& header = parsed.header;
    GRADSIEVE_TRY(read_form(form, header));
    if (const std::uint32_t due = due_version(header, payload); version != due)
        return corrupt_payload(header.is_rotated || header.index_form > IndexForm::kRaw32
                                   ? "version of index form " + std::to_string(form >> 5U)
                                   : "version of quantizer " + std::to_string(form & 31U),
                               version, std::to_string(due));
    GRADSIEVE_TRY(check_form(header));
    if (has_value_byte(header.quantizer)) {
        const auto value_form = reader.read<std::uint8_t>();
        if (!reader.is_ok()) return corrupt_payload("length in bytes", payload.size(), "at least its header");
        GRADSIEVE_TRY(coder_of(header.quantizer).read_value_byte(value_form, header));
    }
    if (has_bucket_byte(header.quantizer)) {
        const auto bucket = reader.read<std::uint8_t>();
        if (bucket > kMostBucketLog2 - kLeastBucketLog2)
            return corrupt_payload(facts_of(header.quantizer).name + std::string(" bucket code"), bucket, "0 to 6");
        header.bucket_log2 = bucket + kLeastBucketLog2;
    }
    header.count = static_cast<std::uint32_t>(elements);
    if (header.is_list()) GRADSIEVE_TRY(read_count(reader, elements, header));
    if (has_parameter_byte(header)) GRADSIEVE_TRY(read_parameters(reader, header));
    if (has_exponents(header.quantizer)) header.base_exponent = reader.read<std::uint8_t>();
    if (has_base(header.quantizer)) header.base = reader.read<float>();
    if (has_step(header.quantizer)) header.step = reader.read<float>();
    if (header.has_chunk_scale) header.chunk_scale = reader.read<float>();
    if (header.is_rotated) {
        header.rotation_key.low = reader.read<std::uint32_t>();
        header.rotation_key.high = reader.read<std::uint32_t>();
    }
    if (!reader.is_ok()) return corrupt_payload("length in bytes", payload.size(), "at least its header");
    if (header.is_coded && header.is_paper_word())
        return corrupt_payload("coded values of words that hold them", 1, "0");
    if (!std::isfinite(header.chunk_scale) || std::signbit(header.chunk_scale))
        return corrupt_payload("scale", std::to_string(header.chunk_scale), "finite and not negative");
    GRADSIEVE_TRY(coder_of(header.quantizer).check_fields(header));
    parsed.header_bytes = reader.position_bytes();
    return parsed;
}

bool is_tile_scale(const PayloadHeader& header, float scale) noexcept {
    const float largest = coder_of(header.quantizer).largest_scale(header.code_bits);
    return !std::signbit(scale) && scale <= largest;
}

Status corrupt_tile_scale(const PayloadHeader& header, float scale) {
    const bool is_sign = is_sign_bit(header.quantizer) || !std::isfinite(scale) || std::signbit(scale);
    return corrupt_payload("tile scale", std::to_string(scale),
                           is_sign ? "finite and not negative" : "so small that every level is finite");
}

Status corrupt_payload(std::string_view what, std::string_view seen, std::string_view allowed) {
    std::string text = "payload ";
    text.append(what).append(" ").append(seen).append(": allowed is ").append(allowed);
    text += "; the bytes were damaged or forged: have the sender send the step again";
    return {StatusCode::kCorrupt, std::move(text)};
}

Status corrupt_payload(std::string_view what, std::uint64_t seen, std::string_view allowed) {
    return corrupt_payload(what, std::to_string(seen), allowed);
}

}  // namespace gradsieve::codec
