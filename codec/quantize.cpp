#include "codec/quantize.hpp"

#include <algorithm>

namespace gradsieve::codec {

std::uint32_t tile_run_end(std::span<const std::uint32_t> indices, std::uint32_t first) noexcept {
    const std::uint32_t tile_end = (indices[first] | static_cast<std::uint32_t>(kTileElements - 1)) + 1;
    constexpr std::size_t kStride = 16;
    std::size_t end = first;
    while (end + kStride <= indices.size() && indices[end + kStride - 1] < tile_end) end += kStride;
    // Counted rather than searched for: the length of a run cannot be guessed.
    const std::size_t last = std::min(end + kStride, indices.size());
    std::uint32_t inside = 0;
    for (std::size_t i = end; i < last; ++i) inside += indices[i] < tile_end ? 1U : 0U;
    return static_cast<std::uint32_t>(end) + inside;
}

}  // namespace gradsieve::codec
