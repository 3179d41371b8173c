// The route of selectors whose positions follow from a key: they are known before a sample is read, so the pass lists
// nothing, and what is sent is taken from where the pass has just written.
#include "codec/random_mask.hpp"
#include "codec/tensor_encoder.hpp"

#include <algorithm>

namespace gradsieve::codec {
namespace {

/// Elements that the pass looks at before those among them that are sent are taken: they are still in the second-level
/// cache then.
constexpr std::size_t kKeyedSpanElements = std::size_t{1} << 14U;
static_assert(kChunkElements % kKeyedSpanElements == 0);

}  // namespace

/// Runs the pass over a chunk from `first` on, and takes the values at `indices`.
bool TensorEncoder::gather_keyed(ElementCount first, std::span<const std::uint32_t> indices, float factor) {
    const std::size_t elements = chunk_elements(static_cast<std::uint32_t>(first / kChunkElements));
    const bool keeps = has_residual(plan_.rule);
    if (!keeps) scratch_.tile_values.ensure(kKeyedSpanElements);
    float* values = scratch_.keyed_values.data();
    std::size_t taken = 0;
    for (std::size_t at = 0; at < elements; at += kKeyedSpanElements) {
        const std::size_t count = std::min(kKeyedSpanElements, elements - at);
        DenseSpan span = span_at(first + at, count);
        if (!keeps) span.residual_out = scratch_.tile_values.data();
        DenseOutcome outcome;
        if (!run_pass(span, outcome)) return false;
        for (; taken < indices.size() && indices[taken] < at + count; ++taken) {
            const float value = span.residual_out[indices[taken] - at];
            values[taken] = keeps ? value : raised_value(value, factor);
        }
    }
    finish_dense_pass(plan_);
    return true;
}

void TensorEncoder::encode_keyed() {
    const Selector& selector = pipeline_.selector;
    const SelectionPlan selection(selector, request_.selection_seed, request_.tensor, request_.step, request_.elements);
    const float factor = raise_factor(selector, request_.elements);
    for (std::uint32_t chunk = 0; chunk < chunk_count(); ++chunk) {
        const std::size_t elements = chunk_elements(chunk);
        const ElementCount first = chunk * kChunkElements;
        const SelectionRule rule = selection.rule(chunk);
        scratch_.keyed_indices.ensure(elements + kIndexSlack);
        const std::size_t count =
            draw_indices(rule, elements, static_cast<std::uint32_t>(elements), kernels_, scratch_.keyed_indices.data());
        const std::span<const std::uint32_t> indices(scratch_.keyed_indices.data(), count);
        scratch_.keyed_values.ensure(count);
        scratch_.decoded.ensure(count);
        if (!gather_keyed(first, indices, factor)) return;
        const std::span<const float> values(scratch_.keyed_values.data(), count);
        const std::span<float> decoded(scratch_.decoded.data(), count);
        PayloadBytes bytes =
            code_chunk(pipeline_, {elements, false, indices, values, 0, random_, first, &rule}, scratch_.code, decoded);
        append_payload(chunk, std::move(bytes), count);
        if (!has_residual(plan_.rule)) continue;
        float* residual = request_.out.residual + first;
        for (std::size_t cell = 0; cell < count; ++cell) residual[indices[cell]] = values[cell] - decoded[cell];
    }
}

}  // namespace gradsieve::codec
