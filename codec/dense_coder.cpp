#include "codec/dense_coder.hpp"

#include "codec/rotation.hpp"
#include "codec/stages/quantizer_coder.hpp"

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

void DenseTileCoder::code(std::span<const float> values, ElementCount first_element, std::size_t tile,
                          DensePayload& inout_payload, float* ret_decoded) const {
    coder_.code_tile({quantizer_, values, tile, first_element, random_, kernels_, inout_payload, ret_decoded});
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
