// The route of a selection over several tensors: one member's phases.
#include "codec/encoder_check.hpp"
#include "codec/scope_member.hpp"
#include "codec/stages/accumulate.hpp"
#include "codec/tensor_encoder.hpp"

#include <bit>

namespace gradsieve::codec {
namespace {

void count_magnitudes(std::span<const float> values, ScopeMember::Impl& inout_member) {
    for (const float value : values)
        ++inout_member.counts[(std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU) >> kCountShift];
}

}  // namespace

EncodeResult TensorEncoder::run_phase(ScopePhase phase, const ScopeTerms& terms, ScopeMember::Impl& inout_member) {
    GRADSIEVE_CHECK(pass_ != nullptr && phase != ScopePhase::kCut);
    result_.variance_source = plan_.variance.source;
    guess_floor_ = inout_member.guess_floor;
    switch (phase) {
        case ScopePhase::kObserve:
            clip_samples();
            observe_member(terms, inout_member);
            break;
        case ScopePhase::kCount:
            restore_guessed();
            count_member(inout_member);
            break;
        case ScopePhase::kList:
            candidates_.top_k.begin(candidates_.list, terms.k, terms.floor);
            collect_residual(has_gate());
            break;
        case ScopePhase::kCut: break;
        case ScopePhase::kSettle: settle_member(inout_member); break;
    }
    inout_member.guess_floor = guess_floor_;
    return std::move(result_);
}

void TensorEncoder::observe_member(const ScopeTerms& terms, ScopeMember::Impl& inout_member) {
    const TopKHint hint(terms.hint);
    inout_member.is_counted = !hint.is_known();
    guess_floor_ = hint.is_known() ? hint.threshold() : kNeverGuess;
    if (hint.is_known()) {
        static_cast<void>(collect_candidates(terms.k, hint.floor()));
        return;
    }
    candidates_.list.clear();
    inout_member.counts.fill(0);
    for (ElementCount first = 0; first < request_.elements; first += kListSpanElements) {
        DenseSpan span = candidate_span(first, 1);
        std::size_t listed = 0;
        if (!list_cells(span, listed)) return;
        count_magnitudes({scratch_.span_cells.values.data(), listed}, inout_member);
    }
    finish_dense_pass(plan_);
}

void TensorEncoder::count_member(ScopeMember::Impl& inout_member) {
    inout_member.is_counted = true;
    inout_member.counts.fill(0);
    for (ElementCount first = 0; first < request_.elements; first += kListSpanElements) {
        const std::size_t elements = std::min<ElementCount>(kListSpanElements, request_.elements - first);
        std::size_t listed = list_residual(first, elements, 1);
        if (has_gate()) listed = keep_gated(first, listed);
        count_magnitudes({scratch_.span_cells.values.data(), listed}, inout_member);
    }
}

void TensorEncoder::settle_member(const ScopeMember::Impl& member) {
    result_.chunks.reserve(chunk_count());
    candidates_.top_k.finish_with(member.cutoff);
    restore_dropped();
    emit_list();
    if (has_low_pass(pipeline_)) filter_residual();
}

Result<EncodeResult> encode_member_with(ScopePhase phase, const ScopeTerms& terms, const EncodeRequest& request,
                                        const EncodeOptions& options, ScopeMember& inout_member,
                                        EncodeWorkspace& workspace) {
    GRADSIEVE_TRY(check_encode_request(request));
    if (!has_model_scope(*request.pipeline) || phase == ScopePhase::kCut || is_waiting(*request.pipeline, request.step))
        return Status(StatusCode::kInvalidArgument,
                      "phase of '" + canonical_text(*request.pipeline, Knobs::kKeep) +
                          "': allowed is a codec with topk(scope=model) at a step that sends, and no cut; call "
                          "encode_tensor or cut_scope");
    if (!is_cpu_form_supported(options.form)) return parse_cpu_form(cpu_form_name(options.form)).error();
    TopKCandidates& candidates = inout_member.impl().candidates;
    return TensorEncoder(request, options, workspace.impl(), candidates).run_phase(phase, terms, inout_member.impl());
}

Result<EncodeResult> encode_member(ScopePhase phase, const ScopeTerms& terms, const EncodeRequest& request,
                                   ScopeMember& inout_member, EncodeWorkspace& workspace) {
    GRADSIEVE_ASSIGN(const CpuForm form, Result<CpuForm>(chosen_cpu_form()));
    return encode_member_with(phase, terms, request, {form, true, true}, inout_member, workspace);
}

}  // namespace gradsieve::codec
