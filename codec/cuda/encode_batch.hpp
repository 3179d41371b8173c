// One device's part of a batch as the kernels want it: one plan per tensor and chunk, rounds of tensors that want the
// same kernel, and the sizes of all memory. Calls no CUDA, so that a batch is refused before anything is under way.
// Owned by one encoder; its arrays are reused from batch to batch.
#pragma once

#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/encode_plan.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/cuda/peer_access.hpp"
#include "codec/cuda/scope_plan.hpp"
#include "codec/cuda/staged_samples.hpp"
#include "codec/random_mask.hpp"
#include "codec/variance_source.hpp"

#include <vector>

namespace gradsieve::codec::cuda {

/// A launch of a dense pass: the tiles of consecutive chunks of a round, behind the copies of what it reads staged.
struct PassPlan {
    std::uint32_t first_tile = 0, end_tile = 0;
    std::uint32_t first_copy = 0, copy_count = 0;
};

/// One dense pass, in one launch unless its samples are staged, and, for tensors that are decided as a whole, what
/// follows it.
struct RoundPlan {
    PassKernel pass;
    bool is_shared = false;  ///< its tensors are decided together with other devices, which have the same round
    bool is_deferred = false;
    bool has_top_k = false;
    bool has_gate = false;
    bool has_blocks = false;    ///< block top-k
    bool has_adaptive = false;  ///< adaptive_random
    bool is_keyed = false;      ///< all of its tensors' selectors are
    unsigned looks = 0;         ///< most of a tensor whose threshold is estimated
    bool has_front = false;
    bool has_clip = false;              ///< of some tensor's front, which lies in this round as a whole
    bool is_masked = false;             ///< of some tensor's front
    bool has_low_pass = false;          ///< of some tensor's front
    bool is_integer = false;            ///< all of its tensors are sent whole, by integer
    std::optional<ScopePhase> scope{};  ///< of all of its tensors: nothing but this phase, on this level
    unsigned scope_level = 0;
    Draw draw = Draw::kNone;  ///< the last of its lists'
    std::uint32_t first_chunk = 0;
    std::uint32_t chunk_count = 0;
    std::uint32_t tile_count = 0;
    std::uint32_t most_tiles = 0;  ///< of any device, if shared
    std::uint32_t group_count = 0;
    std::uint32_t first_pass = 0, pass_count = 0;
    std::uint32_t value_bytes = 0;      ///< of a list's values; 0: no lists
    std::uint32_t scratch_samples = 0;  ///< samples that wait in memory for their second look
};

/// Where the parts of the plan lie in device memory, in bytes; all of it is uploaded.
struct PlanLayout {
    ByteCount tensors = 0, fronts = 0, chunks = 0, first_tiles = 0, first_groups = 0, samples = 0, moments = 0;
    ByteCount tickets = 0;
    ByteCount tensor_states = 0, cursor = 0;  ///< from here on everything comes back
    ByteCount results = 0;
    ByteCount end = 0;
};

/// Slots of lists, one per tile, for the round that needs most, in bytes.
struct SlotLayout {
    ByteCount indices = 0, values = 0, infos = 0, gates = 0;
    ByteCount sums = 0;  ///< of squares, one per tile
};

/// What the keys of a tensor's rotations follow from.
struct RotationSource {
    std::uint64_t seed = 0;
    TensorId tensor = 0;
    Step step = 0;
};

/// Addresses that are known once the memory is there.
struct EncodeAddresses {
    const std::byte* plan = nullptr;     ///< device memory
    const std::byte* staging = nullptr;  ///< device memory
    SharedCounts* shared = nullptr;
};

class EncodeBatch {
public:
    /// Plans what the device of that place does of `requests`. Errors: kInvalidArgument, as encode_tensor and for what
    /// a GPU cannot take.
    [[nodiscard]] Status plan(std::span<const GpuEncodeRequest> requests, const DevicePlace& place,
                              const GpuEncoderLimits& limits);
    /// Writes the upload to `host`.
    void write_upload(std::byte* host, const EncodeAddresses& addresses) const;

    /// Those that are shared stand last, and all devices have as many, about the same tensors in the same order.
    [[nodiscard]] std::span<const RoundPlan> rounds() const noexcept { return rounds_; }
    [[nodiscard]] std::span<const PassPlan> passes() const noexcept { return passes_; }
    [[nodiscard]] std::span<const StageCopy> copies() const noexcept { return staged_.copies(); }
    [[nodiscard]] ByteCount staging_bytes() const noexcept { return staged_.bytes(); }
    /// Counts that the devices share, of all tensors; the same on every device.
    [[nodiscard]] std::size_t shared_count() const noexcept { return shared_count_; }
    /// First element of the device's part of a tensor.
    [[nodiscard]] const DeviceRange& range(std::size_t tensor) const noexcept { return ranges_[tensor]; }
    [[nodiscard]] std::span<const ChunkPlan> chunks() const noexcept { return chunks_; }
    [[nodiscard]] std::span<const TensorPlan> tensors() const noexcept { return tensors_; }
    [[nodiscard]] bool has_fronts() const noexcept { return has_fronts_; }
    [[nodiscard]] VarianceSource variance_source(std::size_t tensor) const noexcept { return sources_[tensor]; }
    [[nodiscard]] const PlanLayout& layout() const noexcept { return layout_; }
    [[nodiscard]] const SlotLayout& slots() const noexcept { return slots_; }
    [[nodiscard]] ElementCount elements() const noexcept { return elements_; }
    /// Payloads whose place is known beforehand lie first.
    [[nodiscard]] ByteCount dense_payload_bytes() const noexcept { return dense_payload_bytes_; }
    /// No batch of these shapes has more.
    [[nodiscard]] ByteCount payload_bound_bytes() const noexcept { return payload_bound_bytes_; }
    /// Memory for payloads, and behind those for the means of tensors that keep no r.
    [[nodiscard]] ByteCount payload_memory_bytes() const noexcept;
    /// Of a tensor that may be selected together with others.
    [[nodiscard]] const ScopePlan& scope(std::size_t tensor) const noexcept { return scopes_[tensor]; }
    [[nodiscard]] bool has_top_k() const noexcept { return has_top_k_; }
    /// Whether every element of a tensor is sent, in payloads of known place and size.
    [[nodiscard]] bool is_dense(std::size_t tensor) const noexcept;
    [[nodiscard]] ByteCount dense_chunk_bytes(const ChunkPlan& chunk) const noexcept;

private:
    void clear();
    void plan_tensor(const GpuEncodeRequest& request, const DevicePlace& place);
    void add_arrays(const GpuEncodeRequest& request, const GpuEncodePart& part, const DevicePlace& place,
                    bool has_moments);
    void share(const GpuEncodeRequest& request, const DevicePlace& place, TensorPlan& inout_plan);
    void plan_rounds(const GpuEncoderLimits& limits);
    void add_wanted(std::size_t tensor);
    void add_pass(std::size_t tensor, RoundPlan& inout_round) const;
    RoundPlan begin_round(std::size_t tensor) const;
    void add_chunks(std::size_t tensor, const GpuEncoderLimits& limits, RoundPlan& inout_round);
    void add_chunk(std::size_t tensor, ElementCount first, RoundPlan& inout_round);
    void end_round(const GpuEncoderLimits& limits, RoundPlan& round);
    void plan_passes(const GpuEncoderLimits& limits, RoundPlan& inout_round);
    void lay_out();

    std::vector<TensorPlan> tensors_;  ///< one per request, also of empty parts
    std::vector<FrontPlan> fronts_;    ///< one each
    bool has_fronts_ = false;
    std::vector<DeviceRange> ranges_;
    std::vector<SelectionPlan> selections_;  ///< one each; of keyed selectors
    std::vector<RotationSource> rotations_;  ///< one each; of rotations
    std::vector<VarianceSource> sources_;
    std::vector<ScopePlan> scopes_;            ///< one each
    std::vector<RoundPlan> wanted_;            ///< the empty round of each tensor's kind
    std::vector<std::uint32_t> most_tiles_;    ///< tiles of the largest part
    std::vector<std::uint32_t> first_shared_;  ///< of the tensor's counts; kNothing
    std::size_t shared_count_ = 0;
    StagedSamples staged_;  ///< every tensor's arrays, staged or not
    std::vector<std::uint32_t> order_;
    std::vector<RoundPlan> rounds_;
    std::vector<PassPlan> passes_;
    std::vector<ChunkPlan> chunks_;
    std::vector<std::uint32_t> chunk_rows_;  ///< of each chunk, in staged_
    std::vector<std::uint32_t> first_tiles_;
    std::vector<std::uint32_t> first_groups_;
    PlanLayout layout_;
    SlotLayout slots_;
    ElementCount elements_ = 0;
    ByteCount dense_payload_bytes_ = 0;
    ByteCount payload_bound_bytes_ = 0;
    ByteCount mean_bytes_ = 0;
    bool has_top_k_ = false;
};

/// What encode_tensor checks, and what only a GPU needs: types, alignment, 32-bit elements. Errors: kInvalidArgument.
/// Parts: one per device, whole chunks, all of the tensor.
[[nodiscard]] Status check_gpu_request(const GpuEncodeRequest& request, std::size_t device_count);

}  // namespace gradsieve::codec::cuda
