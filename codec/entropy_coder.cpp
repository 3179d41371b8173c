#include "codec/entropy_coder.hpp"

#include "codec/bit_stream.hpp"
#include "codec/payload_kernels.hpp"

#include <algorithm>
#include <numeric>

namespace gradsieve::codec {
namespace {

using GroupBytes = std::array<std::uint16_t, kChunkElements / kEntropyGroup>;
/// Codes that fit in a word beside the bits of a byte that was begun.
constexpr std::uint32_t kCodesPerWord = 4;
static_assert(kCodesPerWord * kLongestHuffmanCode <= 56);
/// What kernels and packers write behind what they are asked for.
constexpr std::size_t kWrittenBehind = 16;

std::size_t symbols_of(const PayloadHeader& header) noexcept { return std::size_t{1} << header.code_bits; }
/// Two lengths to a byte, the first one low.
std::size_t table_bytes(const PayloadHeader& header) noexcept { return symbols_of(header) / 2; }
std::uint32_t groups_of(std::uint32_t count) noexcept { return (count + kEntropyGroup - 1) / kEntropyGroup; }
std::uint32_t group_codes(std::uint32_t count, std::uint32_t group) noexcept {
    return std::min(kEntropyGroup, count - group * kEntropyGroup);
}

void unpack_all(ByteView values, std::uint32_t count, unsigned width, std::uint8_t* ret_codes) noexcept {
    const std::size_t readable = values.size() > sizeof(std::uint64_t) ? values.size() - sizeof(std::uint64_t) : 0;
    const auto eights = static_cast<std::uint32_t>(std::min<std::size_t>(count / 8, readable / width));
    payload_kernels().unpack_bytes(values.data(), eights, width, ret_codes);
    unpack_fields(values.subspan(std::size_t{eights} * width), count - 8 * eights, width, ret_codes + 8 * eights);
}

/// Several counters a symbol: a run of equal codes would wait for its own last addition.
std::array<std::uint32_t, kMostSymbols> count_codes(std::span<const std::uint8_t> codes) noexcept {
    constexpr std::size_t kWays = 4;
    std::array<std::array<std::uint32_t, kMostSymbols>, kWays> counts{};
    std::size_t at = 0;
    for (; at + kWays <= codes.size(); at += kWays)
        for (std::size_t way = 0; way < kWays; ++way) ++counts[way][codes[at + way]];
    for (; at < codes.size(); ++at) ++counts[0][codes[at]];
    for (std::size_t way = 1; way < kWays; ++way)
        std::ranges::transform(counts[0], counts[way], counts[0].begin(), std::plus());
    return counts[0];
}

std::uint64_t measure_groups(std::span<const std::uint8_t> codes, const std::array<HuffmanCode, kMostSymbols>& huffman,
                             GroupBytes& ret_bytes) noexcept {
    const auto count = static_cast<std::uint32_t>(codes.size());
    std::uint64_t sum = 0;
    for (std::uint32_t group = 0; group < groups_of(count); ++group) {
        std::uint32_t bits = 0;
        for (const std::uint8_t code : codes.subspan(std::size_t{group} * kEntropyGroup, group_codes(count, group)))
            bits += huffman[code].length;
        ret_bytes[group] = static_cast<std::uint16_t>(bytes_of_bits(bits));
        sum += ret_bytes[group];
    }
    return sum;
}

std::byte* write_group(std::span<const std::uint8_t> codes, const std::array<HuffmanCode, kMostSymbols>& huffman,
                       std::byte* out) noexcept {
    BitPacker packer(out);
    std::size_t at = 0;
    for (; at + kCodesPerWord <= codes.size(); at += kCodesPerWord) {
        std::uint64_t word = 0;
        unsigned width = 0;
        for (std::size_t place = 0; place < kCodesPerWord; ++place) {
            const HuffmanCode code = huffman[codes[at + place]];
            word |= std::uint64_t{code.bits} << width;
            width += code.length;
        }
        packer.put(word, width);
    }
    for (; at < codes.size(); ++at) packer.put(huffman[codes[at]].bits, huffman[codes[at]].length);
    return packer.end();
}

std::uint64_t load_word(ByteView bytes, std::size_t at) noexcept {
    std::uint64_t word = 0;
    if (at + sizeof(word) <= bytes.size())
        std::memcpy(&word, bytes.data() + at, sizeof(word));
    else if (at < bytes.size())
        std::memcpy(&word, bytes.data() + at, bytes.size() - at);
    return word;
}

/// Codes of the stream that begins at bit `first_bit`; returns the bit behind it, which the caller compares with the
/// group's end. Behind the last byte there are zeros.
std::uint64_t read_group(ByteView streams, std::uint64_t first_bit, std::uint32_t count, const HuffmanTable& table,
                         std::uint8_t* ret_codes) noexcept {
    std::uint64_t bit = first_bit;
    std::uint32_t code = 0;
    while (code < count) {
        std::uint64_t word = load_word(streams, bit / 8) >> (bit % 8);
        const std::uint32_t end = std::min(code + kCodesPerWord, count);
        for (; code < end; ++code) {
            const HuffmanTable::Entry entry = table.at(word);
            ret_codes[code] = entry.symbol;
            word >>= entry.length;
            bit += entry.length;
        }
    }
    return bit;
}

/// Plain codes of a group, which begins at a byte. Writes kWrittenBehind bytes more.
std::byte* write_plain(std::span<const std::uint8_t> codes, unsigned width, std::byte* out) noexcept {
    const std::size_t eights = codes.size() / 8;
    payload_kernels().pack_bytes(codes.data(), static_cast<std::uint32_t>(eights), width, out);
    BitPacker packer(out + eights * width);
    for (const std::uint8_t code : codes.subspan(8 * eights)) packer.put(code, width);
    return packer.end();
}

Result<HuffmanLengths> read_lengths(const PayloadHeader& header, ByteView table) {
    HuffmanLengths lengths{};
    for (std::size_t symbol = 0; symbol < symbols_of(header); ++symbol)
        lengths[symbol] = (static_cast<unsigned>(table[symbol / 2]) >> (4 * (symbol % 2))) & 15U;
    if (are_huffman_lengths(lengths)) return lengths;
    const unsigned longest = *std::ranges::max_element(lengths);
    if (longest > kLongestHuffmanCode)
        return corrupt_payload("code length", longest, "0 to " + std::to_string(kLongestHuffmanCode));
    return corrupt_payload("code lengths", "that leave codes over or use some twice",
                           "those of a code whose lengths use every sequence of bits once");
}

Status corrupt_stream(std::uint32_t group) {
    return corrupt_payload("stream of coded values", group, "as many bytes as its codes take, padded with zero bits");
}

}  // namespace

PayloadBytes code_entropy(PayloadBytes plain, ElementCount elements, const PayloadPool& payloads,
                          EntropyScratch& scratch) {
    if (plain.empty()) return plain;
    const auto parsed = parse_header(plain, elements);
    GRADSIEVE_CHECK(parsed.is_ok());
    PayloadHeader header = parsed->header;
    if (header.is_paper_word() || header.code_bits > kMostCodedBits) return plain;
    const std::size_t value_bytes = bytes_of_bits(std::uint64_t{header.count} * header.code_bits);
    const std::size_t others = plain.size() - value_bytes - parsed->header_bytes;  // indices and scales
    scratch.codes.resize(header.count);
    unpack_all(plain.view().last(value_bytes), header.count, header.code_bits, scratch.codes.data());
    const auto counts = count_codes(scratch.codes);
    const HuffmanLengths lengths = huffman_lengths(std::span(counts).first(symbols_of(header)));
    const auto codes = huffman_codes(lengths);
    GroupBytes group_bytes;
    const std::uint64_t stream_bytes = measure_groups(scratch.codes, codes, group_bytes);
    const std::uint32_t groups = groups_of(header.count);
    const std::size_t length_bytes = groups * sizeof(std::uint16_t);
    const std::uint64_t coded_bytes = table_bytes(header) + length_bytes + stream_bytes;
    if (coded_bytes >= value_bytes) return plain;

    header.is_coded = true;
    PayloadBytes coded = payloads.take(plain.size() - value_bytes + coded_bytes);
    std::byte* out = build_header(header, coded.data());
    for (std::size_t symbol = 0; symbol < symbols_of(header); symbol += 2)
        *out++ = static_cast<std::byte>(lengths[symbol] | (lengths[symbol + 1] << 4U));
    std::memcpy(out, group_bytes.data(), length_bytes);
    out += length_bytes;
    std::memcpy(out, plain.data() + parsed->header_bytes, others);
    out += others;
    const std::span<const std::uint8_t> all(scratch.codes);
    for (std::uint32_t group = 0; group < groups; ++group)
        out =
            write_group(all.subspan(std::size_t{group} * kEntropyGroup, group_codes(header.count, group)), codes, out);
    GRADSIEVE_CHECK(out == coded.data() + coded.size());
    return coded;
}

Result<ByteView> expand_entropy(const PayloadHeader& header, ByteView body, Bytes& inout_memory) {
    const std::uint32_t groups = groups_of(header.count);
    const std::size_t length_bytes = groups * sizeof(std::uint16_t);
    const std::size_t head = table_bytes(header) + length_bytes;
    if (body.size() < head)
        return corrupt_payload("bytes behind the header", body.size(), std::to_string(head) + " or more");
    GRADSIEVE_ASSIGN(const HuffmanLengths lengths, read_lengths(header, body));
    GroupBytes group_bytes;
    std::memcpy(group_bytes.data(), body.data() + table_bytes(header), length_bytes);
    const std::uint64_t stream_bytes =
        std::accumulate(group_bytes.begin(), group_bytes.begin() + groups, std::uint64_t{0});
    if (stream_bytes > body.size() - head)
        return corrupt_payload("length of the streams", stream_bytes,
                               "up to " + std::to_string(body.size() - head) + " bytes");
    const std::uint64_t value_bytes = bytes_of_bits(std::uint64_t{header.count} * header.code_bits);
    if (head + stream_bytes >= value_bytes)
        return corrupt_payload("length of coded values", head + stream_bytes,
                               "less than the " + std::to_string(value_bytes) + " bytes of plain codes");

    const std::size_t others = body.size() - head - stream_bytes;
    if (inout_memory.size() < others + value_bytes + kWrittenBehind)
        inout_memory.resize(others + value_bytes + kWrittenBehind);
    std::memcpy(inout_memory.data(), body.data() + head, others);
    std::byte* out = inout_memory.data() + others;
    const ByteView streams = body.last(stream_bytes);
    const HuffmanTable table(lengths);
    std::array<std::uint8_t, kEntropyGroup> codes;
    for (std::uint32_t group = 0, first_byte = 0; group < groups; first_byte += group_bytes[group++]) {
        const std::uint32_t count = group_codes(header.count, group);
        const std::uint64_t begin = std::uint64_t{first_byte} * 8;
        const std::uint64_t bits = read_group(streams, begin, count, table, codes.data()) - begin;
        if (bytes_of_bits(bits) != group_bytes[group] ||
            !has_zero_padding(streams.subspan(first_byte, group_bytes[group]), bits))
            return corrupt_stream(group);
        out = write_plain(std::span(codes).first(count), header.code_bits, out);
    }
    return ByteView(inout_memory.data(), others + value_bytes);
}

}  // namespace gradsieve::codec
