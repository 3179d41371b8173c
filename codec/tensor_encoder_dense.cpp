// The routes of selections that send every element.
#include "codec/dense_coder.hpp"
#include "codec/encoder_settle.hpp"
#include "codec/tensor_encoder.hpp"

#include <bit>

namespace gradsieve::codec {

/// f32 and bf16: the pass writes values and residual as it goes. sign: a tile is read twice, the second time from the
/// first-level cache, since its scale is known only then.
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
    scratch_.tile_values.ensure(kTileElements);
    float* values = scratch_.tile_values.data();
    const bool streams = plan_.streams;
    plan_.streams = false;  // the pass itself writes to the cache
    DenseOutcome outcome;
    outcome.is_finite = true;
    for (std::size_t first = 0; first < chunk_elements(chunk) && outcome.is_finite; first += kTileElements) {
        const std::size_t elements = std::min<std::size_t>(kTileElements, chunk_elements(chunk) - first);
        const ElementCount element = chunk * kChunkElements + first;
        const std::size_t tile = first / kTileElements;
        DenseSpan span = span_at(element, elements);
        span.residual_out = values;
        if (!run_pass(span, outcome)) break;
        const float scale = inout_payload.write_scale(tile, outcome.magnitude_sum, elements);
        point_at_inputs(element + elements);
        kernels_.settle_signs(values, static_cast<std::uint32_t>(elements), scale, inout_payload.tile_bits(tile),
                              request_.out.residual + element, streams, scratch_.next_inputs.data(),
                              static_cast<std::uint32_t>(scratch_.next_inputs.size()));
        // Magnitudes so small that their mean is zero: nothing was taken off, and the format wants clear bits.
        if (!(scale > 0.0F)) std::fill_n(inout_payload.tile_bits(tile), bytes_of_bits(elements), std::byte{0});
    }
    plan_.streams = streams;
    return outcome.is_finite;
}

/// What a dense pass from `first` on will read; nothing if that is not a whole tile.
void TensorEncoder::point_at_inputs(ElementCount first) {
    scratch_.next_inputs.clear();
    if (first + kTileElements > request_.elements) return;
    for (const float* sample : request_.samples) scratch_.next_inputs.push_back(sample + first);
    scratch_.next_inputs.push_back(request_.in.residual + first);
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
