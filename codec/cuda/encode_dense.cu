// The dense pass of the pipelines that send every element (f32, bf16, sign, dither): reads samples and residual, writes
// payload and residual, each once; a warp for each tile. Where a chunk's payload lies is known beforehand, so none
// waits for another.
#include "codec/cuda/dither_levels.cuh"
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/tile_observe.cuh"
#include "codec/payload.hpp"

namespace gradsieve::codec::cuda {
namespace {

/// Vectors of each array that a lane loads before it looks at them.
constexpr unsigned kDenseAhead = 4;
/// Sign and dither keep a tile for each warp in shared memory until they know its scale.
constexpr unsigned kSignThreads = 64;

template <QuantizerKind kQuantizer>
constexpr bool kHoldsTile = kQuantizer == QuantizerKind::kSign || kQuantizer == QuantizerKind::kDither;
template <QuantizerKind kQuantizer>
constexpr unsigned kThreadsOf = kHoldsTile<kQuantizer> ? kSignThreads : kTileThreads;

template <QuantizerKind kQuantizer>
struct DenseShared {
    TileWork works[kThreadsOf<kQuantizer> / 32];
};
template <>
struct DenseShared<QuantizerKind::kSign> {
    alignas(16) float values[kSignThreads / 32][kTile];
    TileWork works[kSignThreads / 32];
};
template <>
struct DenseShared<QuantizerKind::kDither> : DenseShared<QuantizerKind::kSign> {};

/// Sections of a chunk's payload; the host placed it so that values and bits are aligned for vectors.
struct DensePayload {
    std::byte* header;
    std::byte* scales;  ///< sign, dither: fp32, one per tile
    std::byte* values;
};
__device__ inline DensePayload payload_of(const EncodeRound& round, const TileWork& work, QuantizerKind quantizer) {
    const ChunkPlan& chunk = round.chunks[work.chunk];
    DensePayload payload;
    payload.header = round.payload + chunk.payload_offset;
    payload.scales = payload.header + (has_value_byte(quantizer) ? 3 : 2);
    const bool has_scales = quantizer == QuantizerKind::kSign || quantizer == QuantizerKind::kDither;
    payload.values = payload.scales + (has_scales ? sizeof(float) * chunk.tiles : 0);
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

/// Leaves in `inout_r` what the code loses.
__device__ inline void store_code_bf16(const TileWork& work, std::byte* values, unsigned number, Vector& inout_r) {
    const VectorPlace place = place_of(work, number);
    auto* at = reinterpret_cast<std::uint16_t*>(values) + work.tile_in_chunk * kTile + place.local;
    std::uint32_t codes[4];
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
        codes[c] = element::bf16_bits(inout_r.at[c]);
        inout_r.at[c] = inout_r.at[c] - element::float_of(codes[c] << 16U);
    }
    if (place.valid == 4) {
        *reinterpret_cast<uint2*>(at) = make_uint2(codes[0] | codes[1] << 16U, codes[2] | codes[3] << 16U);
        return;
    }
#pragma unroll
    for (unsigned c = 0; c < 4; ++c)
        if (c < place.valid) at[c] = static_cast<std::uint16_t>(codes[c]);
}

/// The tile's mean magnitude, as tile_send.cuh sums a list; one warp.
__device__ inline float mean_magnitude(const float* values, std::uint32_t count) {
    double sum = 0;
    std::uint32_t at = threadIdx.x % 32;
#pragma unroll 4
    for (; at < count; at += 32) sum = sum + static_cast<double>(element::magnitude(values[at]));
#pragma unroll
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) sum = sum + __shfl_down_sync(~0U, sum, lanes);
    return static_cast<float>(__shfl_sync(~0U, sum, 0) / static_cast<double>(count));
}

/// Eight lanes make one word of signs. Leaves in `inout_r` what the code loses.
__device__ inline void store_signs(const TileWork& work, std::byte* bits, unsigned number, float scale,
                                   Vector& inout_r) {
    const VectorPlace place = place_of(work, number);
    std::uint32_t word = 0;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
        const bool is_negative = inout_r.at[c] < 0.0F && scale > 0.0F;
        word |= is_negative ? 1U << c : 0U;
        const float size = scale > 0.0F ? scale : 0.0F;
        inout_r.at[c] = inout_r.at[c] - (is_negative ? -size : size);
    }
    word <<= 4 * (threadIdx.x % 8);
#pragma unroll
    for (unsigned lanes = 4; lanes > 0; lanes /= 2) word |= __shfl_xor_sync(~0U, word, lanes);
    if (threadIdx.x % 8 != 0) return;
    std::byte* at = bits + (work.tile_in_chunk * kTile + place.local) / 8;
    const std::uint32_t left = work.elements > place.local ? (work.elements - place.local + 7) / 8 : 0U;
    if (left >= sizeof(word)) {
        *reinterpret_cast<std::uint32_t*>(at) = word;
        return;
    }
    for (unsigned byte = 0; byte < left; ++byte) at[byte] = static_cast<std::byte>(word >> (8 * byte));
}

/// Version, form, and that a tile's scale is its own.
__device__ inline void store_header(std::byte* header, QuantizerKind quantizer, std::uint32_t code_bits) {
    header[0] = static_cast<std::byte>(kPayloadVersion);
    header[1] = static_cast<std::byte>(form_byte(quantizer, IndexForm::kEvery));
    if (has_value_byte(quantizer)) header[2] = static_cast<std::byte>(value_byte(code_bits, false));
}

/// r of kDenseAhead vectors; false if one is not finite.
template <unsigned kSamples>
__device__ inline bool accumulate(const TileWork& work, unsigned first, Vector (&ret_r)[kDenseAhead]) {
    bool is_finite = true;
    Observed<kDenseAhead> seen;
    const bool has_residual = work.plan.residual_in != nullptr;
    if (has_residual) load_floats(work, work.plan.residual_in, first, ret_r);
    observe<VarianceSource::kNone, kSamples, kDenseAhead>(work, nullptr, first, seen, is_finite);
#pragma unroll
    for (unsigned j = 0; j < kDenseAhead; ++j) {
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) {
            const float mean = seen.mean[j].at[c];
            ret_r[j].at[c] = has_residual ? element::carried(work.plan.rescale, ret_r[j].at[c], mean) : mean;
            is_finite = is_finite && element::is_finite(ret_r[j].at[c]);
        }
    }
    return is_finite;
}

/// Codes the tile as it comes; false if something is not finite.
template <QuantizerKind kQuantizer, unsigned kSamples>
__device__ inline bool code_values(const TileWork& work, const DensePayload& payload) {
    bool is_finite = true;
#pragma unroll 1
    for (unsigned first = 0; first * 128 < work.elements; first += kDenseAhead) {
        Vector r[kDenseAhead];
        is_finite = accumulate<kSamples>(work, first, r) && is_finite;
#pragma unroll
        for (unsigned j = 0; j < kDenseAhead; ++j) {
            if constexpr (kQuantizer == QuantizerKind::kF32) store_code_f32(work, payload.values, first + j, r[j]);
            if constexpr (kQuantizer == QuantizerKind::kBf16) {
                store_code_bf16(work, payload.values, first + j, r[j]);
                store_vector(work, work.plan.residual_out, first + j, r[j]);
            }
        }
    }
    return is_finite;
}

/// Codes the tile once its mean magnitude is known; `values` is the warp's.
template <unsigned kSamples>
__device__ inline bool code_signs(const TileWork& work, const DensePayload& payload, float* values) {
    bool is_finite = true;
    __syncwarp();  // nobody looks at the tile before any more
#pragma unroll 1
    for (unsigned first = 0; first * 128 < work.elements; first += kDenseAhead) {
        Vector r[kDenseAhead];
        is_finite = accumulate<kSamples>(work, first, r) && is_finite;
#pragma unroll
        for (unsigned j = 0; j < kDenseAhead; ++j) {
            const float* at = r[j].at;
            *reinterpret_cast<float4*>(values + place_of(work, first + j).local) =
                make_float4(at[0], at[1], at[2], at[3]);
        }
    }
    __syncwarp();
    const float scale = mean_magnitude(values, work.elements);
    if (threadIdx.x % 32 == 0) reinterpret_cast<float*>(payload.scales)[work.tile_in_chunk] = scale;
#pragma unroll 2
    for (unsigned number = 0; number * 128 < work.elements; ++number) {
        const float4 four = *reinterpret_cast<const float4*>(values + place_of(work, number).local);
        Vector r{{four.x, four.y, four.z, four.w}};
        store_signs(work, payload.values, number, scale, r);
        store_vector(work, work.plan.residual_out, number, r);
    }
    return is_finite;
}

/// Codes the tile once its unit is known; `values` is the warp's.
template <unsigned kSamples>
__device__ inline bool code_levels(const TileWork& work, const DensePayload& payload, float* values) {
    bool is_finite = true;
    std::uint32_t largest = 0;
    __syncwarp();  // nobody looks at the tile before any more
#pragma unroll 1
    for (unsigned first = 0; first * 128 < work.elements; first += kDenseAhead) {
        Vector r[kDenseAhead];
        is_finite = accumulate<kSamples>(work, first, r) && is_finite;
#pragma unroll
        for (unsigned j = 0; j < kDenseAhead; ++j) {
            const float* at = r[j].at;
#pragma unroll
            for (unsigned c = 0; c < 4; ++c) largest = max(largest, element::magnitude_bits(at[c]));
            *reinterpret_cast<float4*>(values + place_of(work, first + j).local) =
                make_float4(at[0], at[1], at[2], at[3]);
        }
    }
    __syncwarp();
    DitherTile tile;
    tile.count = work.elements;
    tile.largest = element::float_of(__reduce_max_sync(~0U, largest));
    if (needs_squares(work.plan))
        tile.square_sum = sum_squares(work.elements, [values](std::uint32_t at) { return values[at]; });
    const DitherUnit unit = dither_unit(dither_rule_of(work.plan, false), tile);
    if (threadIdx.x % 32 == 0) reinterpret_cast<float*>(payload.scales)[work.tile_in_chunk] = unit.scale;
#pragma unroll 1
    for (unsigned first = 0; first * 128 < work.elements; first += kDenseAhead) {
        // Random numbers are long chains of products: several at a time.
        PhiloxBlock random[kDenseAhead];
#pragma unroll
        for (unsigned j = 0; j < kDenseAhead; ++j) random[j] = random_block_of(work, first + j);
#pragma unroll
        for (unsigned j = 0; j < kDenseAhead; ++j) {
            const float4 four = *reinterpret_cast<const float4*>(values + place_of(work, first + j).local);
            Vector r{{four.x, four.y, four.z, four.w}};
            store_levels(work, payload.values, first + j, unit, random[j], r);
            if (work.plan.residual_out != nullptr) store_vector(work, work.plan.residual_out, first + j, r);
        }
    }
    return is_finite;
}

template <QuantizerKind kQuantizer, unsigned kSamples>
__global__ void __launch_bounds__(kThreadsOf<kQuantizer>, kHoldsTile<kQuantizer> ? 6
                                                          : kSamples == 1        ? 4
                                                                                 : 3)
    code_tiles(const __grid_constant__ EncodeRound round) {
    __shared__ DenseShared<kQuantizer> shared;
    TileWork& work = shared.works[threadIdx.x / 32];
    for_each_tile(round, work, [&] {
        const DensePayload payload = payload_of(round, work, kQuantizer);
        if (work.tile_in_chunk == 0 && threadIdx.x % 32 == 0)
            store_header(payload.header, kQuantizer, work.plan.code_bits);
        bool is_finite = true;
        if constexpr (kQuantizer == QuantizerKind::kSign)
            is_finite = code_signs<kSamples>(work, payload, shared.values[threadIdx.x / 32]);
        else if constexpr (kQuantizer == QuantizerKind::kDither)
            is_finite = code_levels<kSamples>(work, payload, shared.values[threadIdx.x / 32]);
        else
            is_finite = code_values<kQuantizer, kSamples>(work, payload);
        if (!is_finite) report_trouble(work, round.tensor_states[round.chunks[work.chunk].tensor]);
    });
}

template <QuantizerKind kQuantizer>
KernelHandle pick(unsigned samples) {
    return samples == 1 ? &code_tiles<kQuantizer, 1> : &code_tiles<kQuantizer, 0>;
}

}  // namespace

KernelHandle find_dense_kernel(QuantizerKind quantizer, unsigned samples) noexcept {
    switch (quantizer) {
        case QuantizerKind::kBf16: return pick<QuantizerKind::kBf16>(samples);
        case QuantizerKind::kSign: return pick<QuantizerKind::kSign>(samples);
        case QuantizerKind::kDither: return pick<QuantizerKind::kDither>(samples);
        case QuantizerKind::kF32:
        case QuantizerKind::kPow2: break;  // pow2 sends lists
    }
    return pick<QuantizerKind::kF32>(samples);
}

unsigned dense_threads(QuantizerKind quantizer) noexcept {
    return quantizer == QuantizerKind::kSign || quantizer == QuantizerKind::kDither ? kSignThreads : kTileThreads;
}

}  // namespace gradsieve::codec::cuda
