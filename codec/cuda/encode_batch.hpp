// A batch of requests as the kernels want it: one plan per tensor and chunk, rounds of tensors that want the same
// kernel, and the sizes of all memory. Calls no CUDA, so that a batch is refused before anything is under way. Owned by
// one encoder; its arrays are reused from batch to batch.
#pragma once

#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/encode_plan.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/variance_source.hpp"

#include <vector>

namespace gradsieve::codec::cuda {

/// One launch of a dense pass and, for tensors that are decided as a whole, of what follows it.
struct RoundPlan {
    KernelHandle pass = nullptr;
    bool is_deferred = false;
    bool has_top_k = false;
    bool has_gate = false;
    std::uint32_t first_chunk = 0;
    std::uint32_t chunk_count = 0;
    std::uint32_t tile_count = 0;
    std::uint32_t group_count = 0;
    std::uint32_t value_bytes = 0;      ///< of a list's values; 0: no lists
    unsigned threads = 0;               ///< of the dense pass's blocks
    std::uint32_t scratch_samples = 0;  ///< samples that wait in memory for their second look
};

/// Where the parts of the plan lie in device memory, in bytes; everything before `results` is uploaded.
struct PlanLayout {
    ByteCount tensors = 0, chunks = 0, first_tiles = 0, first_groups = 0, samples = 0, moments = 0;
    ByteCount chunk_states = 0, tickets = 0;
    ByteCount tensor_states = 0, cursor = 0;  ///< from here on everything comes back
    ByteCount results = 0;
    ByteCount end = 0;
};

/// Slots of lists, one per tile, for the round that needs most, in bytes.
struct SlotLayout {
    ByteCount indices = 0, values = 0, infos = 0, gates = 0;
};

class EncodeBatch {
public:
    /// Plans `requests`. Errors: kInvalidArgument, as encode_tensor and for what a GPU cannot take.
    [[nodiscard]] Status plan(std::span<const GpuEncodeRequest> requests, ElementCount batch_elements);
    /// Writes the upload to `host`, for a copy to `device`.
    void write_upload(std::byte* host, const std::byte* device) const;

    [[nodiscard]] std::span<const RoundPlan> rounds() const noexcept { return rounds_; }
    [[nodiscard]] std::span<const ChunkPlan> chunks() const noexcept { return chunks_; }
    [[nodiscard]] std::span<const TensorPlan> tensors() const noexcept { return tensors_; }
    [[nodiscard]] VarianceSource variance_source(std::size_t tensor) const noexcept { return sources_[tensor]; }
    [[nodiscard]] const PlanLayout& layout() const noexcept { return layout_; }
    [[nodiscard]] const SlotLayout& slots() const noexcept { return slots_; }
    [[nodiscard]] ElementCount elements() const noexcept { return elements_; }
    /// Payloads whose place is known beforehand lie first.
    [[nodiscard]] ByteCount dense_payload_bytes() const noexcept { return dense_payload_bytes_; }
    /// No batch of these shapes has more.
    [[nodiscard]] ByteCount payload_bound_bytes() const noexcept { return payload_bound_bytes_; }
    [[nodiscard]] bool has_top_k() const noexcept { return has_top_k_; }
    /// Whether every element of a tensor is sent, in payloads of known place and size.
    [[nodiscard]] bool is_dense(std::size_t tensor) const noexcept;
    [[nodiscard]] ByteCount dense_chunk_bytes(const ChunkPlan& chunk) const noexcept;

private:
    void plan_tensor(const GpuEncodeRequest& request);
    void plan_rounds(ElementCount batch_elements);
    RoundPlan round_for(std::size_t tensor) const;
    ElementCount add_chunks(std::size_t tensor, ElementCount first, ElementCount batch_elements,
                            RoundPlan& inout_round);
    void end_round(const RoundPlan& round);
    void lay_out();

    std::vector<TensorPlan> tensors_;  ///< one per request, also of empty tensors
    std::vector<VarianceSource> sources_;
    std::vector<RoundPlan> wanted_;  ///< the empty round of each tensor's kind
    std::vector<std::uint32_t> first_samples_;  ///< of each tensor, in samples_
    std::vector<std::uint32_t> first_moments_;
    std::vector<SampleView> samples_;
    std::vector<const float*> moments_;
    std::vector<std::uint32_t> order_;
    std::vector<RoundPlan> rounds_;
    std::vector<ChunkPlan> chunks_;
    std::vector<std::uint32_t> first_tiles_;
    std::vector<std::uint32_t> first_groups_;
    PlanLayout layout_;
    SlotLayout slots_;
    ElementCount elements_ = 0;
    ByteCount dense_payload_bytes_ = 0;
    ByteCount payload_bound_bytes_ = 0;
    bool has_top_k_ = false;
};

/// What encode_tensor checks, and what only a GPU needs: types, alignment, 32-bit elements. Errors: kInvalidArgument.
[[nodiscard]] Status check_gpu_request(const GpuEncodeRequest& request);

}  // namespace gradsieve::codec::cuda
