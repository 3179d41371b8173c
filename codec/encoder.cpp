// Runs the dense pass over a tensor, has each chunk's selection coded, and settles the state of what was sent. Three
// routes: dense selections and per-chunk selections finish chunk by chunk; tensor-wide selections (top-k, or a
// quantizer scaled over the tensor) observe all chunks first, then decide, then emit.
#include "codec/encoder.hpp"

#include "codec/dense_coder.hpp"
#include "codec/dense_pass.hpp"
#include "codec/encoder_check.hpp"
#include "codec/encoder_options.hpp"
#include "codec/encoder_settle.hpp"
#include "codec/workspace.hpp"

#include <bit>
#include <cmath>

namespace gradsieve::codec {
namespace {

/// Spans of a top-k pass: between two the collector may raise its floor.
constexpr std::size_t kTopKSpanElements = std::size_t{1} << 16U;
/// Below the last k-th magnitude by 1/16 to 1/8 of it (2^20 steps of the bit pattern): the usual step then lists at
/// most twice k candidates and needs no second look.
constexpr std::uint32_t kHintMarginBits = std::uint32_t{1} << 20U;
/// From this size on the output generation no longer fits in the second-level cache and is written around it.
constexpr ElementCount kStreamFromElements = ElementCount{1} << 17U;
constexpr std::uintptr_t kStreamAlignment = 64;

DenseRule dense_rule(const Pipeline& pipeline) {
    switch (pipeline.selector.kind) {
        case SelectorKind::kAll: return has_residual(pipeline) ? DenseRule::kEverything : DenseRule::kMean;
        case SelectorKind::kVariance: return DenseRule::kVariance;
        case SelectorKind::kVarianceHybrid: return DenseRule::kVarianceHybrid;
        case SelectorKind::kTopK: return has_variance(pipeline) ? DenseRule::kGatedTopK : DenseRule::kTopK;
    }
    return DenseRule::kEverything;
}

/// Every element goes through a list: the pass's output is read again at once.
bool is_dense_list(const Pipeline& pipeline) {
    return pipeline.selector.kind == SelectorKind::kAll && pipeline.quantizer.kind == QuantizerKind::kPow2;
}

bool is_aligned(const float* array) { return reinterpret_cast<std::uintptr_t>(array) % kStreamAlignment == 0; }

float largest_magnitude(float largest, std::span<const float> values) {
    for (const float value : values) largest = std::max(largest, std::fabs(value));
    return largest;
}

class TensorEncoder {
public:
    TensorEncoder(const EncodeRequest& request, const EncodeOptions& options, EncodeWorkspace::Impl& scratch)
        : request_(request), pipeline_(*request.pipeline), scratch_(scratch) {
        plan_dense_pass(options);
        pass_ = find_dense_pass(options.form, plan_);
    }

    EncodeResult run() {
        GRADSIEVE_CHECK(pass_ != nullptr);
        result_.variance_source = plan_.variance.source;
        if (request_.elements == 0) return std::move(result_);
        result_.chunks.reserve(chunk_count());
        const bool scales_by_tensor = pipeline_.quantizer.scope == Scope::kTensor;
        if (pipeline_.selector.kind == SelectorKind::kAll) {
            if (pipeline_.quantizer.kind == QuantizerKind::kPow2) encode_dense_by_chunk(scales_by_tensor);
            if (pipeline_.quantizer.kind != QuantizerKind::kPow2) encode_dense_by_tile();
        } else if (pipeline_.selector.kind == SelectorKind::kTopK) {
            if (collect_top_k()) emit_list();
        } else {
            encode_selected(scales_by_tensor);
        }
        if (result_.non_finite) {
            result_.chunks.clear();
            result_.kept_elements = 0;
        }
        return std::move(result_);
    }

private:
    void plan_dense_pass(const EncodeOptions& options);

    // Routes.
    void encode_dense_by_tile();
    void encode_dense_by_chunk(bool observes_first);
    void encode_selected(bool observes_first);
    bool collect_top_k();
    bool collect_candidates(std::uint32_t floor);
    void collect_again();
    void emit_list();
    void emit_list_chunk(std::size_t position, float tensor_maximum);

    // Pieces of a route.
    void point_at_inputs(ElementCount first);
    DenseSpan span_at(ElementCount first, std::size_t elements) const;
    bool run_pass(const DenseSpan& span, std::size_t& ret_listed);
    void append_payload(std::uint32_t chunk_index, Bytes bytes, std::size_t sent);

    std::uint32_t chunk_count() const {
        return static_cast<std::uint32_t>((request_.elements + kChunkElements - 1) / kChunkElements);
    }
    std::size_t chunk_elements(std::uint32_t chunk_index) const {
        return std::min<ElementCount>(kChunkElements, request_.elements - chunk_index * kChunkElements);
    }

    const EncodeRequest& request_;
    const Pipeline& pipeline_;
    EncodeWorkspace::Impl& scratch_;
    DensePlan plan_;
    DensePass pass_ = nullptr;
    EncodeResult result_;
};

void TensorEncoder::plan_dense_pass(const EncodeOptions& options) {
    const Selector& selector = pipeline_.selector;
    plan_.rule = dense_rule(pipeline_);
    if (has_variance(pipeline_)) plan_.variance = choose_variance_rule(request_, options.may_pool_variance);
    plan_.samples = request_.samples.data();
    plan_.weights = request_.weights.data();
    plan_.sample_count = request_.samples.size();
    if (plan_.variance.source == VarianceSource::kSecondMoment) {
        plan_.second_moments = request_.second_moments.data();
        plan_.second_moment_count = request_.second_moments.size();
    }
    plan_.in = request_.in;
    plan_.rescale = request_.rescale;
    plan_.rescale_squared = request_.rescale * request_.rescale;
    plan_.ratio_floor = static_cast<float>(selector.kind == SelectorKind::kTopK ? selector.gate : selector.alpha);
    plan_.zeta = static_cast<float>(selector.zeta);
    plan_.tau = static_cast<float>(selector.tau);
    plan_.settles_variance = selector.kind == SelectorKind::kVariance;
    plan_.settles_residual = selector.kind == SelectorKind::kVariance &&
                             (selector.is_faithful || pipeline_.quantizer.kind == QuantizerKind::kF32);
    plan_.streams = options.may_stream && plan_.rule != DenseRule::kMean && !is_dense_list(pipeline_) &&
                    request_.elements >= kStreamFromElements && is_aligned(request_.out.residual) &&
                    is_aligned(request_.out.variance);
    scratch_.samples.ensure(plan_.sample_count * kPooledElements);
    plan_.sample_scratch = scratch_.samples.data();
}

DenseSpan TensorEncoder::span_at(ElementCount first, std::size_t elements) const {
    DenseSpan span;
    span.first = first;
    span.elements = elements;
    span.first_index = static_cast<std::uint32_t>(first % kChunkElements);
    if (plan_.rule != DenseRule::kMean) span.residual_out = request_.out.residual + first;
    if (has_variance(pipeline_)) span.variance_out = request_.out.variance + first;
    return span;
}

bool TensorEncoder::run_pass(const DenseSpan& span, std::size_t& ret_listed) {
    const DenseOutcome outcome = pass_(plan_, span);
    ret_listed = outcome.listed;
    if (outcome.is_finite) return true;
    result_.non_finite = locate_non_finite(plan_, outcome.non_finite_block, request_.elements);
    return false;
}

void TensorEncoder::append_payload(std::uint32_t chunk_index, Bytes bytes, std::size_t sent) {
    if (bytes.empty()) return;
    result_.chunks.push_back({chunk_index, std::move(bytes)});
    result_.kept_elements += sent;
}

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
        tensor_maximum = largest_magnitude(tensor_maximum, values_of(chunk));
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

void TensorEncoder::encode_selected(bool observes_first) {
    SelectionList& list = scratch_.list;
    list.clear();
    for (std::uint32_t chunk = 0; chunk < chunk_count(); ++chunk) {
        if (!observes_first) list.clear();
        const std::size_t elements = chunk_elements(chunk);
        list.begin_chunk(chunk);
        list.reserve_more(elements + kListSlack, true);
        DenseSpan span = span_at(chunk * kChunkElements, elements);
        span.indices = list.end_indices();
        span.values = list.end_values();
        span.variances = list.end_variances();
        std::size_t listed = 0;
        if (!run_pass(span, listed)) return;
        list.commit(listed);
        if (observes_first) continue;
        finish_dense_pass(plan_);
        emit_list_chunk(0, 0);
    }
    if (observes_first) emit_list();
}

bool TensorEncoder::collect_candidates(std::uint32_t floor) {
    const std::size_t k = top_k_count(pipeline_.selector.ratio, request_.elements);
    const bool has_gate = plan_.rule == DenseRule::kGatedTopK;
    if (has_gate) scratch_.gate_words.ensure((request_.elements + kPooledElements - 1) / kPooledElements);
    scratch_.top_k.begin(scratch_.list, k, floor);
    for (ElementCount first = 0; first < request_.elements; first += kTopKSpanElements) {
        const std::size_t elements = std::min<ElementCount>(kTopKSpanElements, request_.elements - first);
        if (first % kChunkElements == 0) scratch_.list.begin_chunk(static_cast<std::uint32_t>(first / kChunkElements));
        scratch_.top_k.make_room(elements, kListSlack);
        DenseSpan span = span_at(first, elements);
        span.magnitude_floor = scratch_.top_k.floor();
        span.indices = scratch_.list.end_indices();
        span.values = scratch_.list.end_values();
        if (has_gate) span.gate_words = scratch_.gate_words.data() + first / kPooledElements;
        std::size_t listed = 0;
        if (!run_pass(span, listed)) return false;
        scratch_.list.commit(listed);
    }
    finish_dense_pass(plan_);
    return true;
}

/// The guess was too high: lists again from the residual just written, which is the accumulated gradient still.
void TensorEncoder::collect_again() {
    const bool has_gate = plan_.rule == DenseRule::kGatedTopK;
    scratch_.top_k.begin(scratch_.list, top_k_count(pipeline_.selector.ratio, request_.elements), 1);
    for (ElementCount first = 0; first < request_.elements; first += kTopKSpanElements) {
        const std::size_t elements = std::min<ElementCount>(kTopKSpanElements, request_.elements - first);
        if (first % kChunkElements == 0) scratch_.list.begin_chunk(static_cast<std::uint32_t>(first / kChunkElements));
        scratch_.top_k.make_room(elements, kListSlack);
        std::uint32_t* indices = scratch_.list.end_indices();
        float* values = scratch_.list.end_values();
        std::size_t listed = 0;
        for (ElementCount element = first; element < first + elements; ++element) {
            const float value = request_.out.residual[element];
            if ((std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU) < scratch_.top_k.floor()) continue;
            if (has_gate && ((scratch_.gate_words.data()[element / 32] >> (element % 32)) & 1U) == 0) continue;
            indices[listed] = static_cast<std::uint32_t>(element % kChunkElements);
            values[listed++] = value;
        }
        scratch_.list.commit(listed);
    }
}

bool TensorEncoder::collect_top_k() {
    const std::uint32_t hint = request_.selection_hint == nullptr ? 0 : *request_.selection_hint;
    if (!collect_candidates(hint > kHintMarginBits ? hint - kHintMarginBits : 1U)) return false;
    if (!scratch_.top_k.has_enough()) collect_again();
    const std::uint32_t threshold = scratch_.top_k.finish();
    if (request_.selection_hint != nullptr) *request_.selection_hint = threshold;
    return true;
}

void TensorEncoder::emit_list() {
    const bool wants_maximum = pipeline_.quantizer.scope == Scope::kTensor;
    const float tensor_maximum = wants_maximum ? largest_magnitude(0, scratch_.list.all_values()) : 0.0F;
    finish_dense_pass(plan_);
    for (std::size_t position = 0; position < scratch_.list.chunk_count(); ++position) {
        emit_list_chunk(position, tensor_maximum);
    }
}

void TensorEncoder::emit_list_chunk(std::size_t position, float tensor_maximum) {
    const SelectionList& list = scratch_.list;
    const std::size_t count = list.indices(position).size();
    if (count == 0) return;
    const std::uint32_t chunk = list.chunk_index(position);
    scratch_.decoded.ensure(count);
    SentChunk sent{
        list.indices(position), list.values(position), {}, {scratch_.decoded.data(), count}, nullptr, nullptr};
    Bytes bytes;
    code_chunk(pipeline_, {chunk_elements(chunk), false, sent.indices, sent.values, tensor_maximum}, scratch_.code,
               {scratch_.decoded.data(), count}, bytes);
    sent.residual_out = request_.out.residual + chunk * kChunkElements;
    if (has_variance(pipeline_)) sent.variance_out = request_.out.variance + chunk * kChunkElements;
    if (pipeline_.selector.kind != SelectorKind::kTopK) sent.variances = list.variances(position);
    append_payload(chunk, std::move(bytes), settle_sent(plan_, pipeline_.selector.is_faithful, sent));
}

}  // namespace

Result<EncodeResult> encode_tensor_with(const EncodeRequest& request, const EncodeOptions& options,
                                        EncodeWorkspace& workspace) {
    GRADSIEVE_TRY(check_encode_request(request));
    if (!is_cpu_form_supported(options.form)) {
        return parse_cpu_form(cpu_form_name(options.form)).error();
    }
    return TensorEncoder(request, options, workspace.impl()).run();
}

Result<EncodeResult> encode_tensor(const EncodeRequest& request, EncodeWorkspace& workspace) {
    GRADSIEVE_ASSIGN(const CpuForm form, Result<CpuForm>(chosen_cpu_form()));
    return encode_tensor_with(request, {form, true, true}, workspace);
}

}  // namespace gradsieve::codec
