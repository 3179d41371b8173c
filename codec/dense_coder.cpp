#include "codec/dense_coder.hpp"

#include "codec/payload_kernels.hpp"

#include <algorithm>
#include <array>

namespace gradsieve::codec {

DenseCoder::DenseCoder(const Quantizer& quantizer, ElementCount chunk_elements, Bytes& payload) : payload_(payload) {
    header_.quantizer = quantizer.kind;
    header_.index_form = IndexForm::kEvery;
    header_.count = static_cast<std::uint32_t>(chunk_elements);
    if (quantizer.kind == QuantizerKind::kSign && quantizer.tau > 0) {
        header_.has_chunk_scale = true;
        header_.chunk_scale = static_cast<float>(quantizer.tau);
    }
    PayloadContent content;
    content.chunk_elements = chunk_elements;
    content.tiles = tiles_of(chunk_elements);
    payload_.reserve(payload_.size() + encoded_bytes(header_, content));
    build_header(header_, payload_);
    if (quantizer.kind != QuantizerKind::kSign) return;
    scales_at_ = payload_.size();
    bits_at_ = scales_at_ + (header_.has_chunk_scale ? 0 : sizeof(float) * content.tiles);
    payload_.resize(bits_at_ + bytes_of_bits(chunk_elements));
}

void DenseCoder::code_tile(std::span<const float> values, std::span<float> ret_decoded) {
    if (header_.quantizer == QuantizerKind::kSign) return code_sign_tile(values, ret_decoded.data());
    if (header_.quantizer == QuantizerKind::kBf16) return code_bf16_tile(values, ret_decoded.data());
    const auto bytes = std::as_bytes(values);
    payload_.insert(payload_.end(), bytes.begin(), bytes.end());
    if (ret_decoded.data() != values.data()) std::copy(values.begin(), values.end(), ret_decoded.begin());
}

// Through a small block, so that the payload's memory is written once instead of being zeroed first.
void DenseCoder::code_bf16_tile(std::span<const float> values, float* ret_decoded) {
    std::array<std::uint16_t, kTileElements> codes;
    payload_kernels().round_bf16(values.data(), static_cast<std::uint32_t>(values.size()), codes.data(), ret_decoded);
    const auto bytes = std::as_bytes(std::span(codes.data(), values.size()));
    payload_.insert(payload_.end(), bytes.begin(), bytes.end());
}

void DenseCoder::code_sign_tile(std::span<const float> values, float* ret_decoded) {
    const auto count = static_cast<std::uint32_t>(values.size());
    float scale = header_.chunk_scale;
    if (!header_.has_chunk_scale) {
        scale = static_cast<float>(payload_kernels().magnitude_sum(values.data(), count) / count);
        std::memcpy(payload_.data() + scales_at_, &scale, sizeof(scale));
        scales_at_ += sizeof(scale);
    }
    if (scale > 0.0F)
        payload_kernels().pack_signs(values.data(), count, scale, payload_.data() + bits_at_, ret_decoded);
    else
        std::fill_n(ret_decoded, count, 0.0F);  // the bits stay zero
    bits_at_ += bytes_of_bits(count);
}

}  // namespace gradsieve::codec
