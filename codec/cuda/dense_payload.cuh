// A dense payload's sections, its header, and the codes of four elements of the quantizers that need no scale but their
// own or a tile's. Device code only.
#pragma once

#include "codec/cuda/tile_load.cuh"
#include "codec/minmax.hpp"
#include "codec/natural.hpp"
#include "codec/payload.hpp"

namespace gradsieve::codec::cuda {

/// Sections of a chunk's payload; the host placed it so that values and bits begin at a line.
struct DensePayload {
    std::byte* header;
    std::byte* scales;  ///< sign, dither: fp32, one per tile; two means: two; minmax: two per bucket
    std::byte* values;
};
__device__ inline DensePayload payload_of(const TileWork& work, QuantizerKind quantizer) {
    DensePayload payload;
    payload.header = work.payload;
    payload.scales = payload.header + (has_value_byte(quantizer) ? 3 : 2) + (has_bucket_byte(quantizer) ? 1 : 0) +
                     (has_base(quantizer) ? 4 : 0);
    const bool has_scales =
        quantizer == QuantizerKind::kSign || quantizer == QuantizerKind::kTwoMean || is_dithered(quantizer);
    if (quantizer == QuantizerKind::kMinMax) {
        const auto chunk_elements = min(static_cast<std::uint32_t>(kChunkElements),
                                        work.plan.elements - (work.first - work.tile_in_chunk * kTile));
        const std::uint32_t buckets = buckets_of(chunk_elements, work.plan.bucket_log2);
        payload.values = payload.scales + sizeof(MinMaxRange) * buckets;
        return payload;
    }
    const std::uint32_t tile_bytes = has_scales ? sizeof(float) * scales_per_tile(quantizer) : 0U;
    payload.values = payload.scales + tile_bytes * work.chunk_tiles;
    return payload;
}

__device__ inline void store_code_f32(const TileWork& work, std::byte* values, unsigned number, const Vector& r) {
    const VectorPlace place = place_of(work, number);
    float* at = reinterpret_cast<float*>(values) + work.tile_in_chunk * kTile + place.local;
    if (place.valid == 4) {
        *reinterpret_cast<float4*>(at) = make_float4(r.at[0], r.at[1], r.at[2], r.at[3]);
        return;
    }
    for (unsigned c = 0; c < place.valid; ++c) at[c] = r.at[c];
}

/// Codes of 16 bits. Leaves in `inout_r` what they lose.
template <QuantizerKind kQuantizer>
__device__ inline void store_halves(const TileWork& work, std::byte* values, unsigned number, Vector& inout_r) {
    const VectorPlace place = place_of(work, number);
    auto* at = reinterpret_cast<std::uint16_t*>(values) + work.tile_in_chunk * kTile + place.local;
    std::uint32_t codes[4];
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
        constexpr bool kIsF16 = kQuantizer == QuantizerKind::kF16;
        codes[c] = kIsF16 ? element::f16_bits(inout_r.at[c]) : element::bf16_bits(inout_r.at[c]);
        const std::uint32_t decoded = kIsF16 ? element::f16_value_bits(codes[c]) : codes[c] << 16U;
        inout_r.at[c] = inout_r.at[c] - element::float_of(decoded);
    }
    if (place.valid == 4) {
        *reinterpret_cast<uint2*>(at) = make_uint2(codes[0] | codes[1] << 16U, codes[2] | codes[3] << 16U);
        return;
    }
#pragma unroll
    for (unsigned c = 0; c < 4; ++c)
        if (c < place.valid) at[c] = static_cast<std::uint16_t>(codes[c]);
}

/// What signs of a tile decode to: those of what is not negative, and, but for the sign, of what is.
struct SignScales {
    float positive;
    float negative;
};
/// Eight lanes make one word of signs; a tile whose scales are 0 has none. Leaves in `inout_r` what the code loses.
__device__ inline void store_signs(const TileWork& work, std::byte* bits, unsigned number, SignScales scales,
                                   Vector& inout_r) {
    const VectorPlace place = place_of(work, number);
    const bool has_scale = scales.positive > 0.0F || scales.negative > 0.0F;
    std::uint32_t mask = 0;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
        const bool is_negative = inout_r.at[c] < 0.0F && has_scale;
        mask |= is_negative ? 1U << c : 0U;
        const float decoded = is_negative ? -scales.negative : scales.positive;
        inout_r.at[c] = inout_r.at[c] - (has_scale ? decoded : 0.0F);
    }
    const std::uint32_t word = join_masks(mask);
    if (threadIdx.x % 8 != 0) return;
    std::byte* at = bits + (work.tile_in_chunk * kTile + place.local) / 8;
    const std::uint32_t left = work.elements > place.local ? (work.elements - place.local + 7) / 8 : 0U;
    if (left >= sizeof(word)) {
        *reinterpret_cast<std::uint32_t*>(at) = word;
        return;
    }
    for (unsigned byte = 0; byte < left; ++byte) at[byte] = static_cast<std::byte>(word >> (8 * byte));
}

/// Four codes are a word. Leaves in `inout_r` what they lose.
__device__ inline void store_natural(const TileWork& work, std::byte* codes, unsigned number, Vector& inout_r) {
    const VectorPlace place = place_of(work, number);
    const float factor = natural_factor(work.plan.is_scaled != 0);
    const PhiloxBlock random = random_block(work.plan.random, first_block_of(work) + own_block(number));
    std::uint32_t word = 0;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
        const std::uint32_t code = natural_code(inout_r.at[c], factor, random.words[c]);
        word |= code << (8 * c);
        inout_r.at[c] = inout_r.at[c] - element::float_of(natural_decoded_bits(code));
    }
    std::byte* at = codes + work.tile_in_chunk * kTile + place.local;
    if (place.valid == 4) {
        *reinterpret_cast<std::uint32_t*>(at) = word;
        return;
    }
    for (unsigned c = 0; c < place.valid; ++c) at[c] = static_cast<std::byte>(word >> (8 * c));
}

/// Version, form, and that a tile's scale is its own.
__device__ inline void store_header(std::byte* header, QuantizerKind quantizer, std::uint32_t code_bits) {
    header[0] = static_cast<std::byte>(payload_version(quantizer, IndexForm::kEvery));
    header[1] = static_cast<std::byte>(form_byte(quantizer, IndexForm::kEvery));
    if (has_value_byte(quantizer)) header[2] = static_cast<std::byte>(value_byte(code_bits, false));
}

/// minmax: behind that.
__device__ inline void store_bucket(std::byte* header, const TensorPlan& plan) {
    header[3] = static_cast<std::byte>(bucket_code(plan.bucket_log2));
}

__device__ inline void store_base(std::byte* at, float base) {
    for (unsigned byte = 0; byte < sizeof(base); ++byte)
        at[byte] = static_cast<std::byte>(element::bits_of(base) >> (8 * byte));
}

}  // namespace gradsieve::codec::cuda
