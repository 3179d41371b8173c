// The route of rotations: a tile is summed into the first-level cache, rotated and coded there, and what its codes
// decode to is rotated back and taken off, so that the residual is one of the gradient's own elements.
#include "codec/dense_coder.hpp"
#include "codec/rotation.hpp"
#include "codec/tensor_encoder.hpp"

#include <algorithm>
#include <bit>

namespace gradsieve::codec {

void TensorEncoder::encode_rotated() {
    scratch_.tile_values.ensure(2 * kTileElements);
    const DenseTileCoder coder(pipeline_.quantizer, random_, kernels_);
    const std::uint64_t seed = rotation_seed(pipeline_.quantizer, request_.selection_seed, request_.random_seed);
    for (std::uint32_t chunk = 0; chunk < chunk_count(); ++chunk) {
        const PhiloxKey key = rotation_key(seed, request_.tensor, request_.step, chunk);
        DensePayload payload(pipeline_.quantizer, chunk_elements(chunk), scratch_.code.payloads, &key);
        if (!encode_rotated(chunk, coder, key, payload)) return;
        append_dense(chunk, payload.take(), chunk_elements(chunk));
    }
    finish_dense_pass(plan_);
}

bool TensorEncoder::encode_rotated(std::uint32_t chunk, const DenseTileCoder& coder, PhiloxKey key,
                                   DensePayload& inout_payload) {
    float* sums = scratch_.tile_values.data();
    float* decoded = sums + kTileElements;
    const std::size_t chunk_size = chunk_elements(chunk);
    for (std::size_t first = 0; first < chunk_size; first += kTileElements) {
        const std::size_t elements = std::min<std::size_t>(kTileElements, chunk_size - first);
        DenseSpan span = span_at(chunk * kChunkElements + first, elements);
        span.residual_out = sums;
        DenseOutcome outcome;
        if (!run_pass(span, outcome)) return false;
        const std::uint32_t largest = kernels_.largest_magnitude(sums, static_cast<std::uint32_t>(elements));
        if (std::bit_cast<float>(largest) > kMostRotated) {
            const auto is_largest = [&](float sum) { return element::magnitude_bits(sum) == largest; };
            result_.non_finite = {
                0, span.first + static_cast<ElementCount>(std::find_if(sums, sums + elements, is_largest) - sums)};
            return false;
        }
        code_rotated_tile(coder, key, static_cast<std::uint32_t>(first), {sums, elements}, span.first, kernels_,
                          inout_payload, decoded);
        if (!has_residual(plan_.rule)) continue;
        float* residual = request_.out.residual + span.first;
        for (std::size_t i = 0; i < elements; ++i) residual[i] = sums[i] - decoded[i];
    }
    return true;
}

}  // namespace gradsieve::codec
