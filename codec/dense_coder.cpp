#include "codec/dense_coder.hpp"

#include "codec/dither_coder.hpp"
#include "codec/minmax_coder.hpp"
#include "codec/natural_coder.hpp"
#include "codec/rotation.hpp"
#include "codec/stages/sign.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace gradsieve::codec {

DensePayload::DensePayload(const Quantizer& quantizer, ElementCount chunk_elements, const PayloadPool& pool,
                           const PhiloxKey* rotation)
    : header_(header_of(quantizer, IndexForm::kEvery, chunk_elements)) {
    header_.is_rotated = rotation != nullptr;
    if (rotation != nullptr) header_.rotation_key = *rotation;
    PayloadContent content;
    content.chunk_elements = chunk_elements;
    content.tiles = tiles_of(chunk_elements);
    const PayloadSizes sizes = payload_sizes(header_, content);
    scales_at_ = sizes.header;
    values_at_ = sizes.header + sizes.scales;
    bytes_ = pool.take(sizes.total(), values_at_);
    static_cast<void>(build_header(header_, bytes_.data()));
}

float DensePayload::write_mean(std::size_t tile, double magnitude_sum, std::size_t elements) noexcept {
    if (header_.has_chunk_scale) return header_.chunk_scale;
    const auto scale = static_cast<float>(magnitude_sum / static_cast<double>(elements));
    write_scale(tile, scale);
    return scale;
}

void DensePayload::write_scale(std::size_t tile, float scale) noexcept {
    std::memcpy(bytes_.data() + scales_at_ + tile * sizeof(scale), &scale, sizeof(scale));
}

void DensePayload::write_scales(std::size_t tile, const TwoMeans& means) noexcept {
    std::memcpy(bytes_.data() + scales_at_ + tile * sizeof(means.of), means.of, sizeof(means.of));
}

DenseTileCoder::DenseTileCoder(const Quantizer& quantizer, const RandomStream& random, const PayloadKernels& kernels)
    : quantizer_(quantizer), random_(random), kernels_(kernels) {
    if (quantizer.kind == QuantizerKind::kDither) dither_ = dither_rule(quantizer, false);
    if (quantizer.kind == QuantizerKind::kExponentialDither) exponential_ = exponential_rule(quantizer, false);
}

void DenseTileCoder::code(std::span<const float> values, ElementCount first_element, std::size_t tile,
                          DensePayload& inout_payload, float* ret_decoded) const {
    const auto count = static_cast<std::uint32_t>(values.size());
    std::byte* codes = inout_payload.tile_codes(tile);
    switch (quantizer_.kind) {
        case QuantizerKind::kF32:
            std::memcpy(codes, values.data(), values.size_bytes());
            if (ret_decoded != values.data()) std::copy(values.begin(), values.end(), ret_decoded);
            return;
        case QuantizerKind::kF16:
            return kernels_.round_f16(values.data(), count, reinterpret_cast<std::uint16_t*>(codes), ret_decoded);
        case QuantizerKind::kBf16:
            return kernels_.round_bf16(values.data(), count, reinterpret_cast<std::uint16_t*>(codes), ret_decoded);
        case QuantizerKind::kSign:
        case QuantizerKind::kTwoMean:
        case QuantizerKind::kVote: return code_signs(values, tile, inout_payload, ret_decoded);
        case QuantizerKind::kNatural:
            return kernels_.natural_dense(natural_step(quantizer_, random_, first_element), values.data(), count, codes,
                                          ret_decoded);
        case QuantizerKind::kDither: return code_levels(values, first_element, tile, inout_payload, ret_decoded);
        case QuantizerKind::kExponentialDither:
            return inout_payload.write_scale(tile, code_exponential_tile(exponential_, values, random_, first_element,
                                                                         kernels_, codes, ret_decoded, nullptr));
        case QuantizerKind::kMinMax:
            return code_minmax_tile(quantizer_, values, random_, first_element, kernels_,
                                    inout_payload.tile_ranges(tile), codes, ret_decoded, nullptr);
        case QuantizerKind::kInteger:      // by the chunk: integer_coder.hpp
        case QuantizerKind::kPow2: break;  // always a list
    }
}

/// Of what is not negative, and of what is.
TwoMeans DenseTileCoder::sign_scales(std::span<const float> values, std::size_t tile,
                                     DensePayload& inout_payload) const {
    const auto count = static_cast<std::uint32_t>(values.size());
    if (quantizer_.kind == QuantizerKind::kVote) return {{1.0F, 1.0F}};
    if (quantizer_.kind == QuantizerKind::kTwoMean) {
        const TwoMeans scales = two_means_of(values, kernels_);
        inout_payload.write_scales(tile, scales);
        return scales;
    }
    const double magnitudes = kernels_.magnitude_sum(values.data(), count);
    float scale = 0;
    if (!has_drive_scale(quantizer_)) {
        scale = inout_payload.write_mean(tile, magnitudes, count);
    } else {
        if (magnitudes > 0) scale = static_cast<float>(kernels_.square_sum(values.data(), count) / magnitudes);
        inout_payload.write_scale(tile, scale);
    }
    return {{scale, scale}};
}

void DenseTileCoder::code_signs(std::span<const float> values, std::size_t tile, DensePayload& inout_payload,
                                float* ret_decoded) const {
    const TwoMeans scales = sign_scales(values, tile, inout_payload);
    if (scales.of[0] > 0.0F || scales.of[1] > 0.0F) {
        kernels_.pack_signs(values.data(), static_cast<std::uint32_t>(values.size()), scales.of[0], scales.of[1],
                            inout_payload.tile_codes(tile), ret_decoded);
        return;
    }
    std::fill_n(inout_payload.tile_codes(tile), inout_payload.tile_bytes(values.size()), std::byte{0});
    std::fill_n(ret_decoded, values.size(), 0.0F);
}

void DenseTileCoder::code_levels(std::span<const float> values, ElementCount first_element, std::size_t tile,
                                 DensePayload& inout_payload, float* ret_decoded) const {
    const auto step = dither_step(dither_, measure_tile(dither_, values, kernels_), random_, first_element);
    inout_payload.write_scale(tile, step ? step->scale : 0.0F);
    if (step) {
        kernels_.dither_dense(*step, values.data(), static_cast<std::uint32_t>(values.size()),
                              inout_payload.tile_codes(tile), ret_decoded, nullptr);
        return;
    }
    std::fill_n(inout_payload.tile_codes(tile), inout_payload.tile_bytes(values.size()), std::byte{0});
    std::fill_n(ret_decoded, values.size(), 0.0F);
}

void code_rotated_tile(const DenseTileCoder& coder, PhiloxKey key, std::uint32_t first, std::span<const float> values,
                       ElementCount first_element, const PayloadKernels& kernels, DensePayload& inout_payload,
                       float* ret_decoded) {
    alignas(64) std::array<float, kTileElements> rotated;
    const std::span<float> tile(rotated.data(), values.size());
    rotate_tile(key, first, values, kernels, tile.data());
    coder.code(tile, first_element, first / kTileElements, inout_payload, tile.data());
    rotate_tile_back(key, first, tile, kernels, ret_decoded);
}

PayloadBytes code_dense(const Quantizer& quantizer, const ChunkSelection& selection, const PayloadPool& pool,
                        const PayloadKernels& kernels, std::span<float> ret_decoded) {
    DensePayload payload(quantizer, selection.values.size(), pool, selection.rotation);
    const DenseTileCoder coder(quantizer, selection.random, kernels);
    for (std::size_t first = 0; first < selection.values.size(); first += kTileElements) {
        const auto values =
            selection.values.subspan(first, std::min<std::size_t>(kTileElements, selection.values.size() - first));
        const ElementCount first_element = selection.first_element + first;
        if (selection.rotation != nullptr)
            code_rotated_tile(coder, *selection.rotation, static_cast<std::uint32_t>(first), values, first_element,
                              kernels, payload, ret_decoded.data() + first);
        else
            coder.code(values, first_element, first / kTileElements, payload, ret_decoded.data() + first);
    }
    return payload.take();
}

}  // namespace gradsieve::codec
