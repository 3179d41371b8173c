// What kernels in front of a dense pass know of a tile, and the mean of its samples there. Device code only.
#pragma once

#include "codec/cuda/early_start.cuh"
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/tile_load.cuh"

namespace gradsieve::codec::cuda {

/// A tile of a pass.
struct FrontTile {
    const TensorPlan* plan;
    const FrontPlan* front;
    const SampleView* samples;
    TensorState* state;
    std::uint32_t first;  ///< element in the tensor
    std::uint32_t elements;
    bool is_wide;  ///< whole, and every array allows vectors
    float clip;    ///< what samples' weights are multiplied by
};

/// A whole warp.
__device__ inline FrontTile front_tile(const EncodeRound& round, std::uint32_t tile) {
    const std::uint32_t number = find_owner(round.first_tiles, round.chunk_count, tile);
    const ChunkPlan& chunk = round.chunks[number];
    const TensorPlan& plan = round.tensors[chunk.tensor];
    FrontTile work;
    work.plan = &plan;
    work.front = round.fronts + chunk.tensor;
    work.samples = chunk.samples + work.front->first_sample;
    work.state = round.tensor_states + chunk.tensor;
    work.first =
        chunk.chunk_index * static_cast<std::uint32_t>(kChunkElements) + (tile - round.first_tiles[number]) * kTile;
    work.elements = min(kTile, plan.elements - work.first);
    work.is_wide = plan.is_aligned != 0 && work.elements == kTile;
    work.clip = work.front->most_norm > 0.0 ? work.state->clip : 1.0F;
    return work;
}

__device__ inline Vector load_four_of(const SampleView& sample, std::uint32_t element) {
    if (sample.type == static_cast<std::uint32_t>(ElementType::kF32))
        return load_four(static_cast<const float*>(sample.data) + element);
    const auto* halves = static_cast<const std::uint16_t*>(sample.data) + element;
    const uint2 bits = load_once(reinterpret_cast<const uint2*>(halves));
    return {{float_of_half(bits.x & 0xFFFFU, sample.type), float_of_half(bits.x >> 16U, sample.type),
             float_of_half(bits.y & 0xFFFFU, sample.type), float_of_half(bits.y >> 16U, sample.type)}};
}

/// The mean of four consecutive elements' samples, whose weights are multiplied by `clip`.
__device__ inline Vector mean_of_four(const FrontTile& work, std::uint32_t element, float clip) {
    Vector mean{};
    for (std::uint32_t sample = 0; sample < work.front->sample_count; ++sample) {
        const SampleView view = work.samples[sample];
        const Vector value = load_four_of(view, element);
        const float weight = view.weight * clip;
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const float part = weight * value.at[c];
            mean.at[c] = sample == 0 ? part : mean.at[c] + part;
        }
    }
    return mean;
}
__device__ inline float mean_of_one(const FrontTile& work, std::uint32_t element, float clip) {
    float mean = 0;
    for (std::uint32_t sample = 0; sample < work.front->sample_count; ++sample) {
        const SampleView view = work.samples[sample];
        const float part = view.weight * clip * load_sample_at(view, element);
        mean = sample == 0 ? part : mean + part;
    }
    return mean;
}

}  // namespace gradsieve::codec::cuda
