// What the kernels that average leave beside the averages: which tiles they touched, and each tensor's report; and
// which chunk a unit lies in. Device code only.
#pragma once

#include "codec/cuda/unit_sums.cuh"

namespace gradsieve::codec::cuda {

/// Whether this step or the last touched the unit's tile; notes that this one did.
__device__ inline bool note_touched(const DecodeTables& tables, const DeviceChunk& chunk, const DeviceTensor& tensor,
                                    const Unit& unit, bool is_touched) {
    const auto tile = static_cast<std::uint32_t>(chunk.first_element / kTileElements) + unit.place / kUnitsPerTile;
    const std::uint32_t word = tensor.first_word + tile / 32;
    const std::uint32_t bit = 1U << (tile % 32);
    if (is_touched && lane_of_thread() == 0) atomicOr(tables.touched + word, bit);
    return is_touched || !tensor.knows_last || (tables.last_touched[word] & bit) != 0;
}

/// Adds what the warp saw of a tensor to its report, and starts anew.
__device__ inline void flush(TensorReport& report, Tally& inout_tally) {
    unsigned long long digest = inout_tally.digest;
    const unsigned long long touched = __reduce_add_sync(kAllLanes, inout_tally.touched);
    for (std::uint32_t distance = kLanes / 2; distance > 0; distance /= 2)
        digest += __shfl_down_sync(kAllLanes, digest, distance);
    const bool is_bad = __any_sync(kAllLanes, inout_tally.is_bad);
    if (lane_of_thread() == 0 && touched != 0) {
        atomicAdd(&report.digest, digest);
        atomicAdd(&report.touched_elements, touched);
        if (is_bad) report.has_bad_value = 1;
    }
    inout_tally = {};
}

/// The chunk of the round that holds a unit.
__device__ inline std::uint32_t find_chunk(const DecodeTables& tables, const DecodeRound& round, std::uint32_t unit) {
    std::uint32_t first = round.first_chunk;
    std::uint32_t end = first + round.chunks;
    while (end - first > 1) {
        const std::uint32_t middle = first + (end - first) / 2;
        (tables.chunks[middle].first_unit <= unit ? first : end) = middle;
    }
    return first;
}

}  // namespace gradsieve::codec::cuda
