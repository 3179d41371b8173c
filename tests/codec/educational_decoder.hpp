// A second decoder of payloads, slow and plain, written from docs/payload-format.md alone: it shares no line with the
// codec, and the suites compare the two. Returns nothing for bytes that the page tells a receiver to refuse.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace gradsieve::test {

/// Index in the chunk and decoded value of every element that the payload holds, ascending.
using EducationalElements = std::vector<std::pair<std::uint32_t, float>>;

/// The payload in plain codes that one with coded values stands for; any other as it is.
std::optional<std::vector<std::uint8_t>> educational_plain(const std::vector<std::uint8_t>& payload, std::uint32_t n);

/// Philox4x32-10 of a counter and a key.
std::array<std::uint32_t, 4> educational_philox(std::array<std::uint32_t, 4> counter, std::uint32_t key_low,
                                                std::uint32_t key_high);
/// Elements of a chunk's rotation become those of the chunk.
void educational_rotate_back(std::uint32_t key_low, std::uint32_t key_high, EducationalElements& inout_elements);

std::optional<EducationalElements> educational_decode(const std::vector<std::uint8_t>& payload, std::uint32_t n);

}  // namespace gradsieve::test
