// Which elements a random selector sends, as a function of a key that the payload carries: the arithmetic once for the
// CPU's forms and the GPU's, for senders and receivers. Must hold no state, no memory access and nothing of one form.
// Any thread.
//
// A subset (randk) of k of n elements: systematic sampling gives each chunk its share of k, and each tile of a chunk
// its share of the chunk's, and a tile's share is a uniform subset of the tile (Floyd; Bentley, Floyd 1987, A Sample of
// Brilliance). With an offset u, drawn uniformly from 0 .. n - 1, the part [a, b) of the whole gets
// floor((u + k b) / n) - floor((u + k a) / n): k altogether, and each part's expectation is k (b - a) / n. So every
// element is sent with probability exactly k / n, which is all that the operator's constants depend on.
//
// Independent elements (bernoulli, biased_random): an element is sent if its random word is at most its tile's limit L,
// that is, with probability (L + 1) / 2^32.
#pragma once

#include "codec/philox.hpp"

namespace gradsieve::codec {

/// What the words of a key are for, in the counter's second word.
inline constexpr std::uint32_t kDrawPurpose = 2U << 24U;    ///< a tile's subset
inline constexpr std::uint32_t kOffsetPurpose = 3U << 24U;  ///< of systematic sampling in a chunk
inline constexpr std::uint32_t kKeepPurpose = 4U << 24U;    ///< elements one by one
inline constexpr std::uint32_t kSharePurpose = 5U << 24U;   ///< of systematic sampling of chunks in a tensor
/// Counters between two tiles of a chunk; a subset takes at most half a tile of words, four of each counter.
inline constexpr std::uint32_t kTileCounters = static_cast<std::uint32_t>(kTileElements) / 8;
/// Words of 32 bits that say which elements of a tile are sent.
inline constexpr std::uint32_t kTileMaskWords = static_cast<std::uint32_t>(kTileElements) / 32;

/// How a chunk's positions follow from a key. What a payload says of them.
struct SelectionRule {
    PhiloxKey key;
    std::uint32_t is_subset = 0;    ///< else each element by itself
    std::uint32_t count = 0;        ///< subset: elements that are sent
    std::uint32_t first_limit = 0;  ///< else: of the chunk's first tile
    std::uint32_t last_limit = 0;   ///< and of its last one
};

/// A whole number below `bound`, each as likely; false: the word is to be replaced by another (Lemire 2019, Fast Random
/// Integer Generation in an Interval).
GRADSIEVE_HOST_DEVICE inline bool draw_below(std::uint32_t word, std::uint32_t bound, std::uint32_t& ret_number) {
    const std::uint64_t product = std::uint64_t{word} * bound;
    const auto low = static_cast<std::uint32_t>(product);
    ret_number = static_cast<std::uint32_t>(product >> 32U);
    return low >= bound || low >= (0U - bound) % bound;
}

/// The words of counter `number`; `attempt` counts those that were replaced.
GRADSIEVE_HOST_DEVICE inline PhiloxBlock selection_words(PhiloxKey key, std::uint32_t purpose, std::uint32_t number,
                                                         std::uint32_t attempt) {
    return philox({{number, purpose, attempt, 0}}, key);
}

/// A number below `bound` out of word `place` of those.
GRADSIEVE_HOST_DEVICE inline std::uint32_t selection_number(PhiloxKey key, std::uint32_t purpose, std::uint32_t number,
                                                            std::uint32_t place, std::uint32_t bound,
                                                            std::uint32_t word) {
    std::uint32_t drawn = 0;
    for (std::uint32_t attempt = 1; !draw_below(word, bound, drawn); ++attempt)
        word = selection_words(key, purpose, number, attempt).words[place];
    return drawn;
}

/// The offset of systematic sampling of a chunk's tiles.
GRADSIEVE_HOST_DEVICE inline std::uint32_t chunk_offset(const SelectionRule& rule, std::uint32_t elements) {
    return selection_number(rule.key, kOffsetPurpose, 0, 0, elements,
                            selection_words(rule.key, kOffsetPurpose, 0, 0).words[0]);
}

/// Elements of [first, end) that are sent, of a chunk of `elements`; `offset` as above.
GRADSIEVE_HOST_DEVICE inline std::uint32_t tile_share(std::uint32_t count, std::uint32_t offset, std::uint32_t elements,
                                                      std::uint32_t first, std::uint32_t end) {
    return static_cast<std::uint32_t>((offset + std::uint64_t{count} * end) / elements -
                                      (offset + std::uint64_t{count} * first) / elements);
}

/// A subset of more than half a tile is what another subset leaves: how many are drawn.
GRADSIEVE_HOST_DEVICE inline std::uint32_t drawn_share(std::uint32_t share, std::uint32_t elements) {
    return share > elements / 2 ? elements - share : share;
}

/// The limit of a tile, on the straight line between the chunk's first and last one, rounded towards the first.
GRADSIEVE_HOST_DEVICE inline std::uint32_t tile_limit(const SelectionRule& rule, std::uint32_t tile,
                                                      std::uint32_t tiles) {
    if (tiles < 2) return rule.first_limit;
    const bool falls = rule.last_limit < rule.first_limit;
    const std::uint32_t span = falls ? rule.first_limit - rule.last_limit : rule.last_limit - rule.first_limit;
    const auto step = static_cast<std::uint32_t>(std::uint64_t{span} * tile / (tiles - 1));
    return falls ? rule.first_limit - step : rule.first_limit + step;
}

/// What of an unbiased selection is coded: the value times the reciprocal of its probability, kept finite.
GRADSIEVE_HOST_DEVICE inline float raised_value(float value, float factor) {
    const float raised = element::magnitude(value) * factor;
    return element::float_of(element::bits_of(element::saturated(raised)) |
                             (element::bits_of(value) & ~element::kMagnitudeMask));
}

}  // namespace gradsieve::codec
