// Writing half a unit of averages to a tensor's results: 16 bytes a lane for fp32, 8 for the half types, whole lines
// for the warp; element by element where a result's memory or the tensor's end does not allow that.
#pragma once

#include "codec/cuda/unit_sums.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace gradsieve::codec::cuda {

__device__ inline std::uint16_t bits_of(__half value) { return __half_as_ushort(value); }
__device__ inline std::uint16_t bits_of(__nv_bfloat16 value) { return __bfloat16_as_ushort(value); }

/// To nearest, ties to even.
template <typename Half>
__device__ Half rounded(float value);
template <>
__device__ inline __half rounded<__half>(float value) {
    return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 rounded<__nv_bfloat16>(float value) {
    return __float2bfloat16_rn(value);
}

template <typename Half>
__device__ void write_group(Half* result, std::uint32_t group, const float4& sum, std::uint32_t valid) {
    const std::uint16_t halves[4] = {bits_of(rounded<Half>(sum.x)), bits_of(rounded<Half>(sum.y)),
                                     bits_of(rounded<Half>(sum.z)), bits_of(rounded<Half>(sum.w))};
    auto* out = reinterpret_cast<std::uint16_t*>(result) + 4 * group;
    if (reinterpret_cast<std::uintptr_t>(result) % sizeof(uint2) == 0 && valid >= 4) {
        *reinterpret_cast<uint2*>(out) = {halves[0] | static_cast<std::uint32_t>(halves[1]) << 16U,
                                          halves[2] | static_cast<std::uint32_t>(halves[3]) << 16U};
        return;
    }
#pragma unroll
    for (std::uint32_t element = 0; element < 4; ++element)
        if (element < valid) out[element] = halves[element];
}

template <>
__device__ inline void write_group<float>(float* result, std::uint32_t group, const float4& sum, std::uint32_t valid) {
    if (reinterpret_cast<std::uintptr_t>(result) % sizeof(float4) == 0 && valid >= 4) {
        reinterpret_cast<float4*>(result)[group] = sum;
        return;
    }
    const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (std::uint32_t element = 0; element < 4; ++element)
        if (element < valid) result[4 * group + element] = values[element];
}

template <typename Number>
__device__ void write_half(void* result, std::uint64_t first_element, const Unit& unit, std::uint32_t half,
                           const Groups& sums) {
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
        const std::uint32_t group = group_of(half, part);
        write_group(static_cast<Number*>(result) + first_element, group, sums.of[part], valid_of(unit, group));
    }
}

/// Writes to every result but those that hold the same already (`is_unchanged`: untouched now and in the last step).
__device__ inline void write_results(const DecodeTables& tables, const DeviceChunk& chunk, const Unit& unit,
                                     std::uint32_t half, const Groups& sums, bool is_unchanged) {
    const std::uint64_t first_element = chunk.first_element + unit.place * kUnitElements;
    for (std::uint32_t place = 0; place < chunk.results; ++place) {
        const DeviceResult result = tables.results[chunk.first_result + place];
        if (is_unchanged && result.holds_last) continue;
        if (result.type == ElementType::kF32)
            write_half<float>(result.data, first_element, unit, half, sums);
        else if (result.type == ElementType::kF16)
            write_half<__half>(result.data, first_element, unit, half, sums);
        else
            write_half<__nv_bfloat16>(result.data, first_element, unit, half, sums);
    }
}

}  // namespace gradsieve::codec::cuda
