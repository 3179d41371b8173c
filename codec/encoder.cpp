// The beginning and the end of encoding: what to plan from a request, which route to take. The routes themselves are in
// tensor_encoder_dense.cpp and tensor_encoder_list.cpp.
#include "codec/encoder.hpp"

#include "codec/difference.hpp"
#include "codec/element.hpp"
#include "codec/encoder_check.hpp"
#include "codec/local_clip.hpp"
#include "codec/low_pass.hpp"
#include "codec/natural_coder.hpp"
#include "codec/stages/accumulate.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage_list.hpp"
#include "codec/stages/warmup.hpp"
#include "codec/tensor_encoder.hpp"
#include "codec/threshold_estimate.hpp"

namespace gradsieve::codec {
namespace {

/// From this size on the output generation no longer fits in the second-level cache and is written around it.
constexpr ElementCount kStreamFromElements = ElementCount{1} << 17U;
constexpr std::uintptr_t kStreamAlignment = 64;

DenseRule dense_rule(const Pipeline& pipeline) {
    if (has_rotation(pipeline)) return has_residual(pipeline) ? DenseRule::kEverything : DenseRule::kMean;
    if (has_phases(pipeline)) return DenseRule::kEverything;
    const SelectorStage& selector = stage_of(pipeline.selector);
    switch (selector.selection) {
        case Selection::kEvery: return coder_of(pipeline.quantizer.kind).dense_rule(pipeline.quantizer);
        case Selection::kTested:
            if (!selector.tests_variance) return DenseRule::kMagnitude;
            return selector.has_tau ? DenseRule::kVarianceHybrid : DenseRule::kVariance;
        case Selection::kBlockBest:
        case Selection::kBlockDrawn:
        case Selection::kEstimated: return DenseRule::kMagnitude;
        case Selection::kKeyed: return drops_errors(pipeline.selector) ? DenseRule::kMean : DenseRule::kEverything;
        case Selection::kBest: return has_variance(pipeline) ? DenseRule::kGatedMagnitude : DenseRule::kMagnitude;
    }
    return DenseRule::kEverything;
}

/// Every element goes through a list: the pass's output is read again at once.
bool is_dense_list(const Pipeline& pipeline) {
    return sends_all(pipeline.selector) && facts_of(pipeline.quantizer.kind).route == DenseRoute::kList;
}

bool is_aligned(const float* array) { return reinterpret_cast<std::uintptr_t>(array) % kStreamAlignment == 0; }

/// The pass writes to a buffer.
bool is_read_at_once(const Pipeline& pipeline) {
    return has_rotation(pipeline) || (is_keyed(pipeline.selector) && drops_errors(pipeline.selector));
}

/// What the pass may take off r before anybody knows the tile's scale.
SentGuess guess_of(const Pipeline& pipeline) {
    return pipeline.selector.is_faithful ? kGuessWhole : coder_of(pipeline.quantizer.kind).guess();
}

}  // namespace

TensorEncoder::TensorEncoder(const EncodeRequest& request, const EncodeOptions& options, EncodeWorkspace::Impl& scratch,
                             TopKCandidates& candidates)
    : request_(request),
      pipeline_(*request.pipeline),
      scratch_(scratch),
      candidates_(candidates),
      selection_(selection_of(pipeline_.selector)),
      form_(options.form),
      kernels_(*payload_kernels_of(options.form)),
      random_(rounding_stream(request.random_seed, request.tensor, request.step)) {
    plan_dense_pass(options);
    pass_ = find_dense_pass(options.form, plan_);
    scratch_.code.kernels = &kernels_;
    scratch_.code.payloads = request.payloads != nullptr ? *request.payloads : scratch.payloads;
}

EncodeResult TensorEncoder::run() {
    GRADSIEVE_CHECK(pass_ != nullptr);
    result_.variance_source = plan_.variance.source;
    if (request_.elements == 0) return std::move(result_);
    clip_samples();
    result_.chunks.reserve(chunk_count());
    const bool scales_by_tensor = pipeline_.quantizer.scope == Scope::kTensor;
    switch (selection_) {
        case Selection::kEvery:
            if (has_rotation(pipeline_))
                encode_rotated();
            else if (is_dense_list(pipeline_))
                encode_dense_list(scales_by_tensor);
            else
                encode_dense();
            break;
        case Selection::kBest:
            if (collect_top_k()) emit_list();
            break;
        case Selection::kEstimated:
            if (collect_estimated()) emit_list();
            break;
        case Selection::kKeyed: encode_keyed(); break;
        case Selection::kTested:
        case Selection::kBlockBest:
        case Selection::kBlockDrawn: encode_selected(scales_by_tensor); break;
    }
    if (result_.non_finite) {
        result_.chunks.clear();
        result_.kept_elements = 0;
    } else if (has_low_pass(pipeline_)) {
        filter_residual();
    }
    return std::move(result_);
}

/// Once r is what was not sent, wherever that was settled.
void TensorEncoder::filter_residual() const {
    const LowPassStep step = low_pass_step(request_);
    for (std::uint32_t chunk = 0; chunk < chunk_count(); ++chunk)
        kernels_.low_pass(&step, chunk * kChunkElements, static_cast<std::uint32_t>(chunk_elements(chunk)));
}

void TensorEncoder::plan_dense_pass(const EncodeOptions& options) {
    const Selector& selector = pipeline_.selector;
    plan_.rule = dense_rule(pipeline_);
    if (has_variance(pipeline_)) plan_.variance = choose_variance_rule(request_, options.may_pool_variance);
    plan_samples();
    if (plan_.variance.source == VarianceSource::kSecondMoment) {
        plan_.second_moments = request_.second_moments.data();
        plan_.second_moment_count = request_.second_moments.size();
    }
    plan_.in = request_.in;
    plan_.rescale = residual_factor(pipeline_.front, request_.rescale);
    plan_.rescale_squared = request_.rescale * request_.rescale;
    plan_.ratio_floor = static_cast<float>(selection_ == Selection::kBest ? selector.gate : selector.alpha);
    plan_.zeta = static_cast<float>(selector.zeta);
    plan_.tau = static_cast<float>(selector.tau);
    plan_.natural = natural_step(pipeline_.quantizer, random_, 0);
    plan_.guess = guess_of(pipeline_);
    plan_.guesses_variance = plan_.rule != DenseRule::kVarianceHybrid;
    if (selection_ == Selection::kTested && plan_.guesses_variance) guess_floor_ = 0;
    const bool is_read_again = is_dense_list(pipeline_) || selection_ == Selection::kEstimated ||
                               is_read_at_once(pipeline_) || has_phases(pipeline_) || has_delta(pipeline_);
    plan_.streams = options.may_stream && !is_read_again && request_.elements >= kStreamFromElements &&
                    is_aligned(request_.out.residual) && is_aligned(request_.out.variance);
    scratch_.samples.ensure(plan_.sample_count * kPooledElements);
    plan_.sample_scratch = scratch_.samples.data();
}

void TensorEncoder::plan_samples() {
    plan_.samples = request_.samples.data();
    plan_.weights = request_.weights.data();
    plan_.sample_count = request_.samples.size();
    if (!has_momentum(pipeline_) && pipeline_.front.gamma == 1) return;
    if (!has_momentum(pipeline_)) {
        scratch_.sample_weights.ensure(plan_.sample_count);
        for (std::size_t sample = 0; sample < plan_.sample_count; ++sample)
            scratch_.sample_weights.data()[sample] = gradient_weight(pipeline_.front, request_.weights[sample]);
        plan_.weights = scratch_.sample_weights.data();
        return;
    }
    momentum_ = momentum_step(request_);
    momentum_samples_ =
        momentum_samples(pipeline_.front, request_.rescale, request_.in.momentum, request_.out.momentum);
    plan_.samples = momentum_samples_.samples.data();
    plan_.weights = momentum_samples_.weights.data();
    plan_.sample_count = momentum_samples_.count;
}

/// Before the first pass: u takes in nothing that is not clipped.
void TensorEncoder::clip_samples() {
    if (!has_local_clip(pipeline_)) return;
    scratch_.tile_mean.ensure(kTileElements);
    const double square_sum =
        mean_square_sum(momentum_, request_.elements, kernels_, {scratch_.tile_mean.data(), kTileElements});
    const float factor = clip_factor(pipeline_.front.clip, request_.node_count, square_sum);
    if (factor == 1.0F) return;
    scratch_.sample_weights.ensure(momentum_.sample_count);
    for (std::size_t sample = 0; sample < momentum_.sample_count; ++sample)
        scratch_.sample_weights.data()[sample] = request_.weights[sample] * factor;
    momentum_.weights = scratch_.sample_weights.data();
}

DenseSpan TensorEncoder::span_at(ElementCount first, std::size_t elements) const {
    DenseSpan span;
    span.first = first;
    span.elements = elements;
    span.first_index = static_cast<std::uint32_t>(first % kChunkElements);
    if (selection_ == Selection::kTested && plan_.rule == DenseRule::kMagnitude)
        span.magnitude_floor = element::magnitude_bits(plan_.tau) + 1;  // the test is strict
    if (selection_ == Selection::kBlockBest) span.magnitude_floor = block_floor_;
    if (has_residual(plan_.rule)) span.residual_out = request_.out.residual + first;
    if (has_variance(pipeline_)) span.variance_out = request_.out.variance + first;
    return span;
}

bool TensorEncoder::run_pass(const DenseSpan& span, DenseOutcome& ret_outcome) {
    if (has_momentum(pipeline_))
        kernels_.accumulate_momentum(&momentum_, span.first, static_cast<std::uint32_t>(span.elements));
    ret_outcome = pass_(plan_, span);
    if (ret_outcome.is_finite) return true;
    if (has_momentum(pipeline_)) {
        const ElementCount block = ret_outcome.non_finite_block;
        const ElementCount end = std::min<ElementCount>(block + kPooledElements, request_.elements);
        result_.non_finite = locate_momentum_trouble(request_, momentum_, has_residual(plan_.rule), block, end)
                                 .value_or(NonFinite{0, block});
        return false;
    }
    result_.non_finite = locate_non_finite(plan_, ret_outcome.non_finite_block, request_.elements);
    return false;
}

void TensorEncoder::append_payload(std::uint32_t chunk_index, PayloadBytes bytes, std::size_t sent) {
    if (bytes.empty()) return;
    result_.chunks.push_back({chunk_index, std::move(bytes)});
    result_.kept_elements += sent;
}

Result<EncodeResult> encode_tensor_with(const EncodeRequest& request, const EncodeOptions& options,
                                        EncodeWorkspace& workspace) {
    GRADSIEVE_TRY(check_encode_request(request));
    if (!is_cpu_form_supported(options.form)) {
        return parse_cpu_form(cpu_form_name(options.form)).error();
    }
    const Pipeline pipeline = step_pipeline(*request.pipeline, request.step);
    if (has_phases(pipeline))
        return Status(StatusCode::kInvalidArgument, "codec '" + canonical_text(pipeline, Knobs::kKeep) +
                                                        "': allowed are codecs of one phase here; call encode_phase");
    EncodeRequest of_step = request;
    of_step.pipeline = &pipeline;
    auto sent = TensorEncoder(of_step, options, workspace.impl(), workspace.impl().candidates).run();
    if (!has_delta(pipeline)) return sent;
    return follow_sent(of_step, std::move(sent), workspace.impl().sent);
}

Result<EncodeResult> encode_tensor(const EncodeRequest& request, EncodeWorkspace& workspace) {
    GRADSIEVE_ASSIGN(const CpuForm form, Result<CpuForm>(chosen_cpu_form()));
    return encode_tensor_with(request, {form, true, true}, workspace);
}

}  // namespace gradsieve::codec
