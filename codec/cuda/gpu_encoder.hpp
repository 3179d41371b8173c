// Encoding on a GPU: many tensors of one step in one call, samples and both generations of state in device memory,
// coded chunk payloads in host memory. The same bytes and the same state as codec/encoder.hpp, bit for bit, on one
// device or on several that share every tensor. One object per GPU worker thread; nothing is allocated while a step
// runs, except what grows to its largest use once.
#pragma once

#include "codec/cuda/device.hpp"
#include "codec/cuda/device_split.hpp"
#include "codec/cuda/mirror_pool.hpp"
#include "codec/encoder.hpp"
#include "codec/model_scope.hpp"
#include "codec/stages/similarity.hpp"

#include <memory>
#include <optional>
#include <span>

namespace gradsieve::codec::cuda {

/// How a gradient's elements lie in memory; converted to fp32 exactly as they are read.
enum class ElementType : std::uint8_t { kF32 = 0, kF16 = 1, kBf16 = 2 };
[[nodiscard]] constexpr ByteCount element_bytes(ElementType type) noexcept { return type == ElementType::kF32 ? 4 : 2; }

/// What one of several devices codes of a tensor: both generations of that range's state, in that device's memory.
/// Element 0 of the arrays is element `range.first` of the tensor.
struct GpuEncodePart {
    DeviceRange range;
    StateView in, out;
    /// Where this device's kernels find the request's samples and second moments, one each; null: out of their reach.
    /// Empty: where the request says.
    std::span<const float* const> samples{};
    std::span<const float* const> second_moments{};
};

/// A phase of a member of a scope (codec/narrow_scope.hpp), at a step that sends: kObserve, whose pass leaves r and v
/// as if nothing were sent, kCount or kSettle. The member's other phases are encoded by encoders of the same devices,
/// in the same parts.
struct GpuScopePhase {
    ScopePhase phase = ScopePhase::kObserve;
    ScopeTerms terms;
    ScopeMember* member = nullptr;
};

/// `request`'s samples, second moments and state are device memory, aligned to their element's size; weights and
/// `selection_hint` are host memory.
struct GpuEncodeRequest {
    EncodeRequest request;
    /// One per sample; empty: all fp32. A sample of another type is that type's array behind a cast pointer.
    std::span<const ElementType> sample_types{};
    /// One for each device of the encoder, in its order, as split_over_devices cuts; `request`'s own state is not used
    /// then. Empty: the first device codes the whole tensor.
    std::span<const GpuEncodePart> parts{};
    /// Ordinals of the devices whose memory the samples and the second moments are, one each; empty: memory that all
    /// devices of the encoder reach.
    std::span<const int> sample_devices{}, moment_devices{};
    /// One phase, in place of the whole way; of pipelines with has_model_scope, which else are all of their scope. The
    /// samples and second moments are read in kObserve alone; later they and their types may be gone, but not their
    /// number. `out` becomes final in kSettle, whose result is the tensor's; the others' have no chunks.
    std::optional<GpuScopePhase> scope{};
    bool wants_signature = false;  ///< of the mean gradient: GpuEncoder::signature has it
};

struct GpuEncoderLimits {
    /// Elements coded in one round of kernels; larger batches are cut. More costs workspace (3 bytes an element for
    /// pow2 and sign, 6 for top-k and f32), fewer costs launches.
    ElementCount batch_elements = ElementCount{1} << 27U;
    /// Most bytes of device memory for workspace, of each device; 0: no limit but the card's.
    ByteCount workspace_bytes = 0;
    /// Samples of devices that are out of reach are copied in pieces of so many bytes, at least one chunk of each.
    ByteCount staging_bytes = ByteCount{64} << 20U;
    bool uses_peers = true;  ///< false: as if no device reached another one's memory
    /// A dense pass runs as many blocks at a time as so many multiprocessors hold (the device spreads them over all of
    /// its own), so that a trainer keeps the rest; 0: all. What works on lists alone is short and not limited.
    unsigned multiprocessors = 0;
    /// Where payloads lie on the host; null: blocks of the encoder's own.
    std::shared_ptr<MirrorPool> mirrors = nullptr;
};

class GpuEncoder {
public:
    /// Errors: kUnimplemented, kUnavailable, kResourceExhausted.
    [[nodiscard]] static Result<std::unique_ptr<GpuEncoder>> make(std::span<const int> devices,
                                                                  const GpuEncoderLimits& limits);
    [[nodiscard]] static Result<std::unique_ptr<GpuEncoder>> make(int device, const GpuEncoderLimits& limits) {
        return make(std::span(&device, 1), limits);
    }
    virtual ~GpuEncoder() = default;

    /// Enqueues a batch's kernels behind what `stream()` holds, and returns without waiting. The requests and
    /// all they point at stay until `finish`. Errors: kInvalidArgument (as encode_tensor), kResourceExhausted
    /// (workspace, with the figures), kUnavailable. After an error nothing of the batch is under way.
    [[nodiscard]] virtual Status begin(std::span<const GpuEncodeRequest> tensors) = 0;
    /// Brings the batch's payloads to the host, waits, and takes its results, one per request in order; with delta,
    /// what was sent takes up what they decode to. A tensor with `non_finite` set has no chunks; the others are
    /// complete. Errors: kUnavailable (the device failed; all `out` generations unspecified), kCorrupt (delta: a
    /// payload that no node could read; likewise).
    [[nodiscard]] virtual Status finish(std::span<EncodeResult> ret_results) = 0;
    /// Of the tensor of that number in the batch that was finished last; none of one with `non_finite` set, and of one
    /// that did not ask for it.
    [[nodiscard]] virtual const std::optional<Signature>& signature(std::size_t tensor) const noexcept = 0;
    /// Signatures of mean gradients and nothing else: of `request`, tensor, samples, weights and elements are read, and
    /// of `parts` ranges and samples. Waits. Errors: kFailedPrecondition (a batch is under way), kResourceExhausted,
    /// kUnavailable.
    [[nodiscard]] virtual Result<std::vector<Signature>> sign(std::span<const GpuEncodeRequest> tensors) = 0;
    [[nodiscard]] Status encode(std::span<const GpuEncodeRequest> tensors, std::span<EncodeResult> ret_results) {
        GRADSIEVE_TRY(begin(tensors));
        return finish(ret_results);
    }

    /// The stream of the device of that place, on which its part is enqueued. The other devices' streams begin a batch
    /// behind what the first one holds: callers add their event waits there before `begin`, and call `finish` before
    /// they rely on the others.
    [[nodiscard]] virtual const Stream& stream(std::size_t place = 0) const noexcept = 0;
    /// Of the device of that place.
    [[nodiscard]] virtual ByteCount workspace_bytes(std::size_t place = 0) const noexcept = 0;
    /// Whether the device of that place reaches all the others' own memory.
    [[nodiscard]] virtual bool is_direct(std::size_t place) const noexcept = 0;
    /// Top-k tensors whose remembered threshold was too high, so that a second pass was needed.
    [[nodiscard]] virtual std::uint64_t threshold_misses() const noexcept = 0;
};

}  // namespace gradsieve::codec::cuda
