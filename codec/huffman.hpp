// Canonical Huffman codes of bytes, none longer than 12 bits. Huffman 1952, A Method for the Construction of
// Minimum-Redundancy Codes; canonical order of Schwartz, Kallick 1964. Any thread; plain values.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace gradsieve::codec {

inline constexpr unsigned kLongestHuffmanCode = 12;
inline constexpr std::size_t kMostSymbols = 256;

/// Bits of each symbol's code, 0 to 12; 0: does not occur. A symbol that is the only one has 1, and its code no bits.
using HuffmanLengths = std::array<std::uint8_t, kMostSymbols>;

/// What Huffman's algorithm gives for the counts, at least one of which is not 0, each below 2^32: always joins the two
/// smallest, of equal ones leaves before others, leaves by number, others by age. While a code is too long, each count
/// that is not 0 is halved, rounded up, and the algorithm runs again.
[[nodiscard]] HuffmanLengths huffman_lengths(std::span<const std::uint32_t> counts) noexcept;

/// Whether these are lengths of a code that can be read: each at most 12, and the sum of 2^-length exactly 1; or one of
/// length 1 alone.
[[nodiscard]] bool are_huffman_lengths(std::span<const std::uint8_t> lengths) noexcept;

/// As it is written: the first bit lowest.
struct HuffmanCode {
    std::uint16_t bits = 0;
    std::uint8_t length = 0;
};
/// Codes ascend with length, then with the symbol. `lengths` are_huffman_lengths.
[[nodiscard]] std::array<HuffmanCode, kMostSymbols> huffman_codes(std::span<const std::uint8_t> lengths) noexcept;

/// Symbol and length by the next 12 bits of a stream.
class HuffmanTable {
public:
    /// `lengths` are_huffman_lengths.
    explicit HuffmanTable(std::span<const std::uint8_t> lengths) noexcept;
    struct Entry {
        std::uint8_t symbol;
        std::uint8_t length;
    };
    [[nodiscard]] const Entry& at(std::uint64_t next_bits) const noexcept {
        return entries_[next_bits & ((std::uint64_t{1} << kLongestHuffmanCode) - 1)];
    }

private:
    std::array<Entry, std::size_t{1} << kLongestHuffmanCode> entries_;
};

}  // namespace gradsieve::codec
