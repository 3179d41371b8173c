// The routes of selections that send every element.
#include "codec/dense_coder.hpp"
#include "codec/encoder_settle.hpp"
#include "codec/tensor_encoder.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace gradsieve::codec {

/// f32 and bf16: the pass writes values and residual as it goes. sign: a tile's scale is known only once it is read, so
/// each goes through the first-level cache and is written while the next one is read.
void TensorEncoder::encode_dense() {
    for (std::uint32_t chunk = 0; chunk < chunk_count(); ++chunk) {
        const std::size_t elements = chunk_elements(chunk);
        DensePayload payload(pipeline_.quantizer, elements, scratch_.code.payloads);
        if (pipeline_.quantizer.kind == QuantizerKind::kSign) {
            if (!encode_signs(chunk, payload)) return;
        } else {
            DenseSpan span = span_at(chunk * kChunkElements, elements);
            if (plan_.rule == DenseRule::kMean) span.residual_out = reinterpret_cast<float*>(payload.values());
            span.codes = reinterpret_cast<std::uint16_t*>(payload.values());
            DenseOutcome outcome;
            if (!run_pass(span, outcome)) return;
        }
        append_payload(chunk, payload.take(), elements);
    }
    finish_dense_pass(plan_);
}

bool TensorEncoder::encode_signs(std::uint32_t chunk, DensePayload& inout_payload) {
    scratch_.tile_values.ensure(2 * kTileElements);
    SignTile previous;
    const std::size_t chunk_size = chunk_elements(chunk);
    for (std::size_t first = 0, tile = 0; first < chunk_size; first += kTileElements, ++tile) {
        const std::size_t elements = std::min<std::size_t>(kTileElements, chunk_size - first);
        float* values = scratch_.tile_values.data() + tile % 2 * kTileElements;
        if (elements < kTileElements) settle_signs(std::exchange(previous, {}), kTileElements);
        DenseSpan span = span_at(chunk * kChunkElements + first, elements);
        const SignTile current{values, 0, std::exchange(span.residual_out, values), inout_payload.tile_bits(tile)};
        span.previous = previous;
        DenseOutcome outcome;
        if (!run_pass(span, outcome)) return false;
        previous = current;
        previous.scale = inout_payload.write_scale(tile, outcome.magnitude_sum, elements);
        const bool is_last = first + elements == chunk_size;
        if (is_last || !(previous.scale > 0.0F)) settle_signs(std::exchange(previous, {}), elements);
    }
    return true;
}

/// A tile that no pass takes along: the chunk's last, or one whose magnitudes are so small that their mean is zero.
void TensorEncoder::settle_signs(const SignTile& tile, std::size_t elements) {
    if (tile.values == nullptr) return;
    if (tile.scale > 0.0F) {
        kernels_.settle_signs(tile.values, static_cast<std::uint32_t>(elements), tile.scale, tile.bits,
                              tile.residual_out);
    } else {
        std::fill_n(tile.bits, bytes_of_bits(elements), std::byte{0});
        std::copy_n(tile.values, elements, tile.residual_out);
    }
}

/// pow2 codes a dense selection as a list of all that is not too small, and may want the tensor's maximum first.
void TensorEncoder::encode_dense_list(bool observes_first) {
    float tensor_maximum = 0;
    const auto observe = [&](std::uint32_t chunk) {
        DenseOutcome outcome;
        return run_pass(span_at(chunk * kChunkElements, chunk_elements(chunk)), outcome);
    };
    const auto values_of = [&](std::uint32_t chunk) {
        return std::span(request_.out.residual + chunk * kChunkElements, chunk_elements(chunk));
    };
    for (std::uint32_t chunk = 0; observes_first && chunk < chunk_count(); ++chunk) {
        if (!observe(chunk)) return;
        const std::span<const float> values = values_of(chunk);
        const auto bits = kernels_.largest_magnitude(values.data(), static_cast<std::uint32_t>(values.size()));
        tensor_maximum = std::max(tensor_maximum, std::bit_cast<float>(bits));
    }
    for (std::uint32_t chunk = 0; chunk < chunk_count(); ++chunk) {
        if (!observes_first && !observe(chunk)) return;
        const std::span<float> values = values_of(chunk);
        scratch_.decoded.ensure(values.size());
        const std::span<float> decoded(scratch_.decoded.data(), values.size());
        PayloadBytes bytes =
            code_chunk(pipeline_, {values.size(), true, {}, values, tensor_maximum}, scratch_.code, decoded);
        if (bytes.empty()) continue;  // nothing was sent: the residual keeps everything
        for (std::size_t element = 0; element < values.size(); ++element) values[element] -= decoded[element];
        append_payload(chunk, std::move(bytes), values.size());
    }
}

}  // namespace gradsieve::codec
