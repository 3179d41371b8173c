#include "codec/cuda/gpu_encoder.hpp"

#include "codec/cuda/encode_memory.hpp"
#include "codec/cuda/launch.hpp"
#include "codec/cuda/payload_fetch.hpp"
#include "codec/cuda/runtime.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {
namespace {

/// Most memory for samples that are looked at twice; beyond it fewer blocks run at a time.
constexpr ByteCount kScratchBytes = ByteCount{256} << 20U;

cudaStream_t handle_of(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }

class Encoder final : public GpuEncoder {
public:
    Encoder(const GpuEncoderLimits& limits, Stream stream, int multiprocessors)
        : limits_(limits), stream_(std::move(stream)), multiprocessors_(multiprocessors) {}
    ~Encoder() override {
        if (is_under_way_) static_cast<void>(stream_.synchronize());
    }

    Status begin(std::span<const GpuEncodeRequest> tensors) override;
    Status finish(std::span<EncodeResult> ret_results) override;
    const Stream& stream() const noexcept override { return stream_; }
    ByteCount workspace_bytes() const noexcept override { return memory_.device_bytes(); }
    std::uint64_t threshold_misses() const noexcept override { return threshold_misses_; }

private:
    Status enqueue();
    Status enqueue_round(std::size_t number);
    Status launch(KernelHandle kernel, std::uint32_t blocks, const EncodeRound& round, unsigned threads = kTileThreads);
    EncodeRound describe(std::size_t number) const;
    Result<std::uint32_t> grid_of(const RoundPlan& round);
    Result<ByteCount> scratch_bytes();

    void take_result(std::size_t tensor, EncodeResult& ret_result);
    void take_chunk(std::size_t chunk, EncodeResult& ret_result);

    template <typename T>
    const T* downloaded(ByteCount offset) const {
        return memory_.download.as<T>(offset - batch_.layout().tensor_states);
    }

    // Constant after construction.
    GpuEncoderLimits limits_;
    Stream stream_;
    int multiprocessors_;
    // Of the batch under way.
    EncodeBatch batch_;
    std::span<const GpuEncodeRequest> requests_;
    bool is_under_way_ = false;
    // Kept from batch to batch.
    EncodeMemory memory_;
    std::vector<std::pair<KernelHandle, std::uint32_t>> grids_;  ///< blocks that the device runs at a time
    std::vector<PayloadPlace> places_;
    PayloadPool pool_;  ///< of requests that bring none
    std::uint64_t threshold_misses_ = 0;
};

/// Blocks of a dense pass: as many as run at a time, since each takes tile after tile.
Result<std::uint32_t> Encoder::grid_of(const RoundPlan& round) {
    auto known = std::ranges::find(grids_, round.pass, &std::pair<KernelHandle, std::uint32_t>::first);
    if (known == grids_.end()) {
        int blocks = 0;
        GRADSIEVE_CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                               &blocks, reinterpret_cast<const void*>(round.pass), static_cast<int>(round.threads), 0),
                           "asking how many blocks fit");
        grids_.emplace_back(round.pass, static_cast<std::uint32_t>(std::max(blocks, 1) * multiprocessors_));
        known = grids_.end() - 1;
    }
    const std::uint32_t warps = round.threads / 32;
    std::uint32_t blocks = std::min(known->second, (round.tile_count + warps - 1) / warps);
    if (round.scratch_samples > 0) {
        const ByteCount per_block = ByteCount{round.scratch_samples} * kTileThreads * sizeof(float) * 4;
        blocks = static_cast<std::uint32_t>(std::clamp<ByteCount>(kScratchBytes / per_block, 1, blocks));
    }
    return blocks;
}

Result<ByteCount> Encoder::scratch_bytes() {
    ByteCount most = 0;
    for (const RoundPlan& round : batch_.rounds()) {
        GRADSIEVE_ASSIGN(const std::uint32_t blocks, grid_of(round));
        most = std::max(most, ByteCount{blocks} * round.scratch_samples * kTileThreads * sizeof(float) * 4);
    }
    return most;
}

Status Encoder::begin(std::span<const GpuEncodeRequest> tensors) {
    if (is_under_way_) {
        return {StatusCode::kFailedPrecondition,
                "a batch of " + std::to_string(requests_.size()) +
                    " tensors is under way on this encoder; allowed is one at a time; call finish first"};
    }
    GRADSIEVE_TRY(batch_.plan(tensors, limits_.batch_elements));
    requests_ = tensors;
    GRADSIEVE_TRY(stream_.make_current());
    GRADSIEVE_ASSIGN(const ByteCount scratch, scratch_bytes());
    if (!memory_.fits(batch_, scratch)) {
        GRADSIEVE_TRY(stream_.synchronize());
        GRADSIEVE_TRY(memory_.fit(stream_, batch_, scratch, limits_.workspace_bytes));
    }
    if (const Status status = enqueue(); !status.is_ok()) {
        static_cast<void>(stream_.synchronize());
        return status;
    }
    is_under_way_ = true;
    return {};
}

Status Encoder::enqueue() {
    if (batch_.chunks().empty()) return {};
    const PlanLayout& layout = batch_.layout();
    batch_.write_upload(memory_.upload.data(), memory_.plan.data());
    GRADSIEVE_CUDA_TRY(cudaMemcpyAsync(memory_.plan.data(), memory_.upload.data(), layout.results,
                                       cudaMemcpyHostToDevice, handle_of(stream_)),
                       "copying a batch's plan to a GPU");
    for (std::size_t round = 0; round < batch_.rounds().size(); ++round) GRADSIEVE_TRY(enqueue_round(round));
    GRADSIEVE_CUDA_TRY(
        cudaMemcpyAsync(memory_.download.data(), memory_.plan.data() + layout.tensor_states,
                        EncodeMemory::download_bytes(batch_), cudaMemcpyDeviceToHost, handle_of(stream_)),
        "copying a batch's results from a GPU");
    const ByteCount dense = std::min(batch_.dense_payload_bytes(), memory_.mirror.size());
    if (dense == 0) return {};
    return status_of(cudaMemcpyAsync(memory_.mirror.data(), memory_.payload.data(), dense, cudaMemcpyDeviceToHost,
                                     handle_of(stream_)),
                     "copying payloads from a GPU");
}

EncodeRound Encoder::describe(std::size_t number) const {
    const RoundPlan& plan = batch_.rounds()[number];
    const PlanLayout& layout = batch_.layout();
    std::byte* device = memory_.plan.data();
    EncodeRound round{};
    round.tensors = memory_.plan.as<TensorPlan>(layout.tensors);
    round.tensor_states = memory_.plan.as<TensorState>(layout.tensor_states);
    round.chunks = reinterpret_cast<const ChunkPlan*>(device + layout.chunks) + plan.first_chunk;
    round.first_tiles = reinterpret_cast<const std::uint32_t*>(device + layout.first_tiles) + plan.first_chunk;
    round.first_groups = reinterpret_cast<const std::uint32_t*>(device + layout.first_groups) + plan.first_chunk;
    round.chunk_states = reinterpret_cast<ChunkState*>(device + layout.chunk_states) + plan.first_chunk;
    round.chunk_results = reinterpret_cast<ChunkResult*>(device + layout.results) + plan.first_chunk;
    round.chunk_count = plan.chunk_count;
    round.tile_count = plan.tile_count;
    round.group_count = plan.group_count;
    round.ticket = memory_.plan.as<std::uint32_t>(layout.tickets) + 2 * number;
    round.group_ticket = round.ticket + 1;
    round.slot_indices = memory_.indices.as<std::uint16_t>();
    round.slot_values = memory_.values.data();
    round.tiles = memory_.infos.as<TileInfo>();
    round.gate_words = plan.has_gate ? memory_.gates.as<std::uint32_t>() : nullptr;
    round.histograms = memory_.histograms.as<std::uint32_t>();
    round.sample_scratch = memory_.scratch.as<float>();
    round.slot_value_bytes = plan.value_bytes;
    round.scratch_samples = plan.scratch_samples;
    round.payload = memory_.payload.data();
    round.mirror = memory_.mirror.data();
    round.cursor = memory_.plan.as<std::uint64_t>(layout.cursor);
    round.mirror_bytes = memory_.mirror.size();
    return round;
}

Status Encoder::launch(KernelHandle kernel, std::uint32_t blocks, const EncodeRound& round, unsigned threads) {
    return status_of(cuda::launch(kernel, blocks, threads, handle_of(stream_), round),
                     "starting a kernel of the encoder");
}

Status Encoder::enqueue_round(std::size_t number) {
    const RoundPlan& plan = batch_.rounds()[number];
    EncodeRound round = describe(number);
    GRADSIEVE_ASSIGN(const std::uint32_t blocks, grid_of(plan));
    GRADSIEVE_TRY(launch(plan.pass, blocks, round, plan.threads));
    if (plan.has_top_k) {
        GRADSIEVE_TRY(launch(relist_kernel(), plan.group_count, round));
        for (unsigned level = 0; level < 3; ++level)
            GRADSIEVE_TRY(launch(histogram_kernel(level), plan.group_count, round));
        GRADSIEVE_TRY(launch(tie_kernel(), plan.group_count, round));
    }
    if (plan.is_deferred) GRADSIEVE_TRY(launch(send_kernel(), plan.group_count, round));
    return plan.value_bytes == 0 ? Status() : launch(code_kernel(), plan.group_count, round);
}

Status Encoder::finish(std::span<EncodeResult> ret_results) {
    if (!is_under_way_) {
        return {StatusCode::kFailedPrecondition,
                "no batch is under way on this encoder; allowed is one finish per begin; call begin first"};
    }
    if (ret_results.size() != requests_.size()) {
        return {StatusCode::kInvalidArgument, "results: " + std::to_string(ret_results.size()) + " for " +
                                                  std::to_string(requests_.size()) +
                                                  " tensors; allowed is one per tensor; pass as many as to begin"};
    }
    is_under_way_ = false;
    GRADSIEVE_TRY(stream_.synchronize());
    for (std::size_t tensor = 0; tensor < requests_.size(); ++tensor) take_result(tensor, ret_results[tensor]);
    for (std::size_t chunk = 0; chunk < batch_.chunks().size(); ++chunk)
        take_chunk(chunk, ret_results[batch_.chunks()[chunk].tensor]);
    places_.clear();
    for (std::size_t chunk = 0, in_tensor = 0; chunk < batch_.chunks().size(); ++chunk) {
        const ChunkPlan& plan = batch_.chunks()[chunk];
        if (plan.chunk_index == 0) in_tensor = 0;
        auto& payloads = ret_results[plan.tensor].chunks;
        if (in_tensor == payloads.size() || payloads[in_tensor].chunk_index != plan.chunk_index) continue;
        const auto& result = downloaded<ChunkResult>(batch_.layout().results)[chunk];
        const bool is_dense = batch_.is_dense(plan.tensor);
        const ByteCount bytes = is_dense ? batch_.dense_chunk_bytes(plan) : result.bytes;
        const PayloadPool* pool = requests_[plan.tensor].request.payloads;
        auto& payload = payloads[in_tensor++].bytes;
        payload = (pool == nullptr ? pool_ : *pool).take(bytes);
        places_.push_back({is_dense ? plan.payload_offset : result.offset, bytes, payload.data()});
    }
    return fetch_payloads(stream_, memory_, memory_.mirror.size(), places_);
}

/// Everything but the chunks.
void Encoder::take_result(std::size_t tensor, EncodeResult& ret_result) {
    ret_result = {};
    ret_result.variance_source = batch_.variance_source(tensor);
    const TensorPlan& plan = batch_.tensors()[tensor];
    if (plan.elements == 0) return;
    const auto& state = downloaded<TensorState>(batch_.layout().tensor_states)[tensor];
    if (state.non_finite != kAllFinite) {
        ret_result.non_finite =
            NonFinite{static_cast<std::uint32_t>(state.non_finite & 0xFFFFU), state.non_finite >> 16U};
        return;
    }
    if (static_cast<SelectorKind>(plan.selector) != SelectorKind::kTopK) return;
    threshold_misses_ += state.is_missed;
    std::uint32_t* hint = requests_[tensor].request.selection_hint;
    const std::uint32_t candidates = state.is_missed != 0 ? state.relisted : state.listed;
    if (hint != nullptr) *hint = candidates >= plan.keep_count ? state.prefix : 0U;
}

void Encoder::take_chunk(std::size_t chunk, EncodeResult& ret_result) {
    if (ret_result.non_finite) return;
    const ChunkPlan& plan = batch_.chunks()[chunk];
    const auto& result = downloaded<ChunkResult>(batch_.layout().results)[chunk];
    const bool is_dense = batch_.is_dense(plan.tensor);
    if (!is_dense && result.bytes == 0) return;
    ret_result.chunks.push_back({plan.chunk_index, {}});
    ret_result.kept_elements += is_dense ? plan.elements : result.sent;
}

}  // namespace

Result<std::unique_ptr<GpuEncoder>> GpuEncoder::make(int device, const GpuEncoderLimits& limits) {
    GRADSIEVE_ASSIGN(auto stream, Stream::make(device));
    int multiprocessors = 0;
    GRADSIEVE_CUDA_TRY(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
                       "asking for multiprocessors");
    return std::unique_ptr<GpuEncoder>(std::make_unique<Encoder>(limits, std::move(stream), multiprocessors));
}

}  // namespace gradsieve::codec::cuda
