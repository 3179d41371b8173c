// The tiles of one list and what each tile says once for all its elements: an exponent or a scale. At most 256, on the
// stack. Shared by the chunk coder and the payload reader; plain values.
#pragma once

#include "codec/payload.hpp"

#include <array>
#include <span>

namespace gradsieve::codec {

struct TileTable {
    std::uint32_t count = 0;
    std::array<std::uint32_t, kMaximumTiles> ends;      ///< position in the list behind the tile's last element
    std::array<std::uint8_t, kMaximumTiles> exponents;  ///< pow2: biased exponent of the tile
};

/// Finds the tiles of ascending `indices`; fills `count` and `ends` only.
void find_tiles(std::span<const std::uint32_t> indices, TileTable& ret_tiles) noexcept;

struct ExponentPlan {
    std::uint8_t base = 0;                  ///< the largest
    unsigned parameter = kNoTileExponents;  ///< of the fewest bits, the lower one on a tie
    std::uint64_t bits = 0;
};
/// How to code the exponents below `base`, each at most `base`.
[[nodiscard]] ExponentPlan plan_exponents(const TileTable& tiles, std::uint8_t base) noexcept;

/// Writes the exponent section and returns the byte behind it; `out` needs eight writable bytes beyond.
[[nodiscard]] std::byte* build_exponents(const TileTable& tiles, const ExponentPlan& plan, std::byte* out);
/// Reads it. `inout_tiles` has its `count`. Errors: kCorrupt.
[[nodiscard]] Status parse_exponents(const PayloadHeader& header, ByteView body, TileTable& inout_tiles,
                                     std::size_t& ret_used_bytes);

}  // namespace gradsieve::codec
