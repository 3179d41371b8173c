// Adding averages to what all of them made before (codec/difference.hpp): half a unit's sums become fl(base + sum),
// which is kept as well. A sum that is no finite number is told, by its element. Device code only.
#pragma once

#include "codec/cuda/list_values.cuh"
#include "codec/cuda/unit_results.cuh"

namespace gradsieve::codec::cuda {

__device__ inline float4 read_group(const float* array, std::uint32_t group, std::uint32_t valid) {
    if (reinterpret_cast<std::uintptr_t>(array) % sizeof(float4) == 0 && valid >= 4)
        return reinterpret_cast<const float4*>(array)[group];
    float values[4] = {};
#pragma unroll
    for (std::uint32_t element = 0; element < 4; ++element)
        if (element < valid) values[element] = array[4 * group + element];
    return {values[0], values[1], values[2], values[3]};
}

__device__ inline void add_base(const DecodeTables& tables, const DeviceChunk& chunk, const Unit& unit,
                                std::uint32_t half, Groups& inout_sums) {
    const DeviceTensor& tensor = tables.tensors[chunk.tensor];
    const std::uint64_t first_element = chunk.first_element + unit.place * kUnitElements;
    const float* const in = tensor.base_in + first_element;
    float* const out = tensor.base_out + first_element;
    std::uint32_t first_bad = kUnitElements;
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
        const std::uint32_t group = group_of(half, part);
        const std::uint32_t valid = valid_of(unit, group);
        const float4 base = read_group(in, group, valid);
        float4& sum = inout_sums.of[part];
        sum = make_float4(base.x + sum.x, base.y + sum.y, base.z + sum.z, base.w + sum.w);
        const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (std::uint32_t element = 0; element < 4; ++element)
            if (element < valid && (__float_as_uint(values[element]) & kExponentBits) == kExponentBits)
                first_bad = min(first_bad, 4 * group + element);
        write_group(out, group, sum, valid);
    }
    if (first_bad < kUnitElements) atomicMax(&tables.reports[chunk.tensor].bad_sum, ~(first_element + first_bad));
}

}  // namespace gradsieve::codec::cuda
