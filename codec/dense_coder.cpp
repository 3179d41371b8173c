#include "codec/dense_coder.hpp"

#include "codec/dither_coder.hpp"
#include "codec/exponential_coder.hpp"
#include "codec/minmax_coder.hpp"
#include "codec/natural_coder.hpp"

#include <algorithm>
#include <cstring>

namespace gradsieve::codec {
namespace {

/// Signs of tiles whose scales `scales_of` finds and writes: of what is not negative, and of what is.
template <typename ScalesOf>
void code_signs(std::span<const float> values, const PayloadKernels& kernels, DensePayload& payload,
                std::span<float> ret_decoded, ScalesOf scales_of) {
    for (std::size_t first = 0; first < values.size(); first += kTileElements) {
        const auto tile_values = values.subspan(first, std::min<std::size_t>(kTileElements, values.size() - first));
        const auto count = static_cast<std::uint32_t>(tile_values.size());
        const std::size_t tile = first / kTileElements;
        const TwoMeans scales = scales_of(tile, tile_values);
        if (scales.of[0] > 0.0F || scales.of[1] > 0.0F) {
            kernels.pack_signs(tile_values.data(), count, scales.of[0], scales.of[1], payload.tile_codes(tile),
                               ret_decoded.data() + first);
        } else {
            std::fill_n(payload.tile_codes(tile), payload.tile_bytes(count), std::byte{0});
            std::fill_n(ret_decoded.data() + first, count, 0.0F);
        }
    }
}

void code_signs(const Quantizer& quantizer, std::span<const float> values, const PayloadKernels& kernels,
                DensePayload& payload, std::span<float> ret_decoded) {
    code_signs(values, kernels, payload, ret_decoded, [&](std::size_t tile, std::span<const float> tile_values) {
        const auto count = static_cast<std::uint32_t>(tile_values.size());
        TwoMeans scales{{1.0F, 1.0F}};
        if (quantizer.kind == QuantizerKind::kTwoMean) {
            scales = two_means_of(tile_values, kernels);
            payload.write_scales(tile, scales);
        } else if (quantizer.kind == QuantizerKind::kSign) {
            const float mean = payload.write_mean(tile, kernels.magnitude_sum(tile_values.data(), count), count);
            scales = {{mean, mean}};
        }
        return scales;
    });
}

void code_levels(const Quantizer& quantizer, const ChunkSelection& selection, const PayloadKernels& kernels,
                 DensePayload& payload, std::span<float> ret_decoded) {
    const DitherRule rule = dither_rule(quantizer, false);
    const std::span<const float> values = selection.values;
    for (std::size_t first = 0; first < values.size(); first += kTileElements) {
        const auto tile_values = values.subspan(first, std::min<std::size_t>(kTileElements, values.size() - first));
        const auto count = static_cast<std::uint32_t>(tile_values.size());
        const std::size_t tile = first / kTileElements;
        const auto step = dither_step(rule, measure_tile(rule, tile_values, kernels), selection.random,
                                      selection.first_element + first);
        payload.write_scale(tile, step ? step->scale : 0.0F);
        if (step) {
            kernels.dither_dense(*step, tile_values.data(), count, payload.tile_codes(tile), ret_decoded.data() + first,
                                 nullptr);
        } else {
            std::fill_n(payload.tile_codes(tile), payload.tile_bytes(count), std::byte{0});
            std::fill_n(ret_decoded.data() + first, count, 0.0F);
        }
    }
}

void code_exponential_levels(const Quantizer& quantizer, const ChunkSelection& selection, const PayloadKernels& kernels,
                             DensePayload& payload, std::span<float> ret_decoded) {
    const ExponentialRule rule = exponential_rule(quantizer, false);
    const std::span<const float> values = selection.values;
    for (std::size_t first = 0; first < values.size(); first += kTileElements) {
        const auto tile_values = values.subspan(first, std::min<std::size_t>(kTileElements, values.size() - first));
        const std::size_t tile = first / kTileElements;
        payload.write_scale(
            tile, code_exponential_tile(rule, tile_values, selection.random, selection.first_element + first, kernels,
                                        payload.tile_codes(tile), ret_decoded.data() + first, nullptr));
    }
}

void code_ranges(const Quantizer& quantizer, const ChunkSelection& selection, const PayloadKernels& kernels,
                 DensePayload& payload, std::span<float> ret_decoded) {
    const std::span<const float> values = selection.values;
    for (std::size_t first = 0, tile = 0; first < values.size(); first += kTileElements, ++tile)
        code_minmax_tile(quantizer, values.subspan(first, std::min<std::size_t>(kTileElements, values.size() - first)),
                         selection.random, selection.first_element + first, kernels, payload.tile_ranges(tile),
                         payload.tile_codes(tile), ret_decoded.data() + first, nullptr);
}

}  // namespace

DensePayload::DensePayload(const Quantizer& quantizer, ElementCount chunk_elements, const PayloadPool& pool)
    : header_(header_of(quantizer, IndexForm::kEvery, chunk_elements)) {
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

PayloadBytes code_dense(const Quantizer& quantizer, const ChunkSelection& selection, const PayloadPool& pool,
                        const PayloadKernels& kernels, std::span<float> ret_decoded) {
    const std::span<const float> values = selection.values;
    DensePayload payload(quantizer, values.size(), pool);
    if (quantizer.kind == QuantizerKind::kDither) {
        code_levels(quantizer, selection, kernels, payload, ret_decoded);
    } else if (quantizer.kind == QuantizerKind::kExponentialDither) {
        code_exponential_levels(quantizer, selection, kernels, payload, ret_decoded);
    } else if (quantizer.kind == QuantizerKind::kMinMax) {
        code_ranges(quantizer, selection, kernels, payload, ret_decoded);
    } else if (is_sign_bit(quantizer.kind)) {
        code_signs(quantizer, values, kernels, payload, ret_decoded);
    } else if (quantizer.kind == QuantizerKind::kNatural) {
        kernels.natural_dense(natural_step(quantizer, selection.random, selection.first_element), values.data(),
                              static_cast<std::uint32_t>(values.size()), payload.values(), ret_decoded.data());
    } else if (quantizer.kind == QuantizerKind::kBf16 || quantizer.kind == QuantizerKind::kF16) {
        const auto round = quantizer.kind == QuantizerKind::kBf16 ? kernels.round_bf16 : kernels.round_f16;
        round(values.data(), static_cast<std::uint32_t>(values.size()),
              reinterpret_cast<std::uint16_t*>(payload.values()), ret_decoded.data());
    } else {
        std::memcpy(payload.values(), values.data(), values.size_bytes());
        if (ret_decoded.data() != values.data()) std::copy(values.begin(), values.end(), ret_decoded.begin());
    }
    return payload.take();
}

}  // namespace gradsieve::codec
