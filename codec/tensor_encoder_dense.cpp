// The routes of selections that send every element.
#include "codec/dense_coder.hpp"
#include "codec/encoder_settle.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/tensor_encoder.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace gradsieve::codec {
namespace {

bool has_scale(const HeldTile& held) { return held.scale > 0.0F || held.negative_scale > 0.0F; }

}  // namespace

void TensorEncoder::encode_dense() {
    const DenseRoute route = facts_of(pipeline_.quantizer.kind).route;
    for (std::uint32_t chunk = 0; chunk < chunk_count(); ++chunk) {
        const std::size_t elements = chunk_elements(chunk);
        if (route == DenseRoute::kChunk) {
            PayloadBytes bytes;
            if (!encode_words(chunk, bytes)) return;
            append_dense(chunk, std::move(bytes), elements);
            continue;
        }
        DensePayload payload(pipeline_.quantizer, elements, scratch_.code.payloads);
        if (route == DenseRoute::kTile) {
            if (!encode_tiles(chunk, payload)) return;
        } else if (route == DenseRoute::kHeld) {
            if (!encode_held(chunk, payload)) return;
        } else {
            DenseSpan span = span_at(chunk * kChunkElements, elements);
            if (plan_.rule == DenseRule::kMean) span.residual_out = reinterpret_cast<float*>(payload.values());
            span.codes = payload.values();
            DenseOutcome outcome;
            if (!run_pass(span, outcome)) return;
        }
        append_dense(chunk, payload.take(), elements);
    }
    finish_dense_pass(plan_);
}

void TensorEncoder::append_dense(std::uint32_t chunk, PayloadBytes bytes, std::size_t elements) {
    if (pipeline_.has_entropy)
        bytes = code_entropy(std::move(bytes), elements, scratch_.code.payloads, scratch_.code.entropy);
    append_payload(chunk, std::move(bytes), elements);
}

/// A tile goes through the first-level cache; how long codes are is known once all of the chunk's are there.
bool TensorEncoder::encode_words(std::uint32_t chunk, PayloadBytes& ret_payload) {
    const QuantizerCoder& coder = coder_of(pipeline_.quantizer.kind);
    scratch_.tile_values.ensure(kTileElements);
    float* values = scratch_.tile_values.data();
    const std::size_t chunk_size = chunk_elements(chunk);
    std::vector<std::uint32_t>& codes = scratch_.code.integers;
    codes.resize(chunk_size);
    std::uint32_t magnitudes = 0;
    for (std::size_t first = 0; first < chunk_size; first += kTileElements) {
        const std::size_t elements = std::min<std::size_t>(kTileElements, chunk_size - first);
        DenseSpan span = span_at(chunk * kChunkElements + first, elements);
        float* residual_out = std::exchange(span.residual_out, values);
        DenseOutcome outcome;
        if (!run_pass(span, outcome)) return false;
        magnitudes |= coder.code_words({pipeline_.quantizer,
                                        {values, elements},
                                        span.first,
                                        random_,
                                        kernels_,
                                        codes.data() + first,
                                        nullptr,
                                        residual_out});
    }
    ret_payload = coder.build_chunk(pipeline_.quantizer, codes, magnitudes, scratch_.code.payloads, kernels_);
    return true;
}

bool TensorEncoder::encode_held(std::uint32_t chunk, DensePayload& inout_payload) {
    const QuantizerCoder& coder = coder_of(pipeline_.quantizer.kind);
    scratch_.tile_values.ensure(2 * kTileElements);
    HeldTile previous;
    const std::size_t chunk_size = chunk_elements(chunk);
    for (std::size_t first = 0, tile = 0; first < chunk_size; first += kTileElements, ++tile) {
        const std::size_t elements = std::min<std::size_t>(kTileElements, chunk_size - first);
        float* values = scratch_.tile_values.data() + tile % 2 * kTileElements;
        if (elements < kTileElements) settle_held(std::exchange(previous, {}), kTileElements, inout_payload);
        DenseSpan span = span_at(chunk * kChunkElements + first, elements);
        HeldTile current;
        current.values = values;
        current.residual_out = std::exchange(span.residual_out, values);
        current.codes = inout_payload.tile_codes(tile);
        current.dither.first_element = span.first;
        span.previous = previous;
        DenseOutcome outcome;
        if (!run_pass(span, outcome)) return false;
        previous = current;
        coder.measure({pipeline_.quantizer, {values, elements}, tile, span.first, random_, kernels_, inout_payload},
                      outcome.magnitude_sum, previous);
        const bool is_last = first + elements == chunk_size;
        if (is_last || !has_scale(previous)) settle_held(std::exchange(previous, {}), elements, inout_payload);
    }
    return true;
}

/// A tile is read into the first-level cache and coded from there: its codes cost more than its memory does.
bool TensorEncoder::encode_tiles(std::uint32_t chunk, DensePayload& inout_payload) {
    const QuantizerCoder& coder = coder_of(pipeline_.quantizer.kind);
    scratch_.tile_values.ensure(kTileElements);
    float* values = scratch_.tile_values.data();
    const std::size_t chunk_size = chunk_elements(chunk);
    for (std::size_t first = 0, tile = 0; first < chunk_size; first += kTileElements, ++tile) {
        const std::size_t elements = std::min<std::size_t>(kTileElements, chunk_size - first);
        DenseSpan span = span_at(chunk * kChunkElements + first, elements);
        float* residual_out = std::exchange(span.residual_out, values);
        DenseOutcome outcome;
        if (!run_pass(span, outcome)) return false;
        coder.code_tile({pipeline_.quantizer,
                         {values, elements},
                         tile,
                         span.first,
                         random_,
                         kernels_,
                         inout_payload,
                         nullptr,
                         residual_out});
    }
    return true;
}

/// A tile that no pass takes along: the chunk's last, or one whose magnitudes are so small that its scale is zero.
void TensorEncoder::settle_held(const HeldTile& held, std::size_t elements, const DensePayload& payload) const {
    if (held.values == nullptr) return;
    const auto count = static_cast<std::uint32_t>(elements);
    if (!has_scale(held)) {
        std::fill_n(held.codes, payload.tile_bytes(elements), std::byte{0});
        if (held.residual_out != nullptr) std::copy_n(held.values, elements, held.residual_out);
    } else {
        coder_of(pipeline_.quantizer.kind).settle(held, count, kernels_);
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
            code_chunk(pipeline_, {values.size(), true, {}, values, tensor_maximum, random_, chunk * kChunkElements},
                       scratch_.code, decoded);
        if (bytes.empty()) continue;  // nothing was sent: the residual keeps everything
        for (std::size_t element = 0; element < values.size(); ++element) values[element] -= decoded[element];
        append_payload(chunk, std::move(bytes), values.size());
    }
}

}  // namespace gradsieve::codec
