// Cutting a tile's list where it waits: entries that stay move down over those that go. Device code only; each function
// is a whole warp's.
#pragma once

#include <cstdint>

namespace gradsieve::codec::cuda {

/// How many of a list's entries lie below an index. A whole warp.
__device__ inline std::uint32_t entries_below(const std::uint16_t* indices, std::uint32_t from, std::uint32_t count,
                                              std::uint32_t limit) {
    for (std::uint32_t begin = from; begin < count; begin += 32) {
        const std::uint32_t entry = begin + threadIdx.x % 32;
        const std::uint32_t below = __ballot_sync(~0U, entry < count && indices[entry] < limit);
        if (below != ~0U) return begin + __popc(below);
    }
    return count;
}

struct WaitingEntry {
    float value;  ///< +0 behind the end
    std::uint16_t index;
};
__device__ inline WaitingEntry waiting_entry(const std::uint16_t* indices, const float* values, std::uint32_t entry,
                                             std::uint32_t end) {
    return entry < end ? WaitingEntry{values[entry], indices[entry]} : WaitingEntry{0.0F, 0};
}

/// Writes the lanes' entries whose bits are set in `keepers` from `kept` on, which is not behind what any lane has
/// read. Returns where the next one goes.
__device__ inline std::uint32_t move_down(const WaitingEntry& entry, std::uint32_t keepers, std::uint32_t kept,
                                          std::uint16_t* indices, float* values) {
    const unsigned lane = threadIdx.x % 32;
    __syncwarp();  // everyone has read
    if (((keepers >> lane) & 1U) != 0) {
        const std::uint32_t at = kept + __popc(keepers & ((1U << lane) - 1U));
        indices[at] = entry.index;
        values[at] = entry.value;
    }
    __syncwarp();
    return kept + __popc(keepers);
}

}  // namespace gradsieve::codec::cuda
