// The rotation of a tile in the dense pass: 512 threads have two vectors of it each. The stages of the lowest eight
// bits of an element's number are a warp's own; for the other four the tile goes through shared memory and back.
// Device code only.
#pragma once

#include "codec/cuda/dense_stage.cuh"
#include "codec/cuda/rotate_stages.cuh"
#include "codec/cuda/tile_load.cuh"

namespace gradsieve::codec::cuda {

/// What warps tell each other of a tile that is rotated.
struct RotateShared {
    alignas(16) float values[kTile + 16];  ///< at rotated_place
    /// Magnitude bits, before the rotation; in turn: one tile's are read while the next one's are written.
    std::uint32_t largest[2][kPassWarps];
    double magnitudes;  ///< drive: their sum, where its order shows
};

/// Where element i of the tile lies: its halves in different banks.
__device__ inline std::uint32_t rotated_place(std::uint32_t i) { return i + i / (kTile / 2) * 16; }

__device__ inline void put_own(const Vector (&vectors)[kThreadVectors], float* ret_values) {
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        const float* at = vectors[j].at;
        *reinterpret_cast<float4*>(ret_values + rotated_place((own_vector(j) * 32 + threadIdx.x % 32) * 4)) =
            make_float4(at[0], at[1], at[2], at[3]);
    }
}
__device__ inline void take_own(const float* values, Vector (&ret_vectors)[kThreadVectors]) {
#pragma unroll
    for (unsigned j = 0; j < kThreadVectors; ++j) {
        const float4 four =
            *reinterpret_cast<const float4*>(values + rotated_place((own_vector(j) * 32 + threadIdx.x % 32) * 4));
        ret_vectors[j] = {{four.x, four.y, four.z, four.w}};
    }
}

/// The stages of warps' pairs. Values are this thread's own before and afterwards.
__device__ inline void add_across_warps(float* inout_values) {
    constexpr unsigned kAcross = 8;  // elements that are 256 apart; lanes have those that are 2048 apart
    const unsigned lane = threadIdx.x % 32;
    float* own = inout_values + rotated_place(lane / 16 * (kTile / 2)) + threadIdx.x / 32 * 16 + lane % 16;
    meet_lookers();
    float across[kAcross];
#pragma unroll
    for (unsigned i = 0; i < kAcross; ++i) across[i] = own[i * 256];
    add_halves<1>(across);
    add_halves<2>(across);
    add_halves<4>(across);
    add_lanes<16>(across);
#pragma unroll
    for (unsigned i = 0; i < kAcross; ++i) own[i * 256] = across[i];
    meet_lookers();
}

/// A tensor's last tile. Not inline: whole tiles want the registers.
static __device__ __noinline__ void add_stages_of_part(float* inout_values, std::uint32_t elements) {
    meet_lookers();
    add_in_part(
        inout_values, elements, kPassThreads, [](std::uint32_t i) { return rotated_place(i); }, [] { meet_lookers(); });
}

/// Rotates the tile of which this thread has two vectors, or back. All threads that look; shared.values are this
/// thread's own then, in its places, and what lay there before nobody else's. `signs`: draw_signs.
template <bool kBack>
__device__ inline void rotate_vectors(std::uint32_t elements, std::uint32_t signs, RotateShared& shared,
                                      Vector (&inout_vectors)[kThreadVectors]) {
    float numbers[4 * kThreadVectors];
    const bool is_whole = elements == kTile;
#pragma unroll
    for (unsigned i = 0; i < 4 * kThreadVectors; ++i) {
        const std::uint32_t element = (own_vector(i / 4) * 32 + threadIdx.x % 32) * 4 + i % 4;
        const float scale = is_whole ? kTileRotationScale : rotation_scale(rotation_order(element, elements));
        numbers[i] = inout_vectors[i / 4].at[i % 4] * scale;
    }
    if constexpr (!kBack) flip_signs(signs, numbers);
    if (is_whole) add_in_warp(numbers);
#pragma unroll
    for (unsigned i = 0; i < 4 * kThreadVectors; ++i) inout_vectors[i / 4].at[i % 4] = numbers[i];
    put_own(inout_vectors, shared.values);
    if (is_whole)
        add_across_warps(shared.values);
    else
        add_stages_of_part(shared.values, elements);
    take_own(shared.values, inout_vectors);
    if constexpr (kBack) {
#pragma unroll
        for (unsigned i = 0; i < 4 * kThreadVectors; ++i) numbers[i] = inout_vectors[i / 4].at[i % 4];
        flip_signs(signs, numbers);
#pragma unroll
        for (unsigned i = 0; i < 4 * kThreadVectors; ++i) inout_vectors[i / 4].at[i % 4] = numbers[i] + 0.0F;
    }
}

}  // namespace gradsieve::codec::cuda
