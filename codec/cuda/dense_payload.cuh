// A dense payload's sections, its header, and the codes of four elements of the quantizers that need no scale but their
// own or a tile's. Device code only.
#pragma once

#include "codec/cuda/tile_load.cuh"
#include "codec/payload.hpp"
#include "codec/stages/minmax.hpp"
#include "codec/stages/natural.hpp"

namespace gradsieve::codec::cuda {

/// Sections of a chunk's payload; the host placed it so that values and bits begin at a line.
struct DensePayload {
    std::byte* header;
    std::byte* scales;  ///< sign, dither: fp32, one per tile; two means: two; minmax: two per bucket
    std::byte* values;
};
template <bool kRotated>
__device__ inline DensePayload payload_of(const TileWork& work, QuantizerKind quantizer) {
    DensePayload payload;
    payload.header = work.payload;
    const bool has_chunk_scale = may_have_chunk_scale(quantizer) && work.plan.sign_scale > 0.0F;
    payload.scales = payload.header + (has_value_byte(quantizer) ? 3 : 2) + (has_bucket_byte(quantizer) ? 1 : 0) +
                     (has_base(quantizer) || has_chunk_scale ? 4 : 0) + (kRotated ? sizeof(PhiloxKey) : 0);
    const bool has_scales = has_tile_scales(quantizer) && !has_chunk_scale;
    if (has_bucket_byte(quantizer)) {
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

/// What a code leaves of a number: what it loses, or, for who rotates it back, what it decodes to.
template <bool kDecodes>
__device__ inline float left_of(float value, float decoded) {
    return kDecodes ? decoded : value - decoded;
}

/// Codes of 16 bits. Leaves in `inout_r` left_of, as the others.
template <bool kIsF16, bool kDecodes>
__device__ inline void store_halves(const TileWork& work, std::byte* values, unsigned number, Vector& inout_r) {
    const VectorPlace place = place_of(work, number);
    auto* at = reinterpret_cast<std::uint16_t*>(values) + work.tile_in_chunk * kTile + place.local;
    std::uint32_t codes[4];
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
        codes[c] = kIsF16 ? element::f16_bits(inout_r.at[c]) : element::bf16_bits(inout_r.at[c]);
        const std::uint32_t decoded = kIsF16 ? element::f16_value_bits(codes[c]) : codes[c] << 16U;
        inout_r.at[c] = left_of<kDecodes>(inout_r.at[c], element::float_of(decoded));
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
/// Eight lanes make one word of signs; a tile whose scales are 0 has none.
template <bool kDecodes>
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
        inout_r.at[c] = left_of<kDecodes>(inout_r.at[c], has_scale ? decoded : 0.0F);
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

/// Four codes are a word.
template <bool kDecodes>
__device__ inline void store_natural(const TileWork& work, std::byte* codes, unsigned number, Vector& inout_r) {
    const VectorPlace place = place_of(work, number);
    const float factor = natural_factor(work.plan.is_scaled != 0);
    const PhiloxBlock random = random_block(work.plan.random, first_block_of(work) + own_block(number));
    std::uint32_t word = 0;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
        const std::uint32_t code = natural_code(inout_r.at[c], factor, random.words[c]);
        word |= code << (8 * c);
        inout_r.at[c] = left_of<kDecodes>(inout_r.at[c], element::float_of(natural_decoded_bits(code)));
    }
    std::byte* at = codes + work.tile_in_chunk * kTile + place.local;
    if (place.valid == 4) {
        *reinterpret_cast<std::uint32_t*>(at) = word;
        return;
    }
    for (unsigned c = 0; c < place.valid; ++c) at[c] = static_cast<std::byte>(word >> (8 * c));
}

/// At any address.
__device__ inline void store_word(std::byte* at, std::uint32_t word) {
    for (unsigned byte = 0; byte < sizeof(word); ++byte) at[byte] = static_cast<std::byte>(word >> (8 * byte));
}

/// The header of a chunk's payload, by one thread. `rotation`: the chunk's key, if it is rotated.
template <QuantizerKind kQuantizer>
__device__ inline void store_header(const TensorPlan& plan, std::byte* header, const PhiloxKey* rotation = nullptr) {
    const bool has_chunk_scale = may_have_chunk_scale(kQuantizer) && plan.sign_scale > 0.0F;
    header[0] = static_cast<std::byte>(rotation != nullptr ? kNewestPayloadVersion
                                                           : payload_version(kQuantizer, IndexForm::kEvery));
    header[1] = static_cast<std::byte>(form_byte(kQuantizer, IndexForm::kEvery) |
                                       (rotation != nullptr ? kRotatedForm << 5U : 0U));
    std::byte* at = header + 2;
    if constexpr (has_value_byte(kQuantizer))
        *at++ = static_cast<std::byte>(value_byte(plan.code_bits, has_chunk_scale));
    if constexpr (has_bucket_byte(kQuantizer)) *at++ = static_cast<std::byte>(bucket_code(plan.bucket_log2));
    if (has_base(kQuantizer) || has_chunk_scale) {
        store_word(at, element::bits_of(has_chunk_scale ? plan.sign_scale : plan.base));
        at += sizeof(float);
    }
    if (rotation == nullptr) return;
    store_word(at, rotation->low);
    store_word(at + sizeof(rotation->low), rotation->high);
}

}  // namespace gradsieve::codec::cuda
