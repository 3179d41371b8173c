// What one warp knows of the unit in hand, 1,024 elements of a chunk: sums in shared memory of its own, and a tally of
// digest and touched elements. No barrier but the warp's own, so warps hide each other's waits.
#pragma once

#include "codec/cuda/decode_tables.hpp"

#include <cuda_runtime_api.h>

namespace gradsieve::codec::cuda {

inline constexpr std::uint32_t kLanes = 32;
inline constexpr std::uint32_t kAllLanes = ~0U;
/// A unit is handled in halves of this many groups of four elements for each lane: group = part * 32 + lane.
inline constexpr std::uint32_t kGroupsPerHalf = 4;
inline constexpr std::uint32_t kHalves = kUnitElements / (4 * kLanes * kGroupsPerHalf);
static_assert(kUnitElements == 32 * kLanes, "a lane has one word of the touched bits");

/// One for each warp. Both are zero between units.
struct UnitShared {
    float4 sums[kUnitElements / 4];
    std::uint32_t touched[kLanes];  ///< bit i of word w: element 32 w + i

    [[nodiscard]] __device__ float* elements() { return reinterpret_cast<float*>(sums); }
};

/// The unit in hand.
struct Unit {
    std::uint32_t place = 0;     ///< in the chunk
    std::uint32_t elements = 0;  ///< 1 .. kUnitElements
};

/// What this lane has seen of one tensor.
struct Tally {
    unsigned long long digest = 0;
    std::uint32_t touched = 0;
    bool is_bad = false;
};

/// Half a unit in registers.
struct Groups {
    float4 of[kGroupsPerHalf];
};

__device__ inline std::uint32_t lane_of_thread() { return threadIdx.x % kLanes; }
/// In the unit.
__device__ inline std::uint32_t group_of(std::uint32_t half, std::uint32_t part) {
    return (half * kGroupsPerHalf + part) * kLanes + lane_of_thread();
}
/// How many of a group's elements exist; more than four where all do.
__device__ inline std::uint32_t valid_of(const Unit& unit, std::uint32_t group) {
    return unit.elements > 4 * group ? unit.elements - 4 * group : 0;
}

// Must equal mix64 in base/id.hpp (gradsieve-gpu-check compares digests).
__device__ inline std::uint64_t mix(std::uint64_t value) {
    value ^= value >> 30U;
    value *= 0xBF58476D1CE4E5B9ULL;
    value ^= value >> 27U;
    value *= 0x94D049BB133111EBULL;
    return value ^ (value >> 31U);
}

/// What an element of a chunk with that key adds to the digest; `index` counts in the chunk.
__device__ inline std::uint64_t element_mix(std::uint64_t key, std::uint32_t index, float result) {
    return mix(key + ((static_cast<std::uint64_t>(index) << 32U) | __float_as_uint(result)));
}

__device__ inline void tally_groups(const DeviceChunk& chunk, const Unit& unit, std::uint32_t half, const Groups& sums,
                                    Tally& inout_tally) {
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
        const std::uint32_t group = group_of(half, part);
        const std::uint32_t valid = valid_of(unit, group);
        const std::uint32_t index = unit.place * kUnitElements + 4 * group;
        const float values[4] = {sums.of[part].x, sums.of[part].y, sums.of[part].z, sums.of[part].w};
#pragma unroll
        for (std::uint32_t element = 0; element < 4; ++element)
            if (element < valid) inout_tally.digest += element_mix(chunk.digest_key, index + element, values[element]);
    }
}

}  // namespace gradsieve::codec::cuda
