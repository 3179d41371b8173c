// Sizes that follow from a tensor's plan: tiles, and the bytes of payloads. Plain arithmetic; any thread.
#pragma once

#include "codec/cuda/encode_plan.hpp"
#include "codec/cuda/vector_bytes.hpp"
#include "codec/payload.hpp"
#include "codec/pipeline.hpp"
#include "codec/stages/minmax.hpp"

namespace gradsieve::codec::cuda {

/// Header, exponents or scales, and what sections lose by ending at a byte.
inline constexpr ByteCount kListOverheadBytes = 2048;

inline std::uint32_t tiles_in(ElementCount elements) { return static_cast<std::uint32_t>(tiles_of(elements)); }

inline bool sends_every(const TensorPlan& plan) { return static_cast<Selection>(plan.selection) == Selection::kEvery; }
inline DenseRoute dense_route(const TensorPlan& plan) {
    return facts_of(static_cast<QuantizerKind>(plan.quantizer)).route;
}
/// Every element is sent, in a payload of known size.
inline bool is_dense_plan(const TensorPlan& plan) {
    return sends_every(plan) && dense_route(plan) != DenseRoute::kList && dense_route(plan) != DenseRoute::kChunk;
}
/// Every element is sent, in codes as wide as its chunk wants.
inline bool is_integer_plan(const TensorPlan& plan) {
    return sends_every(plan) && dense_route(plan) == DenseRoute::kChunk;
}

/// Where a keyed selector keeps no r, the pass writes means as `all | f32` does, behind a header of so many bytes.
inline constexpr std::uint32_t kMeanHeaderBytes = 2;
inline bool needs_means(const TensorPlan& plan) { return plan.raise_factor > 0.0F; }

/// Most bits of one value in a payload, but for the paper's word.
inline ByteCount value_bits(const TensorPlan& plan) {
    const auto quantizer = static_cast<QuantizerKind>(plan.quantizer);
    if (!has_value_byte(quantizer)) return ByteCount{plan.value_bytes} * 8;
    return has_step(quantizer) ? kMostIntegerBits : plan.code_bits;
}

/// Bytes that no list of this chunk exceeds: Rice codes need at most a bit per element, as a bitmap does; Elias-Fano
/// two, where all are sent.
inline ByteCount list_bound(const TensorPlan& plan, ElementCount elements) {
    const auto coder = static_cast<IndexCoderKind>(plan.index_coder);
    ByteCount indices = bytes_of_bits(elements);
    if (coder == IndexCoderKind::kRaw32) indices = 4 * elements;
    if (coder == IndexCoderKind::kEliasFano) indices = bytes_of_bits(2 * elements);
    return aligned(indices + bytes_of_bits(elements * value_bits(plan)) + kListOverheadBytes);
}

/// Bytes of a dense payload before its values or codes.
inline ByteCount dense_header_bytes(const TensorPlan& plan, ElementCount elements) {
    const auto quantizer = static_cast<QuantizerKind>(plan.quantizer);
    const ByteCount key = static_cast<Rotation>(plan.rotation) != Rotation::kNone ? sizeof(PhiloxKey) : 0;
    if (has_bucket_byte(quantizer))
        return 4 + key +
               ByteCount{buckets_of(static_cast<std::uint32_t>(elements), plan.bucket_log2)} * sizeof(MinMaxRange);
    const bool has_chunk_scale = plan.sign_scale > 0.0F;
    const bool has_scales = has_tile_scales(quantizer) && !has_chunk_scale;
    return (has_value_byte(quantizer) ? 3 : 2) + (has_base(quantizer) || has_chunk_scale ? 4 : 0) + key +
           (has_scales ? ByteCount{tiles_in(elements)} * scales_per_tile(quantizer) * sizeof(float) : 0);
}
inline ByteCount dense_value_bytes(const TensorPlan& plan, ElementCount elements) {
    return bytes_of_bits(elements * value_bits(plan));
}

}  // namespace gradsieve::codec::cuda
