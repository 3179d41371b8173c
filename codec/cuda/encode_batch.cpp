#include "codec/cuda/encode_batch.hpp"

#include "codec/payload.hpp"
#include "codec/select_topk.hpp"

#include <algorithm>
#include <tuple>

namespace gradsieve::codec::cuda {
namespace {

/// Below the last k-th magnitude by 1/16 to 1/8 of it, as the CPU's forms guess.
constexpr std::uint32_t kHintMarginBits = std::uint32_t{1} << 20U;
constexpr std::uint32_t kInfinityBits = 0x7F800000U;
/// Vectors of a dense payload's values.
constexpr ByteCount kPayloadAlignment = 16;
/// A tile may only wait for tiles of other chunks: more slots than one chunk has tiles.
constexpr std::uint32_t kLeastRingTiles = 2 * kChunkTiles;
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

/// Where a part of the tensor begins cannot show: chunks are whole vectors of every type.
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

void fill_state(const EncodeRequest& request, const GpuEncodePart& part, const VarianceRule& rule,
                TensorPlan& ret_plan) {
    ret_plan.rescale = request.rescale;
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

/// What the device of that place codes.
GpuEncodePart part_of(const GpuEncodeRequest& gpu_request, const DevicePlace& place) {
    const EncodeRequest& request = gpu_request.request;
    if (!gpu_request.parts.empty()) return gpu_request.parts[place.place];
    if (place.place > 0) return {};
    return {{0, request.elements}, request.in, request.out};
}

}  // namespace

bool EncodeBatch::is_dense(std::size_t tensor) const noexcept { return is_dense_plan(tensors_[tensor]); }

ByteCount EncodeBatch::dense_chunk_bytes(const ChunkPlan& chunk) const noexcept {
    const TensorPlan& plan = tensors_[chunk.tensor];
    return dense_header_bytes(plan, chunk.tiles) + dense_value_bytes(plan, chunk.elements);
}

Status EncodeBatch::plan(std::span<const GpuEncodeRequest> requests, const DevicePlace& place,
                         const GpuEncoderLimits& limits) {
    for (std::size_t request = 0; request < requests.size(); ++request) {
        if (const Status status = check_gpu_request(requests[request], place.count); !status.is_ok())
            return status.with_context("tensor " + std::to_string(request) + " of the batch");
    }
    clear();
    for (const GpuEncodeRequest& request : requests) plan_tensor(request, place);
    plan_rounds(limits);
    lay_out();
    return {};
}

void EncodeBatch::clear() {
    tensors_.clear();
    ranges_.clear();
    sources_.clear();
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
}

void EncodeBatch::plan_tensor(const GpuEncodeRequest& gpu_request, const DevicePlace& place) {
    const EncodeRequest& request = gpu_request.request;
    const Pipeline& pipeline = *request.pipeline;
    const VarianceRule rule = has_variance(pipeline) ? choose_variance_rule(request, true) : VarianceRule{};
    const GpuEncodePart part = part_of(gpu_request, place);
    const bool has_moments = rule.source == VarianceSource::kSecondMoment;
    TensorPlan plan{};
    plan.elements = static_cast<std::uint32_t>(part.range.elements);
    plan.tile_count = tiles_in(part.range.elements);
    plan.sample_count = static_cast<std::uint32_t>(request.samples.size());
    plan.moment_count = has_moments ? static_cast<std::uint32_t>(request.second_moments.size()) : 0;
    fill_selector(request, plan);
    fill_quantizer(pipeline, plan);
    fill_state(request, part, rule, plan);
    plan.is_aligned = is_aligned_for_vectors(gpu_request, plan) ? 1 : 0;
    ranges_.push_back(part.range);
    add_arrays(gpu_request, place, has_moments);
    share(gpu_request, place, plan);
    has_top_k_ = has_top_k_ || pipeline.selector.kind == SelectorKind::kTopK;
    elements_ += part.range.elements;
    tensors_.push_back(plan);
    sources_.push_back(rule.source);
}

void EncodeBatch::add_arrays(const GpuEncodeRequest& gpu_request, const DevicePlace& place, bool has_moments) {
    const EncodeRequest& request = gpu_request.request;
    const auto source_of = [&](const float* array, ElementType type, std::span<const int> devices, std::size_t number) {
        StagedSamples::Source source;
        source.element_bytes = type == ElementType::kF32 ? 4 : 2;
        source.data = reinterpret_cast<const std::byte*>(array) + ranges_.back().first * source.element_bytes;
        source.device = devices.empty() ? -1 : devices[number];
        source.is_staged = !place.reaches(source.device);
        source.type = static_cast<std::uint32_t>(type);
        return source;
    };
    staged_.add_tensor();
    for (std::size_t sample = 0; sample < request.samples.size(); ++sample) {
        const auto type = gpu_request.sample_types.empty() ? ElementType::kF32 : gpu_request.sample_types[sample];
        auto source = source_of(request.samples[sample], type, gpu_request.sample_devices, sample);
        source.weight = request.weights[sample];
        staged_.add_sample(source);
    }
    for (std::size_t rank = 0; has_moments && rank < request.second_moments.size(); ++rank)
        staged_.add_moment(
            source_of(request.second_moments[rank], ElementType::kF32, gpu_request.moment_devices, rank));
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
    if (inout_plan.is_deferred == 0 || inout_plan.part_count < 2) return;
    first_shared_.back() = static_cast<std::uint32_t>(shared_count_);
    shared_count_ += inout_plan.part_count;
}

RoundPlan EncodeBatch::round_for(std::size_t tensor) const {
    const TensorPlan& plan = tensors_[tensor];
    const VarianceSource source = sources_[tensor];
    const unsigned samples = near_samples(source, plan.sample_count);
    RoundPlan round;
    round.is_deferred = plan.is_deferred != 0;
    round.is_shared = first_shared_[tensor] != kNothing;
    round.pass = is_dense_plan(plan) ? find_dense_kernel(static_cast<QuantizerKind>(plan.quantizer), samples)
                                     : find_list_kernel(source, samples);
    return round;
}

/// Tensors that want the same kernel stand together, in the order of the requests; shared ones last. A shared tensor
/// takes part on every device, also on one that has nothing of it, so that all cut their rounds alike.
void EncodeBatch::plan_rounds(const GpuEncoderLimits& limits) {
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor)
        if (tensors_[tensor].elements > 0 || first_shared_[tensor] != kNothing) order_.push_back(tensor);
    const auto key = [&](std::uint32_t tensor) {
        const RoundPlan round = round_for(tensor);
        return std::tuple(round.is_shared, round.pass, round.is_deferred);
    };
    std::stable_sort(order_.begin(), order_.end(), [&](auto left, auto right) { return key(left) < key(right); });
    for (std::size_t at = 0; at < order_.size();) {
        RoundPlan round = round_for(order_[at]);
        round.first_chunk = static_cast<std::uint32_t>(chunks_.size());
        const auto round_key = key(order_[at]);
        do {
            add_chunks(order_[at++], round);
            // Lists that wait keep their slots for the whole round: it ends when the slots of a batch are taken.
        } while (at < order_.size() && key(order_[at]) == round_key &&
                 (!round.is_deferred ||
                  (ElementCount{round.most_tiles} + most_tiles_[order_[at]]) * kTile <= limits.batch_elements));
        end_round(limits, round);
    }
}

void EncodeBatch::add_chunks(std::size_t tensor, RoundPlan& inout_round) {
    TensorPlan& plan = tensors_[tensor];
    const VarianceSource source = sources_[tensor];
    const bool is_group = source == VarianceSource::kGroups || source == VarianceSource::kGroupsPooled;
    if (is_group && near_samples(source, plan.sample_count) == 0)
        inout_round.scratch_samples = std::max(inout_round.scratch_samples, plan.sample_count);
    const bool is_top_k = static_cast<SelectorKind>(plan.selector) == SelectorKind::kTopK;
    inout_round.has_top_k = inout_round.has_top_k || is_top_k;
    inout_round.has_gate = inout_round.has_gate || (is_top_k && plan.has_variance != 0);
    if (!is_dense_plan(plan)) {
        const std::uint32_t bytes = plan.is_deferred != 0 ? sizeof(float) : plan.value_bytes;
        inout_round.value_bytes = std::max(inout_round.value_bytes, bytes);
    }
    plan.first_tile = inout_round.tile_count;
    plan.group_count = 0;
    inout_round.most_tiles += most_tiles_[tensor];
    for (ElementCount first = 0; first < plan.elements; first += kChunkElements) add_chunk(tensor, first, inout_round);
}

void EncodeBatch::add_chunk(std::size_t tensor, ElementCount first, RoundPlan& inout_round) {
    TensorPlan& plan = tensors_[tensor];
    const ElementCount elements = std::min<ElementCount>(kChunkElements, plan.elements - first);
    ChunkPlan chunk{};
    chunk.tensor = static_cast<std::uint32_t>(tensor);
    chunk.chunk_index = static_cast<std::uint32_t>(first / kChunkElements);
    chunk.elements = static_cast<std::uint32_t>(elements);
    chunk.tiles = tiles_in(elements);
    const std::uint32_t groups = (chunk.tiles + kGroupTiles - 1) / kGroupTiles;
    first_tiles_.push_back(inout_round.tile_count);
    first_groups_.push_back(inout_round.group_count);
    inout_round.tile_count += chunk.tiles;
    inout_round.group_count += groups;
    plan.group_count += groups;
    ++inout_round.chunk_count;
    if (is_dense_plan(plan)) {
        const ByteCount header = dense_header_bytes(plan, chunk.tiles);
        const ByteCount values = aligned(dense_payload_bytes_ + header);
        chunk.payload_offset = values - header;
        dense_payload_bytes_ = values + dense_value_bytes(plan, elements);
    } else {
        payload_bound_bytes_ += list_bound(plan, elements);
    }
    chunks_.push_back(chunk);
}

void EncodeBatch::end_round(const GpuEncoderLimits& limits, RoundPlan& round) {
    if (round.value_bytes > 0 && round.tile_count > 0) {
        const auto batch_tiles =
            static_cast<std::uint32_t>(std::min<ElementCount>(limits.batch_elements / kTile, ElementCount{1} << 31U));
        round.ring_tiles =
            round.is_deferred ? round.tile_count : std::min(round.tile_count, std::max(batch_tiles, kLeastRingTiles));
        const ByteCount tiles = round.ring_tiles;
        slots_.indices = std::max(slots_.indices, tiles * kTile * sizeof(std::uint16_t));
        slots_.values = std::max(slots_.values, tiles * kTile * round.value_bytes);
        slots_.infos = std::max(slots_.infos, tiles * sizeof(TileInfo));
        if (round.has_gate) slots_.gates = std::max(slots_.gates, tiles * kTile / 8);
    }
    plan_passes(limits, round);
    rounds_.push_back(round);
}

/// A pass ends where the staging memory is full; without anything staged there is one.
void EncodeBatch::plan_passes(const GpuEncoderLimits& limits, RoundPlan& inout_round) {
    inout_round.first_pass = static_cast<std::uint32_t>(passes_.size());
    ByteCount offset = 0;
    for (std::uint32_t number = 0; number < inout_round.chunk_count; ++number) {
        const ChunkPlan& chunk = chunks_[inout_round.first_chunk + number];
        const std::uint32_t first_tile = first_tiles_[inout_round.first_chunk + number];
        const ByteCount bytes = staged_.chunk_bytes(chunk.tensor, chunk.elements);
        const bool is_full = bytes > 0 && offset > 0 && offset + bytes > limits.staging_bytes;
        if (number == 0 || is_full) {
            passes_.push_back({first_tile, first_tile, static_cast<std::uint32_t>(staged_.copies().size()), 0});
            offset = 0;
        }
        chunk_rows_.push_back(staged_.stage_chunk(chunk.tensor, chunk.chunk_index, chunk.elements, offset));
        PassPlan& pass = passes_.back();
        pass.end_tile = first_tile + chunk.tiles;
        pass.copy_count = static_cast<std::uint32_t>(staged_.copies().size()) - pass.first_copy;
    }
    inout_round.pass_count = static_cast<std::uint32_t>(passes_.size()) - inout_round.first_pass;
}

}  // namespace gradsieve::codec::cuda
