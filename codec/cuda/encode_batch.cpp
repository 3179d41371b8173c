#include "codec/cuda/encode_batch.hpp"

#include "codec/cuda/encode_sizes.hpp"
#include "codec/cuda/front_plan.hpp"
#include "codec/cuda/sample_source.hpp"
#include "codec/element.hpp"
#include "codec/payload.hpp"
#include "codec/philox.hpp"
#include "codec/random_mask.hpp"
#include "codec/rotation.hpp"
#include "codec/select_topk.hpp"
#include "codec/stages/accumulate.hpp"
#include "codec/stages/exponential_dither.hpp"
#include "codec/stages/stage_list.hpp"
#include "codec/threshold_estimate.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gradsieve::codec::cuda {
namespace {

/// Below the last k-th magnitude by 1/16 to 1/8 of it, as the CPU's forms guess.
constexpr std::uint32_t kHintMarginBits = std::uint32_t{1} << 20U;
constexpr std::uint32_t kInfinityBits = 0x7F800000U;
/// Smaller tensors have one group of tiles, whose block counts for itself.
constexpr std::uint32_t kLeastCountedTiles = kGroupTiles + 1;

/// Where a part of the tensor begins cannot show: chunks are whole vectors of every type.
bool is_aligned_for_vectors(const GpuEncodeRequest& gpu_request, const GpuEncodePart& part, const TensorPlan& plan) {
    const EncodeRequest& request = gpu_request.request;
    const auto is_at = [](const void* array, std::size_t alignment) {
        return reinterpret_cast<std::uintptr_t>(array) % alignment == 0;
    };
    bool is_aligned = is_at(plan.residual_in, kVectorBytes) && is_at(plan.residual_out, kVectorBytes) &&
                      is_at(plan.variance_in, kVectorBytes) && is_at(plan.variance_out, kVectorBytes) &&
                      is_at(part.in.momentum, kVectorBytes) && is_at(part.out.momentum, kVectorBytes);
    if (!reads_samples(gpu_request)) return is_aligned;
    for (std::size_t sample = 0; sample < request.samples.size(); ++sample) {
        const auto type = gpu_request.sample_types.empty() ? ElementType::kF32 : gpu_request.sample_types[sample];
        is_aligned = is_aligned && is_at(request.samples[sample], 4 * element_bytes(type));
    }
    for (std::uint32_t rank = 0; rank < plan.moment_count; ++rank)
        is_aligned = is_aligned && is_at(request.second_moments[rank], kVectorBytes);
    return is_aligned;
}

/// Whether nothing of the tensor can be sent before all of it was looked at.
bool is_decided_whole(const TensorPlan& plan) {
    return static_cast<Selection>(plan.selection) == Selection::kBest || plan.looks > 0 || plan.is_by_tensor != 0;
}

/// The dense pass lists nothing: no finite magnitude is above its limit.
void fill_estimate(const EncodeRequest& request, TensorPlan& ret_plan) {
    const EstimateRule rule = estimate_rule(request.pipeline->selector, request.elements);
    ret_plan.first_factor = rule.first_factor;
    ret_plan.next_factor = rule.next_factor;
    ret_plan.whole_elements = rule.elements;
    ret_plan.wanted = static_cast<std::uint32_t>(rule.wanted);
    ret_plan.keep_count = static_cast<std::uint32_t>(rule.most);
    ret_plan.looks = rule.looks;
    ret_plan.is_gaussian = rule.is_gaussian ? 1 : 0;
    ret_plan.magnitude_limit = kInfinityBits - 1U;
}

void fill_selector(const EncodeRequest& request, TensorPlan& ret_plan) {
    const Selector& selector = request.pipeline->selector;
    const SelectorStage& stage = stage_of(selector);
    const Selection selection = stage.selection;
    const bool is_top_k = selection == Selection::kBest;
    ret_plan.selection = static_cast<std::uint8_t>(selection);
    ret_plan.is_faithful = selector.is_faithful ? 1 : 0;
    ret_plan.is_hybrid = stage.tests_variance && stage.has_tau ? 1 : 0;
    ret_plan.ratio_floor = static_cast<float>(is_top_k ? selector.gate : selector.alpha);
    ret_plan.zeta = static_cast<float>(selector.zeta);
    if (stage.has_tau) ret_plan.magnitude_limit = element::magnitude_bits(static_cast<float>(selector.tau));
    if (selection == Selection::kBlockBest || selection == Selection::kBlockDrawn) {
        const auto block = static_cast<std::uint32_t>(selector.block);
        const bool is_drawn = selection == Selection::kBlockDrawn;
        (is_drawn ? ret_plan.draw_log2 : ret_plan.block_log2) = static_cast<std::uint8_t>(std::countr_zero(block));
        ret_plan.keep_count = static_cast<std::uint32_t>(top_k_count(selector.ratio, block));
        ret_plan.last_keep_count = static_cast<std::uint16_t>(top_k_count(selector.ratio, request.elements % block));
    }
    if (selection == Selection::kEstimated) fill_estimate(request, ret_plan);
    if (selection == Selection::kKeyed) {
        const IndexForm form = is_subset(selector) ? IndexForm::kSubset : IndexForm::kBernoulli;
        ret_plan.key_form = static_cast<std::uint8_t>(form);
        ret_plan.magnitude_limit = ~0U;  // the pass lists nothing
        if (drops_errors(selector)) ret_plan.raise_factor = raise_factor(selector, request.elements);
    }
    if (!is_top_k) return;
    ret_plan.keep_count = static_cast<std::uint32_t>(top_k_count(selector.ratio, request.elements));
    const std::uint32_t hint = request.selection_hint == nullptr ? 0 : *request.selection_hint;
    const std::uint32_t floor = hint > kHintMarginBits ? hint - kHintMarginBits : 1U;
    const bool is_guess = floor > 1 && floor < kInfinityBits;
    ret_plan.magnitude_limit = is_guess ? floor - 1U : 0U;
    ret_plan.has_low_floor = is_guess ? 0 : 1;
}

void fill_quantizer(const Pipeline& pipeline, TensorPlan& ret_plan) {
    const Quantizer& quantizer = pipeline.quantizer;
    if (has_rotation(pipeline))
        ret_plan.rotation = static_cast<std::uint8_t>(has_drive_scale(quantizer) ? Rotation::kDrive : Rotation::kPlain);
    ret_plan.quantizer = static_cast<std::uint8_t>(quantizer.kind);
    ret_plan.index_coder = static_cast<std::uint8_t>(pipeline.index_coder);
    ret_plan.code_bits = static_cast<std::uint8_t>(code_bits(quantizer));
    ret_plan.is_by_tensor = quantizer.scope == Scope::kTensor ? 1 : 0;
    // Random numbers would cost the dense pass its registers: such lists are sent by the kernel of those that wait.
    const QuantizerFacts& facts = facts_of(quantizer.kind);
    const Draw draw = facts.has_base || facts.has_step ? Draw::kExponential
                      : is_random(quantizer)           ? Draw::kRandom
                                                       : Draw::kNone;
    const bool is_drawn_list = draw != Draw::kNone && !sends_all(pipeline.selector) && !is_keyed(pipeline.selector);
    ret_plan.is_deferred =
        is_decided_whole(ret_plan) || is_drawn_list || ret_plan.block_log2 > 0 || ret_plan.draw_log2 > 0 ? 1 : 0;
    ret_plan.draws = static_cast<std::uint8_t>(draw);
    ret_plan.is_scaled = is_random(quantizer) && quantizer.feedback == Feedback::kScaled ? 1 : 0;
    ret_plan.is_biased = quantizer.is_biased ? 1 : 0;
    ret_plan.is_fixed = quantizer.is_fixed ? 1 : 0;
    ret_plan.sign_scale = static_cast<float>(quantizer.tau);
    ret_plan.value_bytes = facts.number_bits > 0 ? facts.number_bits / 8 : facts.has_step ? 4 : 1;
    if (facts.has_step) {
        ret_plan.base = static_cast<float>(quantizer.scale);
        ret_plan.depth_per_bit = integer_step_size(ret_plan.base);
    }
    if (facts.has_base) {
        ret_plan.base = static_cast<float>(quantizer.base);
        ret_plan.depth_per_bit = depth_per_bit(ret_plan.base);
    }
    if (facts.has_buckets)
        ret_plan.bucket_log2 =
            static_cast<std::uint8_t>(std::countr_zero(static_cast<std::uint32_t>(quantizer.bucket)));
    if (!facts.is_dithered) return;
    ret_plan.levels = static_cast<std::uint32_t>(quantizer.levels);
    ret_plan.is_max_norm = quantizer.norm == Norm::kMax ? 1 : 0;
    ret_plan.clip = static_cast<float>(quantizer.clip);
    ret_plan.needs_squares = ret_plan.is_max_norm == 0 || ret_plan.is_scaled != 0 || ret_plan.clip > 0.0F ? 1 : 0;
}

void fill_random(const EncodeRequest& request, const GpuEncodePart& part, TensorPlan& ret_plan) {
    ret_plan.first_element = static_cast<std::uint32_t>(part.range.first);
    if (static_cast<Draw>(ret_plan.draws) == Draw::kNone && ret_plan.draw_log2 == 0) return;
    ret_plan.stream = rounding_stream(request.random_seed, request.tensor, request.step);
    ret_plan.random = stream_rounds(ret_plan.stream);
}

void fill_state(const EncodeRequest& request, const GpuEncodePart& part, const VarianceRule& rule,
                TensorPlan& ret_plan) {
    ret_plan.rescale = residual_factor(request.pipeline->front, request.rescale);
    ret_plan.rescale_squared = request.rescale * request.rescale;
    ret_plan.moment_scale = rule.moment_scale;
    ret_plan.deviation_scale = rule.deviation_scale;
    ret_plan.noise_share = rule.noise_share;
    ret_plan.mean_share = rule.mean_share;
    if (has_residual(*request.pipeline)) {
        ret_plan.residual_in = part.in.residual;
        ret_plan.residual_out = part.out.residual;
    }
    if (!has_variance(*request.pipeline)) return;
    ret_plan.has_variance = 1;
    ret_plan.variance_in = part.in.variance;
    ret_plan.variance_out = part.out.variance;
}

/// SharedCounts that hold the sums of a part of so many tiles twice: a row in front, and one for each chunk.
std::uint32_t shared_rows_of(std::uint32_t tiles) {
    const ByteCount rows = 2 * (1 + (ByteCount{tiles} + kChunkTiles - 1) / kChunkTiles);
    return static_cast<std::uint32_t>((rows * kEstimateRowBytes + sizeof(SharedCounts) - 1) / sizeof(SharedCounts));
}

}  // namespace

Status EncodeBatch::plan(std::span<const GpuEncodeRequest> requests, const DevicePlace& place,
                         const GpuEncoderLimits& limits) {
    for (std::size_t request = 0; request < requests.size(); ++request) {
        if (const Status status = check_gpu_request(requests[request], place.count); !status.is_ok())
            return status.with_context("tensor " + std::to_string(request) + " of the batch");
    }
    clear();
    for (const GpuEncodeRequest& request : requests) {
        const Pipeline pipeline = step_pipeline(*request.request.pipeline, request.request.step);
        GpuEncodeRequest of_step = request;
        of_step.request.pipeline = &pipeline;
        plan_tensor(of_step, place);
    }
    plan_rounds(limits);
    lay_out();
    return {};
}

void EncodeBatch::clear() {
    tensors_.clear();
    fronts_.clear();
    has_fronts_ = false;
    ranges_.clear();
    selections_.clear();
    rotations_.clear();
    sources_.clear();
    scopes_.clear();
    wanted_.clear();
    most_tiles_.clear();
    first_shared_.clear();
    shared_count_ = 0;
    staged_.clear();
    elements_ = 0;
    has_top_k_ = false;
    order_.clear();
    rounds_.clear();
    passes_.clear();
    chunks_.clear();
    chunk_rows_.clear();
    first_tiles_.clear();
    first_groups_.clear();
    slots_ = {};
    dense_payload_bytes_ = 0;
    payload_bound_bytes_ = 0;
    mean_bytes_ = 0;
}

void EncodeBatch::plan_tensor(const GpuEncodeRequest& gpu_request, const DevicePlace& place) {
    const EncodeRequest& request = gpu_request.request;
    const Pipeline& pipeline = *request.pipeline;
    const VarianceRule rule = has_variance(pipeline) ? choose_variance_rule(request, true) : VarianceRule{};
    const GpuEncodePart part = part_of(gpu_request, place);
    const bool has_moments = rule.source == VarianceSource::kSecondMoment;
    TensorPlan& plan = tensors_.emplace_back();
    plan.elements = static_cast<std::uint32_t>(part.range.elements);
    plan.tile_count = tiles_in(part.range.elements);
    fronts_.push_back(front_plan_of(request, part));
    has_fronts_ = has_fronts_ || fronts_.back().momentum_out != nullptr || fronts_.back().take > 0;
    plan.sample_count = fronts_.back().momentum_out != nullptr ? fronts_.back().first_sample
                                                               : static_cast<std::uint32_t>(request.samples.size());
    plan.moment_count = has_moments ? static_cast<std::uint32_t>(request.second_moments.size()) : 0;
    fill_selector(request, plan);
    fill_quantizer(pipeline, plan);
    fill_random(request, part, plan);
    fill_state(request, part, rule, plan);
    scopes_.push_back(scope_plan_of(gpu_request, place.place, plan));
    plan.is_aligned = is_aligned_for_vectors(gpu_request, part, plan) ? 1 : 0;
    ranges_.push_back(part.range);
    selections_.push_back(is_keyed(pipeline.selector) ? SelectionPlan(pipeline.selector, request.selection_seed,
                                                                      request.tensor, request.step, request.elements)
                                                      : SelectionPlan());
    rotations_.push_back(
        {rotation_seed(pipeline.quantizer, request.selection_seed, request.random_seed), request.tensor, request.step});
    add_arrays(gpu_request, part, place, has_moments);
    share(gpu_request, place, plan);
    const bool is_top_k = selection_of(pipeline.selector) == Selection::kBest;
    const bool has_guess = is_top_k && plan.has_low_floor == 0;
    plan.has_fine_counts = has_guess && first_shared_.back() == kNothing && plan.tile_count >= kLeastCountedTiles;
    has_top_k_ = has_top_k_ || is_top_k || plan.looks > 0;
    elements_ += part.range.elements;
    sources_.push_back(rule.source);
    add_wanted(tensors_.size() - 1);
}

void EncodeBatch::add_arrays(const GpuEncodeRequest& gpu_request, const GpuEncodePart& part, const DevicePlace& place,
                             bool has_moments) {
    const EncodeRequest& request = gpu_request.request;
    staged_.add_tensor();
    if (!reads_samples(gpu_request)) return;
    add_momentum_samples(request, part, staged_);
    for (std::size_t sample = 0; sample < request.samples.size(); ++sample) {
        auto source = sample_source(gpu_request, part, place, sample);
        source.weight = has_momentum(*request.pipeline)
                            ? request.weights[sample]  // of u, whose own weight has gamma
                            : gradient_weight(request.pipeline->front, request.weights[sample]);
        staged_.add_sample(source);
    }
    for (std::size_t rank = 0; has_moments && rank < request.second_moments.size(); ++rank)
        staged_.add_moment(moment_source(gpu_request, part, place, rank));
}

/// A tensor that is decided as a whole and has parts on several devices gets counts for each.
void EncodeBatch::share(const GpuEncodeRequest& gpu_request, const DevicePlace& place, TensorPlan& inout_plan) {
    most_tiles_.push_back(inout_plan.tile_count);
    first_shared_.push_back(kNothing);
    for (std::size_t device = 0; device < gpu_request.parts.size(); ++device) {
        const ElementCount elements = gpu_request.parts[device].range.elements;
        if (elements == 0) continue;
        most_tiles_.back() = std::max(most_tiles_.back(), tiles_in(elements));
        if (device < place.place) ++inout_plan.part;
        ++inout_plan.part_count;
    }
    if (gpu_request.scope) {  // decided by whoever joins all tensors' counts
        if (gpu_request.scope->phase == ScopePhase::kSettle) return;
        scopes_.back().first_count = static_cast<std::uint32_t>(shared_count_);
        shared_count_ += std::max<std::size_t>(1, inout_plan.part_count);
        return;
    }
    if (!is_decided_whole(inout_plan) || inout_plan.part_count < 2) return;
    first_shared_.back() = static_cast<std::uint32_t>(shared_count_);
    inout_plan.shared_rows = inout_plan.looks > 0 ? shared_rows_of(most_tiles_.back()) : 0;
    shared_count_ += std::size_t{inout_plan.part_count} * (1 + inout_plan.shared_rows);
}

void EncodeBatch::lay_out() {
    dense_payload_bytes_ = aligned(dense_payload_bytes_);
    payload_bound_bytes_ += dense_payload_bytes_;
    for (ChunkPlan& chunk : chunks_)
        if (needs_means(tensors_[chunk.tensor])) chunk.payload_offset += aligned_to_line(payload_bound_bytes_);
    ByteCount at = 0;
    const auto place = [&at](ByteCount& ret_offset, std::size_t count, std::size_t bytes) {
        at = aligned(at);
        ret_offset = at;
        at += ByteCount{count} * bytes;
    };
    place(layout_.tensors, tensors_.size(), sizeof(TensorPlan));
    place(layout_.fronts, has_fronts_ ? fronts_.size() : 0, sizeof(FrontPlan));
    place(layout_.chunks, chunks_.size(), sizeof(ChunkPlan));
    place(layout_.first_tiles, chunks_.size(), sizeof(std::uint32_t));
    place(layout_.first_groups, chunks_.size(), sizeof(std::uint32_t));
    place(layout_.samples, staged_.sample_rows(), sizeof(SampleView));
    place(layout_.moments, staged_.moment_rows(), sizeof(const float*));
    place(layout_.tickets, passes_.size(), sizeof(std::uint32_t));
    place(layout_.tensor_states, tensors_.size(), sizeof(TensorState));
    place(layout_.cursor, 1, sizeof(std::uint64_t));
    place(layout_.results, chunks_.size(), sizeof(ChunkResult));
    layout_.end = at;
}

void EncodeBatch::write_upload(std::byte* host, const EncodeAddresses& addresses) const {
    const auto write = [host](ByteCount offset, const auto& array) {
        if (!array.empty()) std::memcpy(host + offset, array.data(), array.size() * sizeof(array[0]));
    };
    write(layout_.tensors, tensors_);
    if (has_fronts_) write(layout_.fronts, fronts_);
    write(layout_.chunks, chunks_);
    write(layout_.first_tiles, first_tiles_);
    write(layout_.first_groups, first_groups_);
    staged_.write_rows(addresses.staging, reinterpret_cast<SampleView*>(host + layout_.samples),
                       reinterpret_cast<const float**>(host + layout_.moments));
    std::memset(host + layout_.tickets, 0, layout_.end - layout_.tickets);
    std::memcpy(host + layout_.cursor, &dense_payload_bytes_, sizeof(dense_payload_bytes_));
    for (std::size_t pass = 0; pass < passes_.size(); ++pass)
        reinterpret_cast<std::uint32_t*>(host + layout_.tickets)[pass] = passes_[pass].first_tile;
    for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
        reinterpret_cast<TensorState*>(host + layout_.tensor_states)[tensor] = scopes_[tensor].state;
        const std::uint32_t first = std::min(first_shared_[tensor], scopes_[tensor].first_count);
        if (first != kNothing)
            reinterpret_cast<TensorPlan*>(host + layout_.tensors)[tensor].shared = addresses.shared + first;
    }
    const auto* samples = reinterpret_cast<const SampleView*>(addresses.plan + layout_.samples);
    const auto* moments = reinterpret_cast<const float* const*>(addresses.plan + layout_.moments);
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
        auto& plan = reinterpret_cast<ChunkPlan*>(host + layout_.chunks)[chunk];
        const auto& rows = staged_.chunk_rows(chunk_rows_[chunk]);
        plan.samples = samples + rows.first_sample;
        plan.moments = moments + rows.first_moment;
    }
}

}  // namespace gradsieve::codec::cuda
