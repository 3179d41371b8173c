// The routes of selections that send every element.
#include "codec/dense_coder.hpp"
#include "codec/encoder_settle.hpp"
#include "codec/tensor_encoder.hpp"

#include <cmath>

namespace gradsieve::codec {

/// What a dense pass from `first` on will read; nothing if that is not a whole tile.
void TensorEncoder::point_at_inputs(ElementCount first) {
    scratch_.next_inputs.clear();
    if (first + kTileElements > request_.elements) return;
    for (const float* sample : request_.samples) scratch_.next_inputs.push_back(sample + first);
    scratch_.next_inputs.push_back(request_.in.residual + first);
}

/// Tile by tile: r goes through the quantizer in the first-level cache and is written once, with what was lost.
void TensorEncoder::encode_dense_by_tile() {
    scratch_.tile_values.ensure(kTileElements);
    scratch_.decoded.ensure(kTileElements);
    float* values = scratch_.tile_values.data();
    const bool keeps_residual = plan_.rule == DenseRule::kEverything;
    float* decoded = keeps_residual ? scratch_.decoded.data() : values;
    const bool streams = plan_.streams;
    plan_.streams = false;  // the pass itself writes to the cache
    std::size_t listed = 0;
    for (std::uint32_t chunk = 0; chunk < chunk_count(); ++chunk) {
        const ElementCount begin = chunk * kChunkElements;
        const ElementCount end = begin + chunk_elements(chunk);
        Bytes bytes;
        DenseCoder coder(pipeline_.quantizer, end - begin, bytes);
        for (ElementCount first = begin; first < end; first += kTileElements) {
            const std::size_t elements = std::min<ElementCount>(kTileElements, end - first);
            DenseSpan span = span_at(first, elements);
            span.residual_out = values;
            if (!run_pass(span, listed)) return;
            coder.code_tile({values, elements}, {decoded, elements});
            if (!keeps_residual) continue;
            point_at_inputs(first + elements);
            settle_dense({{values, elements},
                          {decoded, elements},
                          request_.out.residual + first,
                          streams,
                          scratch_.next_inputs});
        }
        append_payload(chunk, std::move(bytes), end - begin);
    }
    plan_.streams = streams;
    finish_dense_pass(plan_);
}

/// pow2 codes a dense selection as a list of all that is not too small, and may want the tensor's maximum first.
void TensorEncoder::encode_dense_by_chunk(bool observes_first) {
    std::size_t listed = 0;
    float tensor_maximum = 0;
    const auto observe = [&](std::uint32_t chunk) {
        return run_pass(span_at(chunk * kChunkElements, chunk_elements(chunk)), listed);
    };
    const auto values_of = [&](std::uint32_t chunk) {
        return std::span(request_.out.residual + chunk * kChunkElements, chunk_elements(chunk));
    };
    for (std::uint32_t chunk = 0; observes_first && chunk < chunk_count(); ++chunk) {
        if (!observe(chunk)) return;
        for (const float value : values_of(chunk)) tensor_maximum = std::max(tensor_maximum, std::fabs(value));
    }
    for (std::uint32_t chunk = 0; chunk < chunk_count(); ++chunk) {
        if (!observes_first && !observe(chunk)) return;
        const std::span<float> values = values_of(chunk);
        scratch_.decoded.ensure(values.size());
        const std::span<float> decoded(scratch_.decoded.data(), values.size());
        Bytes bytes;
        code_chunk(pipeline_, {values.size(), true, {}, values, tensor_maximum}, scratch_.code, decoded, bytes);
        if (bytes.empty()) continue;  // nothing was sent: the residual keeps everything
        settle_dense({values, decoded, values.data(), false, {}});
        append_payload(chunk, std::move(bytes), values.size());
    }
}

}  // namespace gradsieve::codec
