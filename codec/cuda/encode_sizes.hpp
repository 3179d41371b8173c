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

/// Every element is sent, in a payload of known size.
inline bool is_dense_plan(const TensorPlan& plan) {
    return static_cast<SelectorKind>(plan.selector) == SelectorKind::kAll &&
           static_cast<QuantizerKind>(plan.quantizer) != QuantizerKind::kPow2 &&
           static_cast<QuantizerKind>(plan.quantizer) != QuantizerKind::kInteger;
}
/// Every element is sent, in codes as wide as its chunk wants.
inline bool is_integer_plan(const TensorPlan& plan) {
    return static_cast<SelectorKind>(plan.selector) == SelectorKind::kAll &&
           static_cast<QuantizerKind>(plan.quantizer) == QuantizerKind::kInteger;
}

/// Where a keyed selector keeps no r, the pass writes means as `all | f32` does, behind a header of so many bytes.
inline constexpr std::uint32_t kMeanHeaderBytes = 2;
inline bool needs_means(const TensorPlan& plan) { return plan.raise_factor > 0.0F; }

/// Most bits of one value in a payload, but for the paper's word.
inline ByteCount value_bits(const TensorPlan& plan) {
    switch (static_cast<QuantizerKind>(plan.quantizer)) {
        case QuantizerKind::kSign:
        case QuantizerKind::kTwoMean:
        case QuantizerKind::kVote: return 1;
        case QuantizerKind::kPow2:
        case QuantizerKind::kNatural:
        case QuantizerKind::kDither:
        case QuantizerKind::kExponentialDither:
        case QuantizerKind::kMinMax: return plan.code_bits;
        case QuantizerKind::kInteger: return kMostIntegerBits;
        case QuantizerKind::kF32:
        case QuantizerKind::kF16:
        case QuantizerKind::kBf16: break;
    }
    return ByteCount{plan.value_bytes} * 8;
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
    if (quantizer == QuantizerKind::kMinMax)
        return 4 + key +
               ByteCount{buckets_of(static_cast<std::uint32_t>(elements), plan.bucket_log2)} * sizeof(MinMaxRange);
    const std::uint32_t tiles = tiles_in(elements);
    const bool has_chunk_scale = quantizer == QuantizerKind::kSign && plan.sign_scale > 0.0F;
    const bool has_scales = (quantizer == QuantizerKind::kSign && !has_chunk_scale) ||
                            quantizer == QuantizerKind::kTwoMean || is_dithered(quantizer);
    return (has_value_byte(quantizer) ? 3 : 2) + (has_base(quantizer) || has_chunk_scale ? 4 : 0) + key +
           (has_scales ? ByteCount{tiles} * scales_per_tile(quantizer) * sizeof(float) : 0);
}
inline ByteCount dense_value_bytes(const TensorPlan& plan, ElementCount elements) {
    return bytes_of_bits(elements * value_bits(plan));
}

}  // namespace gradsieve::codec::cuda
