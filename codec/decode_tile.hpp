// A tile of a result while the decoder puts it together: where it lies, which of its elements were touched, and its way
// into memory past the caches. Owned by the decoder; one thread.
#pragma once

#include "base/id.hpp"
#include "codec/payload_kernels.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace gradsieve::codec {

static_assert(kTileElements == 64 * 64, "one word says which words of a tile's bitmap are in use");

/// Part of a chunk that stays in the first-level cache while all nodes' values are added and the digest is taken.
struct Tile {
    float* result = nullptr;  ///< of its elements: the tensor's memory, or a block that is copied there afterwards
    std::uint32_t first = 0;  ///< index in the chunk
    std::uint32_t count = 0;
};

/// Which elements of a tile were touched. Empty again after each tile.
struct TileBits {
    std::array<std::uint64_t, 64> words{};
    std::uint64_t used = 0;  ///< bit w: words[w] is not zero
    [[nodiscard]] std::uint32_t take(std::uint32_t first_index, std::uint32_t* ret_indices) noexcept {
        return payload_kernels().take_tile_indices(words.data(), std::exchange(used, 0), first_index, ret_indices);
    }
};

/// A finished tile on its way into memory past the caches, a part at a time: while stores wait for the memory, the next
/// tile is put together.
class OutgoingTile {
public:
    OutgoingTile() = default;
    OutgoingTile(const float* values, float* memory, std::uint32_t count)
        : values_(values), memory_(memory), left_(count) {}
    void write_part() { write(std::min(left_, kPartElements)); }
    void write_rest() { write(left_); }

private:
    static constexpr std::uint32_t kPartElements = 256;
    void write(std::uint32_t count) {
        if (count == 0) return;
        payload_kernels().stream_copy(memory_, values_, count);
        values_ += count;
        memory_ += count;
        left_ -= count;
    }
    const float* values_ = nullptr;
    float* memory_ = nullptr;
    std::uint32_t left_ = 0;
};

}  // namespace gradsieve::codec
