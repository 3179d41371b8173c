// Loads and stores of a thread's elements: vectors of four where the tile is whole and aligned, one by one elsewhere;
// out of shared memory where the tile was fetched. Samples are loaded once each (a client may change them meanwhile)
// and converted exactly. Device code only.
#pragma once

#include "codec/cuda/gpu_encoder.hpp"
#include "codec/cuda/ptx.cuh"
#include "codec/cuda/tile_work.cuh"
#include "codec/element.hpp"

#include <cuda_fp16.h>

namespace gradsieve::codec::cuda {

/// Four consecutive elements.
struct Vector {
    float at[4];
};

/// Where a thread's vector lies.
struct VectorPlace {
    std::uint32_t local;  ///< first element, in the tile
    std::uint32_t valid;  ///< how many of the four exist
};

/// Vector `number` of this lane: a warp looks at 128 consecutive elements at a time.
__device__ inline VectorPlace place_of(const TileWork& work, unsigned number) {
    VectorPlace place;
    place.local = number * 128 + (threadIdx.x % 32) * 4;
    place.valid = work.elements > place.local ? min(4U, work.elements - place.local) : 0U;
    return place;
}

// Read once and never again: they leave the caches first.
__device__ inline Vector load_four(const float* address) {
    const float4 value = load_once(reinterpret_cast<const float4*>(address));
    return {{value.x, value.y, value.z, value.w}};
}

__device__ inline float float_of_half(std::uint32_t bits, std::uint32_t type) {
    if (type == static_cast<std::uint32_t>(ElementType::kBf16)) return element::float_of(bits << 16U);
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

/// kCount vectors from vector `first_number` on of an fp32 array; what does not exist is +0.
template <unsigned kCount>
__device__ inline void load_floats(const TileWork& work, const float* array, unsigned first_number,
                                   Vector (&ret_vectors)[kCount]) {
    const float* tile = array + work.first;
    if (work.is_wide != 0) {
#pragma unroll
        for (unsigned j = 0; j < kCount; ++j) ret_vectors[j] = load_four(tile + place_of(work, first_number + j).local);
        return;
    }
#pragma unroll
    for (unsigned j = 0; j < kCount; ++j) {
        const VectorPlace place = place_of(work, first_number + j);
#pragma unroll
        for (unsigned c = 0; c < 4; ++c)
            ret_vectors[j].at[c] = c < place.valid ? load_once(tile + place.local + c) : 0.0F;
    }
}

template <unsigned kCount>
__device__ inline void load_halves(const TileWork& work, const SampleView& sample, unsigned first_number,
                                   Vector (&ret_vectors)[kCount]) {
    const auto* tile = static_cast<const std::uint16_t*>(sample.data) + work.first;
#pragma unroll
    for (unsigned j = 0; j < kCount; ++j) {
        const VectorPlace place = place_of(work, first_number + j);
        if (work.is_wide != 0) {
            const uint2 raw = load_once(reinterpret_cast<const uint2*>(tile + place.local));
            ret_vectors[j].at[0] = float_of_half(raw.x & 0xFFFFU, sample.type);
            ret_vectors[j].at[1] = float_of_half(raw.x >> 16U, sample.type);
            ret_vectors[j].at[2] = float_of_half(raw.y & 0xFFFFU, sample.type);
            ret_vectors[j].at[3] = float_of_half(raw.y >> 16U, sample.type);
            continue;
        }
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const bool exists = c < place.valid;
            ret_vectors[j].at[c] = exists ? float_of_half(load_once(tile + place.local + c), sample.type) : 0.0F;
        }
    }
}

/// The same of a sample of any type.
template <unsigned kCount>
__device__ inline void load_sample(const TileWork& work, const SampleView& sample, unsigned first_number,
                                   Vector (&ret_vectors)[kCount]) {
    if (sample.type == static_cast<std::uint32_t>(ElementType::kF32))
        load_floats(work, static_cast<const float*>(sample.data), first_number, ret_vectors);
    else
        load_halves(work, sample, first_number, ret_vectors);
}

__device__ inline SampleView sample_view(const TileWork& work, unsigned sample) {
    return sample < kNearSamples ? work.samples[sample] : work.all_samples[sample];
}

/// Vector `number` of a tile's array that lies in shared memory.
__device__ inline Vector staged_floats(const std::byte* array, unsigned number) {
    const float4 value = reinterpret_cast<const float4*>(array)[number * 32 + threadIdx.x % 32];
    return {{value.x, value.y, value.z, value.w}};
}
/// The same of a sample of any type.
__device__ inline Vector staged_sample(const std::byte* array, unsigned number, std::uint32_t type) {
    if (type == static_cast<std::uint32_t>(ElementType::kF32)) return staged_floats(array, number);
    const uint2 raw = reinterpret_cast<const uint2*>(array)[number * 32 + threadIdx.x % 32];
    return {{float_of_half(raw.x & 0xFFFFU, type), float_of_half(raw.x >> 16U, type),
             float_of_half(raw.y & 0xFFFFU, type), float_of_half(raw.y >> 16U, type)}};
}
/// Bytes of a whole tile of a sample.
__device__ inline std::uint32_t sample_bytes(const SampleView& sample) {
    return kTile * (sample.type == static_cast<std::uint32_t>(ElementType::kF32) ? 4U : 2U);
}
__device__ inline const void* sample_from(const SampleView& sample, std::uint32_t element) {
    return static_cast<const std::byte*>(sample.data) + sample_bytes(sample) / kTile * element;
}

/// The word of 32 consecutive elements' bits, of which eight lanes hold four each. A whole warp.
__device__ inline std::uint32_t join_masks(std::uint32_t mask) {
    std::uint32_t word = mask << (4 * (threadIdx.x % 8));
#pragma unroll
    for (unsigned lanes = 4; lanes > 0; lanes /= 2) word |= __shfl_xor_sync(~0U, word, lanes);
    return word;
}

/// Writes vectors from `first_number` on of a tile that is wide. `tile`: where its first element goes.
template <unsigned kCount>
__device__ inline void store_whole(float* tile, unsigned first_number, const Vector (&vectors)[kCount]) {
    float4* at = reinterpret_cast<float4*>(tile) + first_number * 32 + threadIdx.x % 32;
#pragma unroll
    for (unsigned j = 0; j < kCount; ++j)
        at[j * 32] = make_float4(vectors[j].at[0], vectors[j].at[1], vectors[j].at[2], vectors[j].at[3]);
}
/// The same of any tile: those elements that exist, one by one.
template <unsigned kCount>
__device__ inline void store_some(const TileWork& work, float* tile, unsigned first_number,
                                  const Vector (&vectors)[kCount]) {
#pragma unroll
    for (unsigned j = 0; j < kCount; ++j) {
        const VectorPlace place = place_of(work, first_number + j);
#pragma unroll
        for (unsigned c = 0; c < 4; ++c)
            if (c < place.valid) tile[place.local + c] = vectors[j].at[c];
    }
}
/// Vector `number` of a tile of `array`.
__device__ inline void store_vector(const TileWork& work, float* array, unsigned number, const Vector& vector) {
    const VectorPlace place = place_of(work, number);
    float* address = array + work.first + place.local;
    if (work.is_wide != 0) {
        *reinterpret_cast<float4*>(address) = make_float4(vector.at[0], vector.at[1], vector.at[2], vector.at[3]);
        return;
    }
#pragma unroll
    for (unsigned c = 0; c < 4; ++c)
        if (c < place.valid) address[c] = vector.at[c];
}
/// Vectors from `first_number` on.
template <unsigned kCount>
__device__ inline void store_vectors(const TileWork& work, float* array, unsigned first_number,
                                     const Vector (&vectors)[kCount]) {
    float* tile = array + work.first;
    if (work.is_wide != 0)
        store_whole(tile, first_number, vectors);
    else
        store_some(work, tile, first_number, vectors);
}

__device__ inline float load_sample_at(const SampleView& sample, std::uint32_t element) {
    if (sample.type == static_cast<std::uint32_t>(ElementType::kF32))
        return load_once(static_cast<const float*>(sample.data) + element);
    return float_of_half(load_once(static_cast<const std::uint16_t*>(sample.data) + element), sample.type);
}

}  // namespace gradsieve::codec::cuda
