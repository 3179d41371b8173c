// Encoding one tensor of one step: samples and state of generation a in, state of generation b and coded chunk payloads
// out. Must never know who sends or receives, and never reads a clock. Runs on a codec worker or, for small tensors, on
// the caller's thread; the caller owns every array and keeps it alive during the call.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"
#include "codec/payload_pool.hpp"
#include "codec/pipeline.hpp"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace gradsieve::codec {

/// What v grows by (architecture: variance). Chosen by what the caller hands over; reported back for status.
enum class VarianceSource : std::uint8_t { kNone = 0, kSecondMoment = 1, kGroups = 2, kGroupsPooled = 3, kSingle = 4 };
[[nodiscard]] std::string_view variance_source_name(VarianceSource source) noexcept;

/// One generation of a tensor's state: `elements` floats each, but for `factor` and `epoch` (state_arrays.hpp says how
/// many), or null where the pipeline has no such array.
struct StateView {
    float* residual = nullptr;  ///< delta: h, what was sent
    float* variance = nullptr;
    float* momentum = nullptr;
    float* factor = nullptr;   ///< lowrank: the transposed right factor
    float* average = nullptr;  ///< delta: the average of all nodes' h; not of encoding (difference.hpp)
    float* epoch = nullptr;    ///< delta: the bits of whatever tells states of one step apart; neither
    float* down = nullptr;     ///< the sharded plan: residual of the chunks that this node owns (shard.hpp)
    float* sent = nullptr;     ///< similarity(skip=..): bytes, of sent_state.hpp
};

struct EncodeRequest {
    const Pipeline* pipeline = nullptr;
    TensorId tensor = 0;
    Step step = 0;
    ElementCount elements = 0;
    /// M >= 1 sample gradients, `elements` floats each, local ranks in rank order and each rank's micro-batches in
    /// order. Memory that a client may change meanwhile: every word is loaded once.
    std::span<const float* const> samples;
    /// Weight of each sample in the node's mean; sums to 1. gbar = sum over samples in order of fl(weight * sample).
    std::span<const float> weights;
    /// Second moments q = sum of squared per-sample gradients, one array per local rank, or empty. inc = sum over
    /// ranks of q / B^2 (P1).
    std::span<const float* const> second_moments;
    /// B, all training samples behind this step on this node; 0 = unknown (then inc = s2 under P2).
    std::uint64_t batch_samples = 0;
    /// c: residual is multiplied by c and variance by c^2 on the way in, since the gradient's scale changed by c. 1 =
    /// unchanged, the only one with delta.
    float rescale = 1.0F;
    /// Nodes whose gradients are averaged, >= 1: each clips at the threshold times its square root (local_clip.hpp).
    std::uint32_t node_count = 1;
    /// Which random numbers unbiased quantizers draw, together with tensor and step: another number on every node, or
    /// averaging does not reduce their variance, and the same when a step is repeated.
    std::uint64_t random_seed = 0;
    /// Which elements random selectors send, together with tensor and step: the same number on every node, so that all
    /// send the same ones.
    std::uint64_t selection_seed = 0;
    /// Remembered by the owner per tensor from step to step (0 at first): a word about the last top-k threshold, so
    /// that the usual step is a single pass. Changes speed only, never bytes; any value is allowed. May be null.
    std::uint32_t* selection_hint = nullptr;
    /// Where payload memory comes from and goes back to; null: the workspace's own pool.
    const PayloadPool* payloads = nullptr;
    StateView in;   ///< generation to read; never written
    StateView out;  ///< generation to write; complete on success, unspecified on failure or non-finite input
};

struct ChunkPayload {
    std::uint32_t chunk_index = 0;  ///< elements [chunk_index * kChunkElements, ...)
    PayloadBytes bytes;             ///< self-describing, see docs/payload-format.md
};
struct NonFinite {
    std::uint32_t sample_index = 0;
    ElementCount element = 0;
};
struct EncodeResult {
    std::vector<ChunkPayload> chunks;  ///< ascending chunk_index; chunks that send nothing are left out
    ElementCount kept_elements = 0;    ///< elements sent
    VarianceSource variance_source = VarianceSource::kNone;
    std::optional<NonFinite> non_finite;  ///< set: no chunks, `out` unspecified, `in` untouched
};

/// Reusable scratch memory, so that steady state allocates only the list of chunks. One per thread.
class EncodeWorkspace {
public:
    EncodeWorkspace();
    EncodeWorkspace(EncodeWorkspace&&) noexcept;
    EncodeWorkspace& operator=(EncodeWorkspace&&) noexcept;
    ~EncodeWorkspace();
    struct Impl;
    [[nodiscard]] Impl& impl() noexcept { return *impl_; }

private:
    std::unique_ptr<Impl> impl_;
};

/// Encodes with the fastest form this CPU has; every form gives the same bytes and the same state.
/// Errors: kInvalidArgument (counts that do not fit together; a codec with phases, see phases.hpp).
[[nodiscard]] Result<EncodeResult> encode_tensor(const EncodeRequest& request, EncodeWorkspace& workspace);

/// Sum of squares of the residual in fp64, for status; O(n).
[[nodiscard]] double residual_square_sum(std::span<const float> residual) noexcept;

}  // namespace gradsieve::codec
