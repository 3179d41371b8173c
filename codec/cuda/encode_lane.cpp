#include "codec/cuda/encode_lane.hpp"

#include "codec/cuda/launch.hpp"
#include "codec/cuda/runtime.hpp"
#include "codec/cuda/vector_bytes.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {
namespace {

/// Most memory for samples that are looked at twice; beyond it fewer blocks run at a time.
constexpr ByteCount kScratchBytes = ByteCount{256} << 20U;
/// That keep the bus to the host busy.
constexpr std::uint32_t kCopyBlocks = 32;
/// Larger plans are left to the copy engine.
constexpr ByteCount kMostPlanBytes = ByteCount{128} << 10U;

}  // namespace

Result<std::unique_ptr<EncodeLane>> EncodeLane::make(int device, unsigned multiprocessors, bool is_alone) {
    auto lane = std::make_unique<EncodeLane>();
    GRADSIEVE_ASSIGN(lane->stream_, Stream::make(device));
    GRADSIEVE_ASSIGN(lane->event_, StreamEvent::make(device));
    GRADSIEVE_CUDA_TRY(cudaDeviceGetAttribute(&lane->multiprocessors_, cudaDevAttrMultiProcessorCount, device),
                       "asking for multiprocessors");
    GRADSIEVE_CUDA_TRY(
        cudaFuncSetAttribute(reinterpret_cast<const void*>(code_kernel()), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kNearPayloadBytes)),
        "asking for shared memory");
    if (is_alone) {
        GRADSIEVE_CUDA_TRY(ask_early_start(code_kernel(), lane->may_begin_early_), "asking what a kernel was made for");
    }
    if (multiprocessors > 0)
        lane->multiprocessors_ = std::min(lane->multiprocessors_, static_cast<int>(multiprocessors));
    return Result<std::unique_ptr<EncodeLane>>(std::move(lane));
}

/// As many blocks as run at a time, since each takes tile after tile, and as many tiles in shared memory as there is
/// room for: more than one, so that some are on their way while one is looked at.
Result<EncodeLane::PassShape> EncodeLane::find_shape(const PassKernel& pass) {
    int of_block = 0;
    int of_multiprocessor = 0;
    int reserved = 0;
    const auto ask = [this](int& answer, cudaDeviceAttr attribute) {
        return status_of(cudaDeviceGetAttribute(&answer, attribute, stream_.device()), "asking for shared memory");
    };
    GRADSIEVE_TRY(ask(of_block, cudaDevAttrMaxSharedMemoryPerBlockOptin));
    GRADSIEVE_TRY(ask(of_multiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor));
    GRADSIEVE_TRY(ask(reserved, cudaDevAttrReservedSharedMemoryPerBlock));
    const auto stages_for = [&](unsigned blocks) {
        const int share = std::min(of_block, of_multiprocessor / static_cast<int>(blocks) - reserved);
        const int room = share - static_cast<int>(pass.shared_bytes);
        return std::min<std::uint32_t>(kMostStages, room > 0 ? static_cast<std::uint32_t>(room) / pass.stage_bytes : 0);
    };
    PassShape shape;
    shape.kernel = pass.kernel;
    shape.stages = stages_for(pass.blocks);
    if (shape.stages < 2) shape.stages = stages_for(1);
    if (shape.stages < 2)
        return Status(StatusCode::kUnavailable,
                      "two tiles of the encoder need " + std::to_string(pass.shared_bytes + 2 * pass.stage_bytes) +
                          " bytes of shared memory; this GPU has " + std::to_string(of_block) + " for a block");
    shape.shared_bytes = pass.shared_bytes + shape.stages * pass.stage_bytes;
    const auto* kernel = reinterpret_cast<const void*>(pass.kernel);
    GRADSIEVE_CUDA_TRY(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes)),
        "asking for shared memory");
    int blocks = 0;
    GRADSIEVE_CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(pass.threads),
                                                                     shape.shared_bytes),
                       "asking how many blocks fit");
    shape.blocks = static_cast<std::uint32_t>(std::max(blocks, 1) * multiprocessors_);
    return shape;
}

Result<EncodeLane::PassShape> EncodeLane::shape_of(const RoundPlan& round) {
    auto known = std::ranges::find(shapes_, round.pass.kernel, &PassShape::kernel);
    if (known == shapes_.end()) {
        GRADSIEVE_ASSIGN(const PassShape found, find_shape(round.pass));
        known = shapes_.insert(shapes_.end(), found);
    }
    PassShape shape = *known;
    shape.blocks = std::min(shape.blocks, std::max(round.tile_count, 1U));
    if (round.scratch_samples > 0) {
        const ByteCount per_block = ByteCount{round.scratch_samples} * kScratchThreads * sizeof(float) * 4;
        shape.blocks = static_cast<std::uint32_t>(std::clamp<ByteCount>(kScratchBytes / per_block, 1, shape.blocks));
    }
    return shape;
}

Result<ByteCount> EncodeLane::scratch_bytes() {
    ByteCount most = 0;
    for (const RoundPlan& round : batch_.rounds()) {
        if (round.pass.kernel == nullptr) continue;
        GRADSIEVE_ASSIGN(const PassShape shape, shape_of(round));
        most = std::max(most, ByteCount{shape.blocks} * round.scratch_samples * kScratchThreads * sizeof(float) * 4);
    }
    return most;
}

Status EncodeLane::prepare(const GpuEncoderLimits& limits) {
    GRADSIEVE_TRY(stream_.make_current());
    GRADSIEVE_ASSIGN(const ByteCount scratch, scratch_bytes());
    mirror_.reset();
    GRADSIEVE_ASSIGN(mirror_, limits.mirrors->take(EncodeMemory::mirror_bytes(batch_)));
    if (memory_.fits(batch_, scratch)) return {};
    GRADSIEVE_TRY(stream_.synchronize());
    return memory_.fit(stream_, batch_, scratch, limits.workspace_bytes);
}

std::size_t EncodeLane::first_shared() const noexcept {
    const auto rounds = batch_.rounds();
    const auto first = std::ranges::find_if(rounds, [](const RoundPlan& round) { return round.is_shared; });
    return static_cast<std::size_t>(std::distance(rounds.begin(), first));
}

Status EncodeLane::start(SharedCounts* shared) {
    if (batch_.chunks().empty()) return {};
    GRADSIEVE_TRY(stream_.make_current());
    batch_.write_upload(memory_.upload.data(), {memory_.plan.data(), memory_.staging.data(), shared});
    GRADSIEVE_TRY(take_plan());
    const std::size_t rounds = first_shared();
    for (std::size_t round = 0; round < rounds; ++round) GRADSIEVE_TRY(run_round(round));
    return {};
}

Status EncodeLane::take_plan() {
    const ByteCount bytes = batch_.layout().end;
    if (bytes > kMostPlanBytes)
        return status_of(cudaMemcpyAsync(memory_.plan.data(), memory_.upload.data(), bytes, cudaMemcpyHostToDevice,
                                         handle_of(stream_)),
                         "copying a batch's plan to a GPU");
    const ByteCopy plan{memory_.upload.data(), memory_.plan.data(), bytes};
    const auto blocks = static_cast<std::uint32_t>(bytes / (kCodeThreads * kVectorBytes) + 1);
    return status_of(
        cuda::launch(take_plan_kernel(), {.blocks = blocks, .threads = kCodeThreads}, handle_of(stream_), plan),
        "copying a batch's plan to a GPU");
}

Status EncodeLane::end() {
    if (batch_.chunks().empty()) return {};
    GRADSIEVE_TRY(stream_.make_current());
    const ByteCopy results{memory_.plan.data() + batch_.layout().tensor_states, memory_.download.data(),
                           EncodeMemory::download_bytes(batch_)};
    GRADSIEVE_TRY(
        status_of(cuda::launch(give_results_kernel(),
                               {.blocks = kCopyBlocks, .threads = kCodeThreads, .begins_early = may_begin_early_},
                               handle_of(stream_), describe(0), results),
                  "copying a batch's results from a GPU"));
    const ByteCount dense = std::min(batch_.dense_payload_bytes(), mirror_->size());
    if (dense == 0) return {};
    return status_of(
        cudaMemcpyAsync(mirror_->data(), memory_.payload.data(), dense, cudaMemcpyDeviceToHost, handle_of(stream_)),
        "copying payloads from a GPU");
}

EncodeRound EncodeLane::describe(std::size_t number) const {
    const RoundPlan& plan = batch_.rounds()[number];
    const PlanLayout& layout = batch_.layout();
    std::byte* device = memory_.plan.data();
    EncodeRound round{};
    round.tensors = memory_.plan.as<TensorPlan>(layout.tensors);
    round.tensor_states = memory_.plan.as<TensorState>(layout.tensor_states);
    round.fronts = batch_.has_fronts() ? memory_.plan.as<FrontPlan>(layout.fronts) : nullptr;
    round.chunks = reinterpret_cast<const ChunkPlan*>(device + layout.chunks) + plan.first_chunk;
    round.first_tiles = reinterpret_cast<const std::uint32_t*>(device + layout.first_tiles) + plan.first_chunk;
    round.first_groups = reinterpret_cast<const std::uint32_t*>(device + layout.first_groups) + plan.first_chunk;
    round.chunk_results = reinterpret_cast<ChunkResult*>(device + layout.results) + plan.first_chunk;
    round.chunk_count = plan.chunk_count;
    round.end_tile = plan.tile_count;
    round.group_count = plan.group_count;
    round.slot_indices = memory_.indices.as<std::uint16_t>();
    round.slot_values = memory_.values.data();
    round.tiles = memory_.infos.as<TileInfo>();
    round.gate_words = plan.has_gate ? memory_.gates.as<std::uint32_t>() : nullptr;
    round.histograms = memory_.histograms.as<std::uint32_t>();
    round.tile_sums = plan.has_clip ? memory_.sums.as<double>() : nullptr;
    round.sample_scratch = memory_.scratch.as<float>();
    round.slot_value_bytes = plan.value_bytes;
    round.scratch_samples = plan.scratch_samples;
    round.payload = memory_.payload.data();
    round.mirror = mirror_->data();
    round.cursor = memory_.plan.as<std::uint64_t>(layout.cursor);
    round.mirror_bytes = mirror_->size();
    round.first_list_byte = batch_.dense_payload_bytes();
    return round;
}

Status EncodeLane::launch(KernelHandle kernel, std::uint32_t blocks, const EncodeRound& round, unsigned threads,
                          std::uint32_t shared_bytes) {
    return status_of(cuda::launch(kernel, {blocks, threads, shared_bytes, may_begin_early_}, handle_of(stream_), round),
                     "starting a kernel of the encoder");
}

Status EncodeLane::stage(const PassPlan& pass) {
    for (const StageCopy& copy : batch_.copies().subspan(pass.first_copy, pass.copy_count))
        GRADSIEVE_CUDA_TRY(cudaMemcpyPeerAsync(memory_.staging.data() + copy.offset, stream_.device(), copy.source,
                                               copy.source_device, copy.bytes, handle_of(stream_)),
                           "copying gradients from another GPU");
    return {};
}

/// What the weights of tensors whose norm has a bound are multiplied by: all samples are looked at once before.
Status EncodeLane::find_clips(const RoundPlan& plan, EncodeRound round) {
    for (const PassPlan& pass : batch_.passes().subspan(plan.first_pass, plan.pass_count)) {
        GRADSIEVE_TRY(stage(pass));
        round.first_tile = pass.first_tile;
        round.end_tile = pass.end_tile;
        const std::uint32_t tiles = pass.end_tile - pass.first_tile;
        if (tiles > 0) GRADSIEVE_TRY(launch(square_kernel(), (tiles + kWarps - 1) / kWarps, round));
    }
    return launch(fold_clips_kernel(), plan.chunk_count, round);
}

Status EncodeLane::run_passes(std::size_t number) {
    const RoundPlan& plan = batch_.rounds()[number];
    EncodeRound round = describe(number);
    if (plan.has_clip) GRADSIEVE_TRY(find_clips(plan, round));
    GRADSIEVE_ASSIGN(const PassShape shape, shape_of(plan));
    round.stages = shape.stages;
    for (std::uint32_t pass = plan.first_pass; pass < plan.first_pass + plan.pass_count; ++pass) {
        GRADSIEVE_TRY(stage(batch_.passes()[pass]));
        round.ticket = memory_.plan.as<std::uint32_t>(batch_.layout().tickets) + pass;
        round.first_tile = batch_.passes()[pass].first_tile;
        round.end_tile = batch_.passes()[pass].end_tile;
        if (plan.has_front && round.end_tile > round.first_tile)
            GRADSIEVE_TRY(launch(front_kernel(), round.end_tile - round.first_tile, round));
        GRADSIEVE_TRY(launch(shape.kernel, shape.blocks, round, plan.pass.threads, shape.shared_bytes));
    }
    return {};
}

/// One look at r of the tensors whose threshold is estimated.
Status EncodeLane::run_look(const RoundPlan& plan, const EncodeRound& round) {
    GRADSIEVE_TRY(launch(measure_kernel(), plan.group_count, round));
    return launch(fold_estimates_kernel(), plan.chunk_count, round);
}

/// r is what was not sent.
Status EncodeLane::filter(const RoundPlan& plan, const EncodeRound& round) {
    if (!plan.has_low_pass || plan.tile_count == 0) return {};
    return launch(low_pass_kernel(), plan.tile_count, round);
}

/// Lists hold what is sent.
Status EncodeLane::code(const RoundPlan& plan, const EncodeRound& round) {
    if (plan.is_masked) GRADSIEVE_TRY(launch(mask_kernel(), plan.group_count, round));
    GRADSIEVE_TRY(launch(code_kernel(), plan.chunk_count, round, kCodeThreads, kNearPayloadBytes));
    return filter(plan, round);
}

/// A phase of tensors that are selected together with others.
Status EncodeLane::run_scope(std::size_t number) {
    const RoundPlan& plan = batch_.rounds()[number];
    if (plan.scope == ScopePhase::kObserve) GRADSIEVE_TRY(run_passes(number));
    const EncodeRound round = describe(number);
    if (plan.scope != ScopePhase::kSettle) return launch(scope_count_kernel(plan.scope_level), plan.group_count, round);
    GRADSIEVE_TRY(launch(scope_list_kernel(), plan.group_count, round));
    GRADSIEVE_TRY(launch(tie_kernel(), plan.group_count, round));
    GRADSIEVE_TRY(launch(send_kernel(plan.draw), plan.group_count, round));
    return code(plan, round);
}

Status EncodeLane::run_round(std::size_t number) {
    const RoundPlan& plan = batch_.rounds()[number];
    if (plan.scope) return run_scope(number);
    GRADSIEVE_TRY(run_passes(number));
    const EncodeRound round = describe(number);
    if (plan.value_bytes == 0) return filter(plan, round);
    if (plan.is_integer) {
        const std::uint32_t blocks = (plan.chunk_count + kTileThreads - 1) / kTileThreads;
        GRADSIEVE_TRY(launch(place_integers_kernel(), blocks, round));
        GRADSIEVE_TRY(launch(pack_integers_kernel(), plan.group_count, round));
        return filter(plan, round);
    }
    for (unsigned look = 0; look < plan.looks; ++look) GRADSIEVE_TRY(run_look(plan, round));
    if (plan.has_top_k) {
        GRADSIEVE_TRY(launch(relist_kernel(), plan.group_count, round));
        for (unsigned level = 0; level < kSelectLevels; ++level)
            GRADSIEVE_TRY(launch(histogram_kernel(level), plan.group_count, round));
        GRADSIEVE_TRY(launch(tie_kernel(), plan.group_count, round));
    }
    if (plan.has_blocks) GRADSIEVE_TRY(launch(block_kernel(), plan.group_count, round));
    if (plan.has_adaptive) GRADSIEVE_TRY(launch(adaptive_kernel(), plan.group_count, round));
    if (plan.is_keyed) GRADSIEVE_TRY(launch(keyed_kernel(plan.draw), plan.group_count, round));
    if (plan.is_deferred) GRADSIEVE_TRY(launch(send_kernel(plan.draw), plan.group_count, round));
    return code(plan, round);
}

Status EncodeLane::run_shared_step(std::size_t shared_round, unsigned step) {
    const std::size_t number = first_shared() + shared_round;
    const RoundPlan& plan = batch_.rounds()[number];
    if (plan.chunk_count == 0) return {};  // others have all of it
    GRADSIEVE_TRY(stream_.make_current());
    const EncodeRound round = describe(number);
    if (step == 0) {
        GRADSIEVE_TRY(run_passes(number));
        if (plan.looks > 0) GRADSIEVE_TRY(run_look(plan, round));
        return launch(share_listed_kernel(), plan.chunk_count, round);
    }
    if (step <= plan.looks) GRADSIEVE_TRY(launch(take_estimates_kernel(), plan.chunk_count, round));
    if (step < plan.looks) return run_look(plan, round);
    step -= plan.looks > 1 ? plan.looks - 1 : 0;  // the others begin together with the last look's decision
    if (step == 1) GRADSIEVE_TRY(launch(take_listed_kernel(), plan.chunk_count, round));
    if (step + 1 == (plan.has_top_k ? kTopKSteps : kListSteps)) {
        if (plan.has_top_k) GRADSIEVE_TRY(launch(take_ties_kernel(), plan.chunk_count, round));
        if (plan.has_blocks) GRADSIEVE_TRY(launch(block_kernel(), plan.group_count, round));
        if (plan.has_adaptive) GRADSIEVE_TRY(launch(adaptive_kernel(), plan.group_count, round));
        GRADSIEVE_TRY(launch(send_kernel(plan.draw), plan.group_count, round));
        return code(plan, round);
    }
    if (step == 1) {
        GRADSIEVE_TRY(launch(relist_kernel(), plan.group_count, round));
        return launch(histogram_kernel(0), plan.group_count, round);
    }
    GRADSIEVE_TRY(launch(take_bins_kernel(step - 2), plan.chunk_count, round));
    const bool has_more_levels = step - 1 < kSelectLevels;
    return launch(has_more_levels ? histogram_kernel(step - 1) : tie_kernel(), plan.group_count, round);
}

void EncodeLane::take_chunks(std::span<const GpuEncodeRequest> requests, const PayloadPool& own_pool,
                             std::span<EncodeResult> inout_results) {
    places_.clear();
    for (std::size_t chunk = 0; chunk < batch_.chunks().size(); ++chunk) {
        const ChunkPlan& plan = batch_.chunks()[chunk];
        EncodeResult& result = inout_results[plan.tensor];
        const auto& coded = downloaded<ChunkResult>(batch_.layout().results)[chunk];
        const bool is_dense = batch_.is_dense(plan.tensor);
        if (result.non_finite || (!is_dense && coded.bytes == 0)) continue;
        const ByteCount bytes = is_dense ? batch_.dense_chunk_bytes(plan) : coded.bytes;
        const ByteCount offset = is_dense ? plan.payload_offset : coded.offset;
        PayloadBytes payload;
        if (offset + bytes <= mirror_->size()) {
            payload = PayloadBytes::part_of(mirror_, mirror_->data() + offset, bytes);
        } else {
            const PayloadPool* pool = requests[plan.tensor].request.payloads;
            payload = (pool == nullptr ? own_pool : *pool).take(bytes);
            places_.push_back({offset, bytes, payload.data()});
        }
        result.chunks.push_back({batch_.range(plan.tensor).first_chunk() + plan.chunk_index, std::move(payload)});
        result.kept_elements += is_dense ? plan.elements : coded.sent;
    }
}

}  // namespace gradsieve::codec::cuda
