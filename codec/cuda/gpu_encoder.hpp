// Encoding on a GPU: many tensors of one step in one call, samples and both generations of state in device memory,
// coded chunk payloads in host memory. The same bytes and the same state as codec/encoder.hpp, bit for bit. One object
// per GPU worker thread; nothing is allocated while a step runs, except what grows to its largest use once.
#pragma once

#include "codec/cuda/device.hpp"
#include "codec/encoder.hpp"

#include <memory>
#include <span>

namespace gradsieve::codec::cuda {

/// How a gradient's elements lie in memory; converted to fp32 exactly as they are read.
enum class ElementType : std::uint8_t { kF32 = 0, kF16 = 1, kBf16 = 2 };

/// `request`'s samples, second moments and state are device memory that the encoder's device can read (its own, or a
/// peer's), aligned to their element's size; weights and `selection_hint` are host memory.
struct GpuEncodeRequest {
    EncodeRequest request;
    /// One per sample; empty: all fp32. A sample of another type is that type's array behind a cast pointer.
    std::span<const ElementType> sample_types;
};

struct GpuEncoderLimits {
    /// Elements coded in one round of kernels; larger batches are cut. More costs workspace (3 bytes an element for
    /// pow2 and sign, 6 for top-k and f32), fewer costs launches.
    ElementCount batch_elements = ElementCount{1} << 27U;
    /// Most bytes of device memory for workspace; 0: no limit but the card's.
    ByteCount workspace_bytes = 0;
};

class GpuEncoder {
public:
    /// Errors: kUnimplemented, kUnavailable, kResourceExhausted.
    [[nodiscard]] static Result<std::unique_ptr<GpuEncoder>> make(int device, const GpuEncoderLimits& limits);
    virtual ~GpuEncoder() = default;

    /// Enqueues the whole work of a batch behind what `stream()` holds, and returns without waiting. The requests and
    /// all they point at stay until `finish`. Errors: kInvalidArgument (as encode_tensor), kResourceExhausted
    /// (workspace, with the figures), kUnavailable. After an error nothing of the batch is under way.
    [[nodiscard]] virtual Status begin(std::span<const GpuEncodeRequest> tensors) = 0;
    /// Waits for the batch and takes its results, one per request in order. A tensor with `non_finite` set has no
    /// chunks; the others are complete. Errors: kUnavailable (the device failed; all `out` generations unspecified).
    [[nodiscard]] virtual Status finish(std::span<EncodeResult> ret_results) = 0;
    [[nodiscard]] Status encode(std::span<const GpuEncodeRequest> tensors, std::span<EncodeResult> ret_results) {
        GRADSIEVE_TRY(begin(tensors));
        return finish(ret_results);
    }

    /// Everything is enqueued here; callers add their event waits before `begin` and their records after it.
    [[nodiscard]] virtual const Stream& stream() const noexcept = 0;
    [[nodiscard]] virtual ByteCount workspace_bytes() const noexcept = 0;
    /// Top-k tensors whose remembered threshold was too high, so that a second pass was needed.
    [[nodiscard]] virtual std::uint64_t threshold_misses() const noexcept = 0;
};

}  // namespace gradsieve::codec::cuda
