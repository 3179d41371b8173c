// The routes of selections that make a list: what the variance test picked, and top-k.
#include "codec/encoder_settle.hpp"
#include "codec/select_adaptive.hpp"
#include "codec/select_blocks.hpp"
#include "codec/tensor_encoder.hpp"

#include <bit>
#include <cmath>

namespace gradsieve::codec {

/// Runs the pass over a span and lists in this thread's cells.
bool TensorEncoder::list_cells(DenseSpan& span, std::size_t& ret_listed) {
    SpanCells& cells = scratch_.span_cells;
    cells.ensure(kListSpanElements + kListSlack);
    span.indices = cells.indices.data();
    span.values = cells.values.data();
    span.variances = cells.variances.data();
    span.guess_floor = guess_floor_;
    DenseOutcome outcome;
    if (!run_pass(span, outcome)) return false;
    ret_listed = outcome.listed;
    return true;
}

/// The same, and appends what the selector takes of them.
bool TensorEncoder::list_span(DenseSpan& span) {
    SpanCells& cells = scratch_.span_cells;
    std::size_t listed = 0;
    if (!list_cells(span, listed)) return false;
    if (selection_ == Selection::kBlockBest) listed = keep_of_blocks(span, listed);
    if (selection_ == Selection::kBlockDrawn)
        listed = keep_drawn(pipeline_.selector.ratio, static_cast<std::uint32_t>(pipeline_.selector.block),
                            span.first_index + static_cast<std::uint32_t>(span.elements), span.first - span.first_index,
                            random_, listed, cells, scratch_.weights);
    candidates_.list.append(cells, listed, has_variance(pipeline_));
    return true;
}

/// Cells of a span whose |r| has bits of at least `floor`, from r as the pass left it; nothing was taken to be sent.
/// Their variances mean nothing. Returns how many.
std::size_t TensorEncoder::list_residual(ElementCount first, std::size_t elements, std::uint32_t floor) {
    SpanCells& cells = scratch_.span_cells;
    const float* residual = request_.out.residual + first;
    const auto first_index = static_cast<std::uint32_t>(first % kChunkElements);
    const std::uint32_t listed =
        kernels_.list_above(residual, static_cast<std::uint32_t>(elements), floor, first_index, cells.indices.data());
    for (std::uint32_t cell = 0; cell < listed; ++cell)
        cells.values.data()[cell] = residual[cells.indices.data()[cell] - first_index];
    return listed;
}

/// Of a span's listed cells those that their blocks send. Nothing was taken to be sent, so that what the floor hid can
/// be read in the residual.
std::size_t TensorEncoder::keep_of_blocks(const DenseSpan& span, std::size_t listed) {
    const BlockRule rule{pipeline_.selector.ratio, static_cast<std::uint32_t>(pipeline_.selector.block)};
    ListedBlocks blocks{span.first_index, span.first_index + static_cast<std::uint32_t>(span.elements), listed,
                        span.magnitude_floor};
    if (const auto kept = keep_block_best(rule, blocks, scratch_.span_cells, block_floor_)) return *kept;
    blocks.listed = list_residual(span.first, span.elements, 1);
    blocks.floor = 1;
    return *keep_block_best(rule, blocks, scratch_.span_cells, block_floor_);
}

void TensorEncoder::encode_selected(bool observes_first) {
    SelectionList& list = candidates_.list;
    list.clear();
    for (std::uint32_t chunk = 0; chunk < chunk_count(); ++chunk) {
        if (!observes_first) list.clear();
        list.begin_chunk(chunk);
        const ElementCount begin = chunk * kChunkElements;
        const ElementCount end = begin + chunk_elements(chunk);
        for (ElementCount first = begin; first < end; first += kListSpanElements) {
            DenseSpan span = span_at(first, std::min<ElementCount>(kListSpanElements, end - first));
            if (!list_span(span)) return;
        }
        if (observes_first) continue;
        finish_dense_pass(plan_);
        emit_list_chunk(0, 0);
    }
    if (observes_first) emit_list();
}

DenseSpan TensorEncoder::candidate_span(ElementCount first, std::uint32_t floor) {
    if (has_gate()) candidates_.gate_words.ensure((request_.elements + kPooledElements - 1) / kPooledElements);
    DenseSpan span = span_at(first, std::min<ElementCount>(kListSpanElements, request_.elements - first));
    span.magnitude_floor = floor;
    if (has_gate()) span.gate_words = candidates_.gate_words.data() + first / kPooledElements;
    return span;
}

bool TensorEncoder::collect_candidates(std::size_t k, std::uint32_t floor) {
    candidates_.top_k.begin(candidates_.list, k, floor, guess_floor_);
    for (ElementCount first = 0; first < request_.elements; first += kListSpanElements) {
        if (first % kChunkElements == 0)
            candidates_.list.begin_chunk(static_cast<std::uint32_t>(first / kChunkElements));
        candidates_.top_k.raise_floor();
        DenseSpan span = candidate_span(first, candidates_.top_k.floor());
        if (!list_span(span)) return false;
    }
    finish_dense_pass(plan_);
    return true;
}

/// Gives everything back that the pass took to be sent.
void TensorEncoder::restore_guessed() {
    const SelectionList& list = candidates_.list;
    for (std::size_t position = 0; position < list.chunk_count(); ++position) {
        const std::size_t count = list.indices(position).size();
        const ElementCount first = list.chunk_index(position) * kChunkElements;
        for (std::size_t cell = 0; cell < count; ++cell) {
            const float value = list.values(position)[cell];
            if ((std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU) < guess_floor_) continue;
            const float variance = has_variance(pipeline_) ? list.variances(position)[cell] : 0.0F;
            settle_unsent(plan_, request_.out, first + list.indices(position)[cell], value, variance);
        }
    }
    guess_floor_ = kNeverGuess;
}

/// Of a span's cells those that passed the gate.
std::size_t TensorEncoder::keep_gated(ElementCount first, std::size_t listed) {
    SpanCells& cells = scratch_.span_cells;
    const ElementCount chunk = first - first % kChunkElements;
    std::size_t kept = 0;
    for (std::size_t cell = 0; cell < listed; ++cell) {
        const std::uint32_t index = cells.indices.data()[cell];
        const ElementCount element = chunk + index;
        cells.indices.data()[kept] = index;
        cells.values.data()[kept] = cells.values.data()[cell];
        cells.variances.data()[kept] = 0.0F;  // never asked for: nothing is taken to be sent
        kept += (candidates_.gate_words.data()[element / 32] >> (element % 32)) & 1U;
    }
    return kept;
}

/// Lists the tensor from the residual, which is the accumulated gradient where nothing is taken to be sent, down to the
/// collector's floor; the collector was begun.
void TensorEncoder::collect_residual(bool has_gate) {
    for (ElementCount first = 0; first < request_.elements; first += kListSpanElements) {
        const std::size_t elements = std::min<ElementCount>(kListSpanElements, request_.elements - first);
        if (first % kChunkElements == 0)
            candidates_.list.begin_chunk(static_cast<std::uint32_t>(first / kChunkElements));
        candidates_.top_k.raise_floor();
        std::size_t listed = list_residual(first, elements, candidates_.top_k.floor());
        if (has_gate) listed = keep_gated(first, listed);
        candidates_.list.append(scratch_.span_cells, listed, has_gate);
    }
}

/// Gives back what the pass took to be sent and the cuts took off the list.
void TensorEncoder::restore_dropped() {
    for (const DroppedCell& cell : candidates_.top_k.dropped())
        settle_unsent(plan_, request_.out, cell.element, cell.value, cell.variance);
}

bool TensorEncoder::collect_top_k() {
    const std::size_t k = top_k_count(pipeline_.selector.ratio, request_.elements);
    const TopKHint hint(request_.selection_hint == nullptr ? 0 : *request_.selection_hint);
    guess_floor_ = hint.is_known() ? hint.threshold() : kNeverGuess;
    if (!collect_candidates(k, hint.is_known() ? hint.floor() : 1U)) return false;
    if (!candidates_.top_k.has_enough()) {  // the guess of the threshold was too high
        restore_guessed();
        candidates_.top_k.begin(candidates_.list, k, 1);
        collect_residual(has_gate());
    }
    const std::uint32_t threshold = candidates_.top_k.finish();
    restore_dropped();
    if (request_.selection_hint != nullptr) *request_.selection_hint = hint.next(threshold).word();
    return true;
}

void TensorEncoder::emit_list() {
    const bool wants_maximum = pipeline_.quantizer.scope == Scope::kTensor;
    float tensor_maximum = 0;
    if (wants_maximum) {
        const std::span<const float> values = candidates_.list.all_values();
        for (const float value : values) tensor_maximum = std::max(tensor_maximum, std::fabs(value));
    }
    finish_dense_pass(plan_);
    for (std::size_t position = 0; position < candidates_.list.chunk_count(); ++position) {
        emit_list_chunk(position, tensor_maximum);
    }
}

void TensorEncoder::emit_list_chunk(std::size_t position, float tensor_maximum) {
    const SelectionList& list = candidates_.list;
    const std::size_t count = list.indices(position).size();
    if (count == 0) return;
    const std::uint32_t chunk = list.chunk_index(position);
    scratch_.decoded.ensure(count);
    SentChunk sent;
    sent.indices = list.indices(position);
    sent.values = list.values(position);
    sent.decoded = {scratch_.decoded.data(), count};
    sent.guess_floor = guess_floor_;
    sent.residual_out = request_.out.residual + chunk * kChunkElements;
    if (has_variance(pipeline_)) {
        sent.variances = list.variances(position);
        sent.variance_out = request_.out.variance + chunk * kChunkElements;
    }
    PayloadBytes bytes = code_chunk(
        pipeline_,
        {chunk_elements(chunk), false, sent.indices, sent.values, tensor_maximum, random_, chunk * kChunkElements},
        scratch_.code, {scratch_.decoded.data(), count});
    if (is_momentum_masked(pipeline_))
        clear_sent_momentum(sent.indices, sent.decoded, request_.out.momentum + chunk * kChunkElements);
    append_payload(chunk, std::move(bytes), settle_sent(plan_, pipeline_.selector.is_faithful, sent, kernels_));
}

}  // namespace gradsieve::codec
