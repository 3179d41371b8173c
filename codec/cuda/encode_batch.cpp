#include "codec/cuda/encode_batch.hpp"

#include "codec/payload.hpp"
#include "codec/select_topk.hpp"

#include <algorithm>
#include <cstring>

namespace gradsieve::codec::cuda {
namespace {

/// Below the last k-th magnitude by 1/16 to 1/8 of it, as the CPU's forms guess.
constexpr std::uint32_t kHintMarginBits = std::uint32_t{1} << 20U;
constexpr std::uint32_t kInfinityBits = 0x7F800000U;
/// Vectors of a dense payload's values.
constexpr ByteCount kPayloadAlignment = 16;
/// Header, exponents or scales, and what sections lose by ending at a byte.
constexpr ByteCount kListOverheadBytes = 1024;

std::uint32_t tiles_in(ElementCount elements) { return static_cast<std::uint32_t>(tiles_of(elements)); }
ByteCount aligned(ByteCount bytes) { return (bytes + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment; }

bool is_dense_plan(const TensorPlan& plan) {
    return static_cast<SelectorKind>(plan.selector) == SelectorKind::kAll &&
           static_cast<QuantizerKind>(plan.quantizer) != QuantizerKind::kPow2;
}

/// Bytes that no list of this chunk exceeds: Rice codes need at most a bit per element, as a bitmap does.
ByteCount list_bound(const TensorPlan& plan, ElementCount elements) {
    const bool has_words = static_cast<IndexCoderKind>(plan.index_coder) == IndexCoderKind::kRaw32;
    const ByteCount indices = has_words ? 4 * elements : bytes_of_bits(elements);
    const bool is_sign = static_cast<QuantizerKind>(plan.quantizer) == QuantizerKind::kSign;
    const bool is_pow2 = static_cast<QuantizerKind>(plan.quantizer) == QuantizerKind::kPow2;
    const ByteCount value_bits = is_sign ? 1 : is_pow2 ? plan.pow2_bits : ByteCount{plan.value_bytes} * 8;
    return aligned(indices + bytes_of_bits(elements * value_bits) + kListOverheadBytes);
}

/// Bytes of a dense payload before its values or bits.
ByteCount dense_header_bytes(const TensorPlan& plan, std::uint32_t tiles) {
    const bool is_sign = static_cast<QuantizerKind>(plan.quantizer) == QuantizerKind::kSign;
    return 2 + (is_sign ? ByteCount{tiles} * sizeof(float) : 0);
}
ByteCount dense_value_bytes(const TensorPlan& plan, ElementCount elements) {
    if (static_cast<QuantizerKind>(plan.quantizer) == QuantizerKind::kSign) return bytes_of_bits(elements);
    return elements * plan.value_bytes;
}

bool is_aligned_for_vectors(const GpuEncodeRequest& gpu_request, const TensorPlan& plan) {
    const EncodeRequest& request = gpu_request.request;
    const auto is_at = [](const void* array, std::size_t alignment) {
        return reinterpret_cast<std::uintptr_t>(array) % alignment == 0;
    };
    bool is_aligned = is_at(plan.residual_in, 16) && is_at(plan.residual_out, 16) && is_at(plan.variance_in, 16) &&
                      is_at(plan.variance_out, 16);
    for (std::size_t sample = 0; sample < request.samples.size(); ++sample) {
        const bool is_f32 = gpu_request.sample_types.empty() || gpu_request.sample_types[sample] == ElementType::kF32;
        is_aligned = is_aligned && is_at(request.samples[sample], is_f32 ? 16 : 8);
    }
    for (std::uint32_t rank = 0; rank < plan.moment_count; ++rank)
        is_aligned = is_aligned && is_at(request.second_moments[rank], 16);
    return is_aligned;
}

void fill_selector(const EncodeRequest& request, TensorPlan& ret_plan) {
    const Selector& selector = request.pipeline->selector;
    const bool is_top_k = selector.kind == SelectorKind::kTopK;
    ret_plan.selector = static_cast<std::uint8_t>(selector.kind);
    ret_plan.is_faithful = selector.kind == SelectorKind::kVariance && selector.is_faithful ? 1 : 0;
    ret_plan.is_hybrid = selector.kind == SelectorKind::kVarianceHybrid ? 1 : 0;
    ret_plan.ratio_floor = static_cast<float>(is_top_k ? selector.gate : selector.alpha);
    ret_plan.zeta = static_cast<float>(selector.zeta);
    ret_plan.least_magnitude = ret_plan.is_hybrid != 0 ? static_cast<float>(selector.tau) : -1.0F;
    if (!is_top_k) return;
    ret_plan.keep_count = static_cast<std::uint32_t>(top_k_count(selector.ratio, request.elements));
    const std::uint32_t hint = request.selection_hint == nullptr ? 0 : *request.selection_hint;
    const std::uint32_t floor = hint > kHintMarginBits ? hint - kHintMarginBits : 1U;
    const bool is_guess = floor > 1 && floor < kInfinityBits;
    ret_plan.magnitude_floor = is_guess ? floor : 1U;
    ret_plan.has_low_floor = is_guess ? 0 : 1;
}

void fill_quantizer(const Pipeline& pipeline, TensorPlan& ret_plan) {
    const Quantizer& quantizer = pipeline.quantizer;
    ret_plan.quantizer = static_cast<std::uint8_t>(quantizer.kind);
    ret_plan.index_coder = static_cast<std::uint8_t>(pipeline.index_coder);
    ret_plan.pow2_bits = static_cast<std::uint8_t>(quantizer.bits);
    ret_plan.is_by_tensor = quantizer.kind == QuantizerKind::kPow2 && quantizer.scope == Scope::kTensor ? 1 : 0;
    ret_plan.is_deferred = pipeline.selector.kind == SelectorKind::kTopK || ret_plan.is_by_tensor != 0 ? 1 : 0;
    switch (quantizer.kind) {
        case QuantizerKind::kF32: ret_plan.value_bytes = 4; break;
        case QuantizerKind::kBf16: ret_plan.value_bytes = 2; break;
        case QuantizerKind::kPow2: ret_plan.value_bytes = 1; break;
        case QuantizerKind::kSign:
            ret_plan.value_bytes = 1;
            ret_plan.sign_scale = static_cast<float>(quantizer.tau);
            break;
    }
}

void fill_state(const EncodeRequest& request, const VarianceRule& rule, TensorPlan& ret_plan) {
    ret_plan.rescale = request.rescale;
    ret_plan.rescale_squared = request.rescale * request.rescale;
    ret_plan.moment_scale = rule.moment_scale;
    ret_plan.deviation_scale = rule.deviation_scale;
    ret_plan.noise_share = rule.noise_share;
    ret_plan.mean_share = rule.mean_share;
    if (has_residual(*request.pipeline)) {
        ret_plan.residual_in = request.in.residual;
        ret_plan.residual_out = request.out.residual;
    }
    if (!has_variance(*request.pipeline)) return;
    ret_plan.has_variance = 1;
    ret_plan.variance_in = request.in.variance;
    ret_plan.variance_out = request.out.variance;
}

}  // namespace

bool EncodeBatch::is_dense(std::size_t tensor) const noexcept { return is_dense_plan(tensors_[tensor]); }

ByteCount EncodeBatch::dense_chunk_bytes(const ChunkPlan& chunk) const noexcept {
    const TensorPlan& plan = tensors_[chunk.tensor];
    return dense_header_bytes(plan, chunk.tiles) + dense_value_bytes(plan, chunk.elements);
}

Status EncodeBatch::plan(std::span<const GpuEncodeRequest> requests, ElementCount batch_elements) {
    for (std::size_t request = 0; request < requests.size(); ++request) {
        if (const Status status = check_gpu_request(requests[request]); !status.is_ok())
            return status.with_context("tensor " + std::to_string(request) + " of the batch");
    }
    tensors_.clear();
    sources_.clear();
    wanted_.clear();
    first_samples_.clear();
    first_moments_.clear();
    samples_.clear();
    moments_.clear();
    elements_ = 0;
    has_top_k_ = false;
    for (const GpuEncodeRequest& request : requests) plan_tensor(request);
    plan_rounds(batch_elements);
    lay_out();
    return {};
}

void EncodeBatch::plan_tensor(const GpuEncodeRequest& gpu_request) {
    const EncodeRequest& request = gpu_request.request;
    const Pipeline& pipeline = *request.pipeline;
    const VarianceRule rule = has_variance(pipeline) ? choose_variance_rule(request, true) : VarianceRule{};
    TensorPlan plan{};
    plan.elements = static_cast<std::uint32_t>(request.elements);
    plan.tile_count = tiles_in(request.elements);
    plan.sample_count = static_cast<std::uint32_t>(request.samples.size());
    fill_selector(request, plan);
    fill_quantizer(pipeline, plan);
    fill_state(request, rule, plan);
    first_samples_.push_back(static_cast<std::uint32_t>(samples_.size()));
    first_moments_.push_back(static_cast<std::uint32_t>(moments_.size()));
    for (std::size_t sample = 0; sample < request.samples.size(); ++sample) {
        const ElementType type =
            gpu_request.sample_types.empty() ? ElementType::kF32 : gpu_request.sample_types[sample];
        samples_.push_back({request.samples[sample], request.weights[sample], static_cast<std::uint32_t>(type)});
    }
    if (rule.source == VarianceSource::kSecondMoment) {
        plan.moment_count = static_cast<std::uint32_t>(request.second_moments.size());
        moments_.insert(moments_.end(), request.second_moments.begin(), request.second_moments.end());
    }
    plan.is_aligned = is_aligned_for_vectors(gpu_request, plan) ? 1 : 0;
    has_top_k_ = has_top_k_ || pipeline.selector.kind == SelectorKind::kTopK;
    elements_ += request.elements;
    tensors_.push_back(plan);
    sources_.push_back(rule.source);
    wanted_.push_back(round_for(tensors_.size() - 1));
}

RoundPlan EncodeBatch::round_for(std::size_t tensor) const {
    const TensorPlan& plan = tensors_[tensor];
    const VarianceSource source = sources_[tensor];
    const unsigned samples = near_samples(source, plan.sample_count);
    RoundPlan round;
    round.is_deferred = plan.is_deferred != 0;
    const auto quantizer = static_cast<QuantizerKind>(plan.quantizer);
    round.pass = is_dense_plan(plan) ? find_dense_kernel(quantizer, samples) : find_list_kernel(source, samples);
    round.threads = is_dense_plan(plan) ? dense_threads(quantizer) : kTileThreads;
    return round;
}

/// Tensors that want the same kernel stand together, in the order of the requests.
void EncodeBatch::plan_rounds(ElementCount batch_elements) {
    rounds_.clear();
    chunks_.clear();
    first_tiles_.clear();
    first_groups_.clear();
    slots_ = {};
    dense_payload_bytes_ = 0;
    payload_bound_bytes_ = 0;
    order_.clear();
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor)
        if (tensors_[tensor].elements > 0) order_.push_back(tensor);
    const auto key = [&](std::uint32_t tensor) {
        return std::pair(wanted_[tensor].pass, wanted_[tensor].is_deferred);
    };
    std::stable_sort(order_.begin(), order_.end(), [&](auto left, auto right) { return key(left) < key(right); });
    RoundPlan round;
    bool is_open = false;
    for (const std::uint32_t tensor : order_) {
        const RoundPlan& wanted = wanted_[tensor];
        const auto is_same = is_open && std::pair(round.pass, round.is_deferred) == key(tensor);
        // Lists keep their slots for the whole round: it ends when the slots of a batch are taken.
        const bool has_room =
            wanted.is_deferred
                ? (ElementCount{round.tile_count} + tensors_[tensor].tile_count) * kTile <= batch_elements
                : ElementCount{round.tile_count} * kTile < batch_elements;
        if (is_open && (!is_same || !has_room)) {
            end_round(round);
            is_open = false;
        }
        for (ElementCount first = 0; first < tensors_[tensor].elements;) {
            if (!is_open) {
                round = wanted;
                round.first_chunk = static_cast<std::uint32_t>(chunks_.size());
                is_open = true;
            }
            first = add_chunks(tensor, first, batch_elements, round);
            if (first == tensors_[tensor].elements) break;
            end_round(round);
            is_open = false;
        }
    }
    if (is_open) end_round(round);
}

/// Adds chunks from element `first` on: all, or of tensors that are not decided as a whole at least one and then as
/// many as fit. Returns the first element that was not added.
ElementCount EncodeBatch::add_chunks(std::size_t tensor, ElementCount first, ElementCount batch_elements,
                                     RoundPlan& inout_round) {
    TensorPlan& plan = tensors_[tensor];
    const bool is_dense_tensor = is_dense_plan(plan);
    const VarianceSource source = sources_[tensor];
    const bool is_group = source == VarianceSource::kGroups || source == VarianceSource::kGroupsPooled;
    if (is_group && near_samples(source, plan.sample_count) == 0)
        inout_round.scratch_samples = std::max(inout_round.scratch_samples, plan.sample_count);
    const bool is_top_k = static_cast<SelectorKind>(plan.selector) == SelectorKind::kTopK;
    inout_round.has_top_k = inout_round.has_top_k || is_top_k;
    inout_round.has_gate = inout_round.has_gate || (is_top_k && plan.has_variance != 0);
    if (!is_dense_tensor) {
        const bool keeps_floats = plan.is_deferred != 0 || plan.is_hybrid != 0;
        const std::uint32_t bytes = keeps_floats ? sizeof(float) : plan.value_bytes;
        inout_round.value_bytes = std::max(inout_round.value_bytes, bytes);
    }
    if (first == 0) {
        plan.first_tile = inout_round.tile_count;
        plan.group_count = 0;
    }
    const std::uint32_t tiles_before = inout_round.tile_count;
    for (; first < plan.elements; first += kChunkElements) {
        const bool is_full = ElementCount{inout_round.tile_count} * kTile >= batch_elements;
        if (plan.is_deferred == 0 && !is_dense_tensor && is_full && inout_round.tile_count > tiles_before) return first;
        const ElementCount elements = std::min<ElementCount>(kChunkElements, plan.elements - first);
        ChunkPlan chunk{static_cast<std::uint32_t>(tensor), static_cast<std::uint32_t>(first / kChunkElements),
                        static_cast<std::uint32_t>(elements), tiles_in(elements), 0};
        const std::uint32_t groups = (chunk.tiles + kGroupTiles - 1) / kGroupTiles;
        first_tiles_.push_back(inout_round.tile_count);
        first_groups_.push_back(inout_round.group_count);
        inout_round.tile_count += chunk.tiles;
        inout_round.group_count += groups;
        plan.group_count += groups;
        ++inout_round.chunk_count;
        if (is_dense_tensor) {
            const ByteCount header = dense_header_bytes(plan, chunk.tiles);
            const ByteCount values = aligned(dense_payload_bytes_ + header);
            chunk.payload_offset = values - header;
            dense_payload_bytes_ = values + dense_value_bytes(plan, elements);
        } else {
            payload_bound_bytes_ += list_bound(plan, elements);
        }
        chunks_.push_back(chunk);
    }
    return plan.elements;
}

void EncodeBatch::end_round(const RoundPlan& round) {
    if (round.value_bytes > 0) {
        const ByteCount tiles = round.tile_count;
        slots_.indices = std::max(slots_.indices, tiles * kTile * sizeof(std::uint16_t));
        slots_.values = std::max(slots_.values, tiles * kTile * round.value_bytes);
        slots_.infos = std::max(slots_.infos, tiles * sizeof(TileInfo));
        if (round.has_gate) slots_.gates = std::max(slots_.gates, tiles * kTile / 8);
    }
    rounds_.push_back(round);
}

void EncodeBatch::lay_out() {
    dense_payload_bytes_ = aligned(dense_payload_bytes_);
    payload_bound_bytes_ += dense_payload_bytes_;
    ByteCount at = 0;
    const auto place = [&at](ByteCount& ret_offset, std::size_t count, std::size_t bytes) {
        at = aligned(at);
        ret_offset = at;
        at += ByteCount{count} * bytes;
    };
    place(layout_.tensors, tensors_.size(), sizeof(TensorPlan));
    place(layout_.chunks, chunks_.size(), sizeof(ChunkPlan));
    place(layout_.first_tiles, chunks_.size(), sizeof(std::uint32_t));
    place(layout_.first_groups, chunks_.size(), sizeof(std::uint32_t));
    place(layout_.samples, samples_.size(), sizeof(SampleView));
    place(layout_.moments, moments_.size(), sizeof(const float*));
    place(layout_.chunk_states, chunks_.size(), sizeof(ChunkState));
    place(layout_.tickets, 2 * rounds_.size(), sizeof(std::uint32_t));
    place(layout_.tensor_states, tensors_.size(), sizeof(TensorState));
    place(layout_.cursor, 1, sizeof(std::uint64_t));
    place(layout_.results, chunks_.size(), sizeof(ChunkResult));
    layout_.end = at;
}

void EncodeBatch::write_upload(std::byte* host, const std::byte* device) const {
    const auto write = [host](ByteCount offset, const auto& array) {
        if (!array.empty()) std::memcpy(host + offset, array.data(), array.size() * sizeof(array[0]));
    };
    write(layout_.tensors, tensors_);
    write(layout_.chunks, chunks_);
    write(layout_.first_tiles, first_tiles_);
    write(layout_.first_groups, first_groups_);
    write(layout_.samples, samples_);
    write(layout_.moments, moments_);
    std::memset(host + layout_.chunk_states, 0, layout_.results - layout_.chunk_states);
    std::memcpy(host + layout_.cursor, &dense_payload_bytes_, sizeof(dense_payload_bytes_));
    for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
        auto& plan = reinterpret_cast<TensorPlan*>(host + layout_.tensors)[tensor];
        plan.samples = reinterpret_cast<const SampleView*>(device + layout_.samples) + first_samples_[tensor];
        plan.moments = reinterpret_cast<const float* const*>(device + layout_.moments) + first_moments_[tensor];
        reinterpret_cast<TensorState*>(host + layout_.tensor_states)[tensor].non_finite = kAllFinite;
    }
}

}  // namespace gradsieve::codec::cuda
