#include "codec/index_coder.hpp"

#include "codec/bit_stream.hpp"
#include "codec/payload_kernels.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace gradsieve::codec {
namespace {

/// Widest fields of which eight are packed at a time.
constexpr unsigned kWidestGroup = 16;

Status truncated(std::string_view what, std::size_t available) {
    return corrupt_payload(what, "cut off after " + std::to_string(available) + " bytes",
                           "the length its header implies");
}

/// Fields side by side: in groups where whole words may be read, the last ones field by field.
void read_low_fields(ByteView section, std::uint32_t count, unsigned width, std::uint32_t* ret_fields) {
    std::uint32_t groups = 0;
    if (width > 0 && width <= kWidestGroup) {
        constexpr std::size_t kReadBeyond = 16;
        const std::size_t readable = section.size() > kReadBeyond ? section.size() - kReadBeyond : 0;
        groups = static_cast<std::uint32_t>(std::min<std::size_t>(count / 8, readable / width));
        payload_kernels().unpack_words(section.data(), groups, width, ret_fields);
    }
    unpack_fields(section.subspan(std::size_t{groups} * width), count - 8 * groups, width, ret_fields + 8 * groups);
}

Status parse_rice(const PayloadHeader& header, ByteView body, ElementCount elements, std::uint32_t* ret_indices,
                  std::size_t& ret_used_bytes) {
    const std::uint64_t remainder_bits = std::uint64_t{header.count} * header.index_parameter;
    const std::size_t remainder_bytes = bytes_of_bits(remainder_bits);
    if (body.size() < remainder_bytes) return truncated("rice remainders", body.size());
    if (!has_zero_padding(body, remainder_bits))
        return corrupt_payload("rice remainders", "with set padding", "zero bits");
    read_low_fields(body.first(remainder_bytes), header.count, header.index_parameter, ret_indices);
    const ByteView unary = body.subspan(remainder_bytes);
    std::uint64_t last = 0;
    const std::uint64_t used_bits = payload_kernels().rice_indices(unary.data(), unary.size(), header.count,
                                                                   header.index_parameter, ret_indices, &last);
    if (used_bits == 0) return truncated("rice quotients", unary.size());
    if (last >= elements) return corrupt_payload("index", last, "less than " + std::to_string(elements));
    if (!has_zero_padding(unary, used_bits)) return corrupt_payload("rice quotients", "with set padding", "zero bits");
    ret_used_bytes = remainder_bytes + bytes_of_bits(used_bits);
    return {};
}

Status parse_bitmap(const PayloadHeader& header, ByteView body, ElementCount elements, std::uint32_t* ret_indices,
                    std::size_t& ret_used_bytes) {
    const std::size_t bytes = bytes_of_bits(elements);
    if (body.size() < bytes) return truncated("bitmap", body.size());
    if (!has_zero_padding(body, elements)) return corrupt_payload("bitmap", "with set padding", "zero bits");
    const std::uint32_t ones = payload_kernels().count_ones(body.data(), bytes);
    if (ones != header.count)
        return corrupt_payload("bitmap's ones", ones, "its count, " + std::to_string(header.count));
    static_cast<void>(payload_kernels().bitmap_indices(body.data(), bytes, 0, ret_indices));
    ret_used_bytes = bytes;
    return {};
}

Status parse_words(const PayloadHeader& header, ByteView body, ElementCount elements, std::uint32_t* ret_indices,
                   std::size_t& ret_used_bytes) {
    const std::size_t bytes = std::size_t{header.count} * sizeof(std::uint32_t);
    if (body.size() < bytes) return truncated("index words", body.size());
    std::memcpy(ret_indices, body.data(), bytes);
    const std::uint32_t mask = header.is_paper_word() ? kPaperWordIndexMask : ~0U;
    std::uint32_t next = 0;  // the smallest index allowed
    for (std::uint32_t element = 0; element < header.count; ++element) {
        const std::uint32_t index = ret_indices[element] & mask;
        if (index < next || index >= elements)
            return corrupt_payload("index", index, "ascending and less than " + std::to_string(elements));
        next = index + 1;
    }
    ret_used_bytes = bytes;
    return {};
}

Status parse_elias_fano(const PayloadHeader& header, ByteView body, ElementCount elements, std::uint32_t* ret_indices,
                        std::size_t& ret_used_bytes) {
    const unsigned low_bits = header.index_parameter;
    const std::uint64_t lower = std::uint64_t{header.count} * low_bits;
    const std::uint64_t upper = elias_fano_high_bits(static_cast<std::uint32_t>(elements), header.count, low_bits);
    const std::size_t lower_bytes = bytes_of_bits(lower);
    const std::size_t bytes = lower_bytes + bytes_of_bits(upper);
    if (body.size() < bytes) return truncated("elias_fano indices", body.size());
    const ByteView highs = body.subspan(lower_bytes, bytes_of_bits(upper));
    if (!has_zero_padding(body, lower))
        return corrupt_payload("elias_fano lower bits", "with set padding", "zero bits");
    if (!has_zero_padding(highs, upper))
        return corrupt_payload("elias_fano upper bits", "with set padding", "zero bits");
    const std::uint32_t ones = payload_kernels().count_ones(highs.data(), highs.size());
    if (ones != header.count)
        return corrupt_payload("elias_fano ones", ones, "its count, " + std::to_string(header.count));
    read_low_fields(body.first(lower_bytes), header.count, low_bits, ret_indices);
    const std::uint32_t ascending =
        payload_kernels().elias_fano_indices(highs.data(), highs.size(), low_bits, ret_indices);
    const std::uint32_t wrong = std::min(ascending, header.count - 1);
    if (ascending < header.count || ret_indices[wrong] >= elements)
        return corrupt_payload("index", ret_indices[wrong], "ascending and less than " + std::to_string(elements));
    ret_used_bytes = bytes;
    return {};
}

/// Positions that follow from a key.
Status parse_key(const PayloadHeader& header, ByteView body, ElementCount elements, std::uint32_t* ret_indices,
                 std::size_t& ret_used_bytes) {
    const std::size_t bytes = key_bytes(header.index_form);
    if (body.size() < bytes) return truncated("selection key", body.size());
    const SelectionRule rule = read_key(header.index_form, header.count, body.data());
    const std::uint32_t drawn = draw_indices(rule, elements, header.count, payload_kernels(), ret_indices);
    if (drawn != header.count)
        return corrupt_payload("count", header.count, "as many as its key and its limits stand for");
    ret_used_bytes = bytes;
    return {};
}

}  // namespace

SelectionRule read_key(IndexForm form, std::uint32_t count, const std::byte* section) noexcept {
    std::array<std::uint32_t, 4> words{};
    std::memcpy(words.data(), section, key_bytes(form));
    SelectionRule rule;
    rule.key = {words[0], words[1]};
    rule.is_subset = form == IndexForm::kSubset ? 1 : 0;
    rule.count = count;
    rule.first_limit = words[2];
    rule.last_limit = words[3];
    return rule;
}

std::byte* build_key(const SelectionRule& rule, std::byte* out) {
    const std::array<std::uint32_t, 4> words = {rule.key.low, rule.key.high, rule.first_limit, rule.last_limit};
    const std::size_t bytes = key_bytes(index_form_of(rule));
    std::memcpy(out, words.data(), bytes);
    return out + bytes;
}

RicePlan plan_rice(std::span<const std::uint32_t> indices, const PayloadKernels& kernels,
                   std::vector<std::uint32_t>& ret_gaps) {
    const auto count = static_cast<std::uint32_t>(indices.size());
    ret_gaps.resize(count);
    kernels.make_gaps(indices.data(), count, ret_gaps.data());
    // All gaps together are less than a chunk, so 32 bits hold every sum of quotients.
    const auto bits_at = [&](unsigned parameter) {
        return std::uint64_t{count} * parameter + kernels.quotient_sum(ret_gaps.data(), count, parameter);
    };
    // Near log2(ln 2 * mean gap); from there downhill, since the size is convex in the parameter: each step up saves
    // sum of ceil(quotient / 2) quotients, which only shrinks.
    const std::uint64_t mean_gap = (indices[count - 1] + 1 - count) / count;
    const auto guess = static_cast<unsigned>(std::bit_width(mean_gap * 11 / 16));
    unsigned parameter = std::min(guess > 0 ? guess - 1 : 0, kMaximumRiceParameter);
    std::uint64_t bits = bits_at(parameter);
    bool is_lower_tried = false;
    for (; parameter > 0; --parameter, is_lower_tried = true) {
        const std::uint64_t lower = bits_at(parameter - 1);
        if (lower > bits) break;
        bits = lower;
    }
    for (; !is_lower_tried && parameter < kMaximumRiceParameter; ++parameter) {
        const std::uint64_t higher = bits_at(parameter + 1);
        if (higher >= bits) break;
        bits = higher;
    }
    return {parameter, bits - std::uint64_t{count} * parameter + count};
}

std::byte* build_low_fields(std::span<const std::uint32_t> numbers, unsigned width, const PayloadKernels& kernels,
                            std::byte* out) {
    std::size_t packed = 0;
    if (width > 0 && width <= kWidestGroup) {
        const std::size_t groups = numbers.size() / 8;
        kernels.pack_words(numbers.data(), static_cast<std::uint32_t>(groups), width, out);
        packed = 8 * groups;
        out += groups * width;
    }
    const std::uint32_t mask = (1U << width) - 1;
    BitPacker packer(out);
    for (const std::uint32_t number : numbers.subspan(packed)) packer.put(number & mask, width);
    return packer.end();
}

std::byte* build_rice_quotients(std::span<const std::uint32_t> gaps, unsigned parameter, std::byte* out) {
    std::uint64_t word = 0;
    std::uint32_t position = 0;  // of the next bit in `word`; may pass 64 for a moment
    for (const std::uint32_t gap : gaps) {
        position += gap >> parameter;
        while (position >= 64) {
            std::memcpy(out, &word, sizeof(word));
            out += sizeof(word);
            word = 0;
            position -= 64;
        }
        word |= std::uint64_t{1} << position;
        ++position;
    }
    std::memcpy(out, &word, sizeof(word));
    return out + bytes_of_bits(position);
}

std::byte* build_bitmap(std::span<const std::uint32_t> indices, ElementCount elements, std::byte* out) {
    std::fill_n(out, bytes_of_bits(elements), std::byte{0});
    for (const std::uint32_t index : indices) out[index / 8] |= static_cast<std::byte>(1U << (index % 8));
    return out + bytes_of_bits(elements);
}

std::byte* build_elias_fano_highs(std::span<const std::uint32_t> indices, ElementCount elements, unsigned low_bits,
                                  std::byte* out) {
    const auto count = static_cast<std::uint32_t>(indices.size());
    const std::size_t bytes =
        bytes_of_bits(elias_fano_high_bits(static_cast<std::uint32_t>(elements), count, low_bits));
    std::fill_n(out, bytes, std::byte{0});
    for (std::uint32_t element = 0; element < count; ++element) {
        const std::uint32_t bit = (indices[element] >> low_bits) + element;
        out[bit / 8] |= static_cast<std::byte>(1U << (bit % 8));
    }
    return out + bytes;
}

Status parse_indices(const PayloadHeader& header, ByteView body, ElementCount elements, std::uint32_t* ret_indices,
                     std::size_t& ret_used_bytes) {
    ret_used_bytes = 0;
    switch (header.index_form) {
        case IndexForm::kRice: return parse_rice(header, body, elements, ret_indices, ret_used_bytes);
        case IndexForm::kBitmap: return parse_bitmap(header, body, elements, ret_indices, ret_used_bytes);
        case IndexForm::kRaw32: return parse_words(header, body, elements, ret_indices, ret_used_bytes);
        case IndexForm::kEliasFano: return parse_elias_fano(header, body, elements, ret_indices, ret_used_bytes);
        case IndexForm::kSubset:
        case IndexForm::kBernoulli: return parse_key(header, body, elements, ret_indices, ret_used_bytes);
        case IndexForm::kEvery: break;
    }
    for (std::uint32_t element = 0; element < header.count; ++element) ret_indices[element] = element;
    return {};
}

}  // namespace gradsieve::codec
