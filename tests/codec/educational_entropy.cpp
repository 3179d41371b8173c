// Coded values as docs/payload-format.md says them: bit by bit, codes found by comparing them as text.
#include "tests/codec/educational_decoder.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace gradsieve::test {
namespace {

constexpr unsigned kPow2 = 3, kInteger = 10, kLongest = 12;

/// The codes as the page orders them: by length, then by symbol, each the one before plus one.
std::map<std::string, unsigned> codes_of(const std::vector<unsigned>& lengths) {
    std::map<std::string, unsigned> codes;
    std::string next;
    for (unsigned length = 1; length <= kLongest; ++length) {
        next += '0';
        for (unsigned symbol = 0; symbol < lengths.size(); ++symbol) {
            if (lengths[symbol] != length) continue;
            if (next.size() != length) return {};  // all are used up
            codes[next] = symbol;
            std::size_t digit = next.size();
            while (digit > 0 && next[digit - 1] == '1') next[--digit] = '0';
            if (digit == 0)
                next.clear();
            else
                next[digit - 1] = '1';
        }
        if (next.empty()) {
            for (const unsigned other : lengths)
                if (other > length) return {};
            return codes;
        }
    }
    return codes.size() == 1 && codes.begin()->first == "0" ? codes : std::map<std::string, unsigned>{};
}

class Bits {
public:
    void put(unsigned value, unsigned width) {
        for (unsigned bit = 0; bit < width; ++bit, ++count_) {
            if (count_ % 8 == 0) bytes_.push_back(0);
            bytes_.back() = static_cast<std::uint8_t>(bytes_.back() | ((value >> bit) & 1U) << (count_ % 8));
        }
    }
    const std::vector<std::uint8_t>& bytes() const { return bytes_; }

private:
    std::vector<std::uint8_t> bytes_;
    std::size_t count_ = 0;
};

/// The codes of one stream, or nothing.
bool read_stream(const std::vector<std::uint8_t>& stream, const std::map<std::string, unsigned>& codes,
                 std::size_t count, unsigned width, Bits& inout_plain) {
    std::size_t bit = 0;
    for (std::size_t value = 0; value < count; ++value) {
        if (codes.size() == 1) {  // the only one there is takes no bits
            inout_plain.put(codes.begin()->second, width);
            continue;
        }
        std::string code;
        while (codes.count(code) == 0) {
            if (bit == 8 * stream.size() || code.size() == kLongest) return false;
            code += (stream[bit / 8] >> (bit % 8)) % 2 == 1 ? '1' : '0';
            ++bit;
        }
        inout_plain.put(codes.at(code), width);
    }
    if ((bit + 7) / 8 != stream.size()) return false;
    for (; bit < 8 * stream.size(); ++bit)
        if ((stream[bit / 8] >> (bit % 8)) % 2 == 1) return false;
    return true;
}

}  // namespace

std::optional<std::vector<std::uint8_t>> educational_plain(const std::vector<std::uint8_t>& payload, std::uint32_t n) {
    if (payload.size() < 3 || payload[1] % 32 < kPow2 || payload[2] / 32 % 2 == 0) return payload;
    const unsigned quantizer = payload[1] % 32;
    const bool is_rotated = payload[1] / 32 == 7;
    const unsigned form = is_rotated ? 0 : payload[1] / 32;
    const unsigned width = payload[2] % (quantizer == kInteger ? 32 : 8) + 1;
    const bool has_words = quantizer == kPow2 && form == 3 && width == 4;
    if (payload[0] != 5 || width < 2 || width > 8 || has_words) return std::nullopt;
    std::size_t at = quantizer == 11 ? 4 : 3;
    std::uint64_t k = n;
    if (form != 0) {
        k = 0;
        for (unsigned shift = 0;; shift += 7) {
            if (shift > 14 || at >= payload.size()) return std::nullopt;
            k += std::uint64_t{payload[at] % 128U} << shift;
            if (payload[at++] < 128) break;
        }
    }
    if (k == 0 || k > n) return std::nullopt;
    if (form != 0 || quantizer == kPow2) at += 1;
    if (quantizer == kPow2) at += 1;
    if (quantizer == 9 || quantizer == kInteger) at += 4;
    if (is_rotated) at += 8;
    const std::size_t header_end = at;

    const std::size_t streams = (k + 1023) / 1024;
    const std::size_t table = (std::size_t{1} << width) / 2;
    if (payload.size() < at + table + 2 * streams) return std::nullopt;
    std::vector<unsigned> lengths;
    for (std::size_t byte = 0; byte < table; ++byte, ++at) {
        lengths.push_back(payload[at] % 16);
        lengths.push_back(payload[at] / 16);
    }
    for (const unsigned length : lengths)
        if (length > kLongest) return std::nullopt;
    const auto codes = codes_of(lengths);
    if (codes.empty()) return std::nullopt;
    std::vector<std::size_t> sizes;
    std::size_t all = 0;
    for (std::size_t stream = 0; stream < streams; ++stream, at += 2) {
        sizes.push_back(payload[at] + 256U * payload[at + 1]);
        all += sizes.back();
    }
    if (at + all > payload.size() || table + 2 * streams + all >= (k * width + 7) / 8) return std::nullopt;

    std::vector<std::uint8_t> plain(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(header_end));
    plain[2] = static_cast<std::uint8_t>(plain[2] - 32);
    plain[0] = is_rotated || form >= 4 || quantizer == kInteger || quantizer == 11 ? 5
               : quantizer == 9                                                    ? 4
               : quantizer == 7                                                    ? 3
                                                                                   : 2;
    plain.insert(plain.end(), payload.begin() + static_cast<std::ptrdiff_t>(at),
                 payload.end() - static_cast<std::ptrdiff_t>(all));
    at = payload.size() - all;
    Bits values;
    for (std::size_t stream = 0; stream < streams; at += sizes[stream++]) {
        const auto begin = payload.begin() + static_cast<std::ptrdiff_t>(at);
        const std::vector<std::uint8_t> bytes(begin, begin + static_cast<std::ptrdiff_t>(sizes[stream]));
        if (!read_stream(bytes, codes, std::min<std::size_t>(1024, k - 1024 * stream), width, values))
            return std::nullopt;
    }
    plain.insert(plain.end(), values.bytes().begin(), values.bytes().end());
    return plain;
}

}  // namespace gradsieve::test
