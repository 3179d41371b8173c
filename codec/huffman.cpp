#include "codec/huffman.hpp"

#include <algorithm>

namespace gradsieve::codec {
namespace {

constexpr std::uint32_t kWhole = 1U << kLongestHuffmanCode;

/// Lengths without a limit; returns the longest.
unsigned unlimited_lengths(std::span<const std::uint32_t> counts, HuffmanLengths& ret_lengths) noexcept {
    std::array<std::uint16_t, kMostSymbols> leaves{};
    std::size_t leaf_count = 0;
    for (std::size_t symbol = 0; symbol < counts.size(); ++symbol)
        if (counts[symbol] != 0) leaves[leaf_count++] = static_cast<std::uint16_t>(symbol);
    std::sort(leaves.begin(), leaves.begin() + leaf_count, [&](std::uint16_t first, std::uint16_t second) {
        return counts[first] != counts[second] ? counts[first] < counts[second] : first < second;
    });
    ret_lengths.fill(0);
    if (leaf_count == 1) {
        ret_lengths[leaves[0]] = 1;
        return 1;
    }
    // Nodes: the leaves in their order, then the joined ones by age, which ascend too.
    std::array<std::uint64_t, 2 * kMostSymbols> weights{};
    std::array<std::uint16_t, 2 * kMostSymbols> parents{};
    for (std::size_t leaf = 0; leaf < leaf_count; ++leaf) weights[leaf] = counts[leaves[leaf]];
    const std::size_t node_count = 2 * leaf_count - 1;
    std::size_t next_leaf = 0;
    std::size_t next_joined = leaf_count;
    for (std::size_t node = leaf_count; node < node_count; ++node)
        for (unsigned child = 0; child < 2; ++child) {
            const bool is_leaf =
                next_leaf < leaf_count && (next_joined == node || weights[next_leaf] <= weights[next_joined]);
            const std::size_t taken = is_leaf ? next_leaf++ : next_joined++;
            weights[node] += weights[taken];
            parents[taken] = static_cast<std::uint16_t>(node);
        }
    std::array<std::uint8_t, 2 * kMostSymbols> depths{};
    unsigned longest = 0;
    for (std::size_t node = node_count - 1; node-- > 0;) {
        depths[node] = static_cast<std::uint8_t>(depths[parents[node]] + 1);
        if (node >= leaf_count) continue;
        ret_lengths[leaves[node]] = depths[node];
        longest = std::max<unsigned>(longest, depths[node]);
    }
    return longest;
}

bool is_alone(std::span<const std::uint8_t> lengths) noexcept {
    return std::ranges::count_if(lengths, [](std::uint8_t length) { return length != 0; }) == 1;
}

}  // namespace

HuffmanLengths huffman_lengths(std::span<const std::uint32_t> counts) noexcept {
    std::array<std::uint32_t, kMostSymbols> halved{};
    std::ranges::copy(counts, halved.begin());
    HuffmanLengths lengths;
    while (unlimited_lengths(std::span(halved).first(counts.size()), lengths) > kLongestHuffmanCode)
        for (std::uint32_t& count : halved) count = count / 2 + count % 2;
    return lengths;
}

bool are_huffman_lengths(std::span<const std::uint8_t> lengths) noexcept {
    std::uint32_t sum = 0;
    for (const std::uint8_t length : lengths) {
        if (length > kLongestHuffmanCode) return false;
        if (length != 0) sum += kWhole >> length;
    }
    return sum == kWhole || (sum == kWhole / 2 && is_alone(lengths));
}

std::array<HuffmanCode, kMostSymbols> huffman_codes(std::span<const std::uint8_t> lengths) noexcept {
    std::array<HuffmanCode, kMostSymbols> codes{};
    if (is_alone(lengths)) return codes;
    std::uint32_t next = 0;
    for (unsigned length = 1; length <= kLongestHuffmanCode; ++length, next <<= 1U)
        for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
            if (lengths[symbol] != length) continue;
            std::uint32_t reversed = 0;
            for (unsigned bit = 0; bit < length; ++bit) reversed |= ((next >> bit) & 1U) << (length - 1 - bit);
            codes[symbol] = {static_cast<std::uint16_t>(reversed), static_cast<std::uint8_t>(length)};
            ++next;
        }
    return codes;
}

HuffmanTable::HuffmanTable(std::span<const std::uint8_t> lengths) noexcept {
    const auto codes = huffman_codes(lengths);
    for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
        if (lengths[symbol] == 0) continue;
        const Entry entry{static_cast<std::uint8_t>(symbol), codes[symbol].length};
        for (std::size_t at = codes[symbol].bits; at < entries_.size(); at += std::size_t{1} << entry.length)
            entries_[at] = entry;
    }
}

}  // namespace gradsieve::codec
