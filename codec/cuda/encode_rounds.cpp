// Rounds of a batch: tensors that want the same kernel, cut into chunks and, where what a round may hold is used up,
// into rounds.
#include "codec/cuda/encode_batch.hpp"
#include "codec/cuda/encode_sizes.hpp"
#include "codec/rotation.hpp"

#include <algorithm>
#include <tuple>

namespace gradsieve::codec::cuda {

ByteCount EncodeBatch::payload_memory_bytes() const noexcept {
    return mean_bytes_ == 0 ? payload_bound_bytes_ : aligned_to_line(payload_bound_bytes_) + aligned(mean_bytes_);
}

bool EncodeBatch::is_dense(std::size_t tensor) const noexcept { return is_dense_plan(tensors_[tensor]); }

ByteCount EncodeBatch::dense_chunk_bytes(const ChunkPlan& chunk) const noexcept {
    const TensorPlan& plan = tensors_[chunk.tensor];
    return dense_header_bytes(plan, chunk.elements) + dense_value_bytes(plan, chunk.elements);
}

/// The empty round of the kind that the tensor wants.
void EncodeBatch::add_wanted(std::size_t tensor) {
    const TensorPlan& plan = tensors_[tensor];
    const ScopePlan& scope = scopes_[tensor];
    const bool is_settling = scope.phase == ScopePhase::kSettle;
    RoundPlan& round = wanted_.emplace_back();
    round.scope = scope.phase;
    round.scope_level = scope.level;
    round.is_deferred = plan.is_deferred != 0 && scope.phase != ScopePhase::kCount;
    round.is_shared = first_shared_[tensor] != kNothing;
    const bool is_top_k = static_cast<Selection>(plan.selection) == Selection::kBest && !scope.phase;
    round.has_top_k = is_top_k || plan.looks > 0;
    round.looks = plan.looks;
    round.has_gate = is_top_k && plan.has_variance != 0;
    round.has_blocks = plan.block_log2 > 0;
    round.has_adaptive = plan.draw_log2 > 0;
    round.is_keyed = plan.key_form != 0;
    round.draw = static_cast<Draw>(plan.draws);
    if (!is_settling) {
        round.has_front = fronts_[tensor].momentum_out != nullptr;
        round.has_clip = fronts_[tensor].most_norm > 0.0;
    }
    if (!scope.phase || is_settling) {
        round.is_masked = fronts_[tensor].is_masked != 0;
        round.has_low_pass = fronts_[tensor].take > 0;
    }
    if (!scope.phase || scope.phase == ScopePhase::kObserve)
        add_pass(tensor, round);
    else if (is_settling)
        round.value_bytes = sizeof(float);
}

/// The dense pass of the tensor, and what it needs.
void EncodeBatch::add_pass(std::size_t tensor, RoundPlan& inout_round) const {
    const TensorPlan& plan = tensors_[tensor];
    const VarianceSource source = sources_[tensor];
    const bool has_one_moment = source != VarianceSource::kSecondMoment || plan.moment_count == 1;
    const unsigned samples = has_one_moment ? near_samples(source, plan.sample_count) : 0;
    const auto quantizer = static_cast<QuantizerKind>(plan.quantizer);
    const bool is_group = source == VarianceSource::kGroups || source == VarianceSource::kGroupsPooled;
    RoundPlan& round = inout_round;
    if (is_group && samples == 0) round.scratch_samples = plan.sample_count;
    if (is_dense_plan(plan)) {
        const bool is_rotated = static_cast<Rotation>(plan.rotation) != Rotation::kNone;
        round.pass = is_rotated ? find_rotated_kernel(quantizer, samples) : find_dense_kernel(quantizer, samples);
    } else if (is_integer_plan(plan)) {
        round.pass = find_integer_kernel(samples);
        round.value_bytes = plan.value_bytes;
        round.is_integer = true;
    } else if (needs_means(plan)) {
        round.pass = find_dense_kernel(stages::F32::kFacts.kind, samples);
        round.value_bytes = plan.value_bytes;
    } else {
        round.pass = find_list_kernel(source, samples, round.is_deferred);
        round.value_bytes = plan.is_deferred != 0 ? std::uint32_t{sizeof(float)} : std::uint32_t{plan.value_bytes};
    }
}

/// Tensors that want the same kernel stand together, in the order of the requests; shared ones last. A shared tensor
/// takes part on every device, also on one that has nothing of it, so that all cut their rounds alike.
void EncodeBatch::plan_rounds(const GpuEncoderLimits& limits) {
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor)
        if (tensors_[tensor].elements > 0 || first_shared_[tensor] != kNothing) order_.push_back(tensor);
    const auto key = [&](std::uint32_t tensor) {
        const RoundPlan& wanted = wanted_[tensor];
        return std::tuple(wanted.is_shared, wanted.is_keyed, wanted.scope, wanted.scope_level, wanted.pass.kernel);
    };
    const auto stands_before = [&](auto left, auto right) { return key(left) < key(right); };
    if (!std::ranges::is_sorted(order_, stands_before)) std::ranges::stable_sort(order_, stands_before);
    for (std::size_t at = 0; at < order_.size();) {
        RoundPlan round = begin_round(order_[at]);
        const auto round_key = key(order_[at]);
        do {
            add_chunks(order_[at++], limits, round);
            // Lists keep their slots for the whole round: it ends when the slots of a batch are taken.
        } while (at < order_.size() && key(order_[at]) == round_key &&
                 (!round.is_deferred ||
                  (ElementCount{round.most_tiles} + most_tiles_[order_[at]]) * kTile <= limits.batch_elements));
        end_round(limits, round);
    }
}

RoundPlan EncodeBatch::begin_round(std::size_t tensor) const {
    RoundPlan round = wanted_[tensor];
    round.first_chunk = static_cast<std::uint32_t>(chunks_.size());
    return round;
}

/// Tensors that are not decided as a whole are cut where a round is full, but for those whose norm has a bound.
void EncodeBatch::add_chunks(std::size_t tensor, const GpuEncoderLimits& limits, RoundPlan& inout_round) {
    TensorPlan& plan = tensors_[tensor];
    const auto join = [&] {
        const RoundPlan& wanted = wanted_[tensor];
        inout_round.has_top_k = inout_round.has_top_k || wanted.has_top_k;
        inout_round.has_gate = inout_round.has_gate || wanted.has_gate;
        inout_round.has_blocks = inout_round.has_blocks || wanted.has_blocks;
        inout_round.looks = std::max(inout_round.looks, wanted.looks);
        inout_round.has_front = inout_round.has_front || wanted.has_front;
        inout_round.has_clip = inout_round.has_clip || wanted.has_clip;
        inout_round.is_masked = inout_round.is_masked || wanted.is_masked;
        inout_round.has_low_pass = inout_round.has_low_pass || wanted.has_low_pass;
        inout_round.has_adaptive = inout_round.has_adaptive || wanted.has_adaptive;
        inout_round.draw = std::max(inout_round.draw, wanted.draw);
        inout_round.value_bytes = std::max(inout_round.value_bytes, wanted.value_bytes);
        inout_round.scratch_samples = std::max(inout_round.scratch_samples, wanted.scratch_samples);
    };
    join();
    plan.first_tile = inout_round.tile_count;
    plan.group_count = 0;
    inout_round.most_tiles += most_tiles_[tensor];
    for (ElementCount first = 0; first < plan.elements; first += kChunkElements) {
        const bool is_full = ElementCount{inout_round.tile_count} * kTile >= limits.batch_elements;
        if (is_full && !inout_round.is_deferred && inout_round.value_bytes > 0 && !wanted_[tensor].has_clip) {
            end_round(limits, inout_round);
            inout_round = begin_round(tensor);
        }
        add_chunk(tensor, first, inout_round);
    }
}

void EncodeBatch::add_chunk(std::size_t tensor, ElementCount first, RoundPlan& inout_round) {
    TensorPlan& plan = tensors_[tensor];
    const ElementCount elements = std::min<ElementCount>(kChunkElements, plan.elements - first);
    ChunkPlan& chunk = chunks_.emplace_back();
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
        const ByteCount header = dense_header_bytes(plan, elements);
        const ByteCount values = aligned_to_line(dense_payload_bytes_ + header);
        chunk.payload_offset = values - header;
        dense_payload_bytes_ = values + dense_value_bytes(plan, elements);
    } else {
        payload_bound_bytes_ += list_bound(plan, elements);
    }
    if (plan.key_form != 0) chunk.rule = selections_[tensor].rule(ranges_[tensor].first_chunk() + chunk.chunk_index);
    if (static_cast<Rotation>(plan.rotation) != Rotation::kNone) {
        const RotationSource& of = rotations_[tensor];
        chunk.rule.key = rotation_key(of.seed, of.tensor, of.step, ranges_[tensor].first_chunk() + chunk.chunk_index);
    }
    if (needs_means(plan)) {
        const ByteCount values = aligned_to_line(mean_bytes_ + kMeanHeaderBytes);
        chunk.payload_offset = values - kMeanHeaderBytes;
        mean_bytes_ = values + elements * sizeof(float);
    }
}

void EncodeBatch::end_round(const GpuEncoderLimits& limits, RoundPlan& round) {
    if (round.value_bytes > 0) {
        const ByteCount tiles = round.tile_count;
        slots_.indices = std::max(slots_.indices, tiles * kTile * sizeof(std::uint16_t));
        slots_.values = std::max(slots_.values, tiles * kTile * round.value_bytes);
        slots_.infos = std::max(slots_.infos, tiles * sizeof(TileInfo));
        if (round.has_gate) slots_.gates = std::max(slots_.gates, tiles * kTile / 8);
    }
    if (round.has_clip) slots_.sums = std::max(slots_.sums, round.tile_count * ByteCount{sizeof(double)});
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
