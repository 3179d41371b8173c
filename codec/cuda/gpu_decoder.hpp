// Decoding the payloads of all nodes of one step on a GPU, in node order, into averages in device memory. Payload bytes
// are untrusted and come from host memory: every count and index is checked before anything is written. The same bits
// and digest as codec/decoder.hpp. One object per GPU worker thread.
#pragma once

#include "codec/cuda/device.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/decoder.hpp"

#include <memory>
#include <span>
#include <vector>

namespace gradsieve::codec::cuda {

/// Where an average is written, e.g. a local rank's own gradient: device memory that the decoder's device can write.
struct GpuResult {
    void* data = nullptr;
    ElementType type = ElementType::kF32;  ///< kF16, kBf16: the fp32 average rounded to nearest, ties to even
    /// The array holds exactly what the last step of this tensor left there, so tiles that neither step touches need no
    /// write. False for a gradient's own memory, which the trainer has overwritten.
    bool holds_last_result = false;
};

/// What a decoder remembers of one tensor between steps: which tiles the last result touched. Starts as "all".
struct TouchedTiles {
    std::vector<std::uint32_t> words;  ///< bit i % 32 of word i / 32: tile i
};

struct GpuDecodeRequest {
    TensorId tensor = 0;
    Step step = 0;
    ElementCount elements = 0;
    std::span<const Contribution> contributions;  ///< host memory, in node order
    std::span<const GpuResult> results;           ///< each gets the same average
    TouchedTiles* touched = nullptr;              ///< null: every tile is written
};

class GpuDecoder {
public:
    /// Errors: kUnimplemented, kUnavailable, kResourceExhausted.
    [[nodiscard]] static Result<std::unique_ptr<GpuDecoder>> make(int device);
    virtual ~GpuDecoder() = default;

    /// Enqueues copies, checks and averages of a batch behind what `stream()` holds; returns without waiting. The
    /// requests and all they point at stay until `finish`. Errors: kInvalidArgument, kResourceExhausted, kUnavailable,
    /// and kCorrupt for what the host sees already (chunk indices); after an error nothing is under way.
    [[nodiscard]] virtual Status begin(std::span<const GpuDecodeRequest> tensors) = 0;
    /// Waits; one result per request. A tensor with a corrupt payload has its Status (which contribution, which chunk,
    /// what is wrong, as codec/decoder.hpp words it) and its results are unspecified; the others are complete. Errors:
    /// kUnavailable (the device failed).
    [[nodiscard]] virtual Status finish(std::span<Result<DecodeResult>> ret_results) = 0;

    [[nodiscard]] virtual const Stream& stream() const noexcept = 0;
    [[nodiscard]] virtual ByteCount workspace_bytes() const noexcept = 0;
};

}  // namespace gradsieve::codec::cuda
