// Decoding the payloads of all nodes of one step on a GPU, in node order, into averages in device memory. Payload bytes
// are untrusted and come from host memory: every count and index is checked before anything is written. The same bits
// and digest as codec/decoder.hpp, on one device or on several that share every tensor. One object per GPU worker
// thread.
#pragma once

#include "codec/cuda/device.hpp"
#include "codec/cuda/device_split.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/decoder.hpp"

#include <memory>
#include <span>
#include <vector>

namespace gradsieve::codec::cuda {

/// Where an average is written, e.g. a local rank's own gradient: device memory.
struct GpuResult {
    void* data = nullptr;
    ElementType type = ElementType::kF32;  ///< kF16, kBf16: the fp32 average rounded to nearest, ties to even
    /// The array holds exactly what the last step of this tensor left there, so tiles that neither step touches need no
    /// write. False for a gradient's own memory, which the trainer has overwritten.
    bool holds_last_result = false;
    /// Ordinal of the device whose memory this is; -1: memory that all devices of the decoder reach.
    int device = -1;
    /// Where kernels of each of the decoder's devices find it, in its order; null: out of their reach. Empty: at
    /// `data`.
    std::span<void* const> views{};
};

/// What a decoder remembers of one tensor between steps: which tiles the last result touched. Empty, as it starts, or
/// of another tensor's size: all of them; emptied when a decode fails.
struct TouchedTiles {
    std::vector<std::uint32_t> words;  ///< bit i % 32 of word i / 32: tile i
};

/// What averages are added to (difference.hpp), on one of the decoder's devices: element 0 of both arrays is the first
/// one that the device averages. Its own memory, or host memory that it reaches; two arrays.
struct GpuDecodeBase {
    const float* in = nullptr;
    float* out = nullptr;
};

struct GpuDecodeRequest {
    TensorId tensor = 0;
    Step step = 0;
    ElementCount elements = 0;
    std::span<const Contribution> contributions;  ///< host memory, in node order; factors in [0, 1], up to 65,535
    std::span<const GpuResult> results;           ///< each gets the same average
    TouchedTiles* touched = nullptr;              ///< null: every tile is written
    /// What each of the decoder's devices averages, in its order, as split_over_devices cuts; empty: the first device
    /// the whole tensor.
    std::span<const DeviceRange> ranges{};
    /// One for each range, or the first device's alone: every element of the results is out = fl(in + average), and so
    /// is the digest. A sum that is no finite number is an error, as decode_differences words it. Empty: averages
    /// alone.
    std::span<const GpuDecodeBase> bases{};
    ElementCount* ret_bad_sum = nullptr;  ///< may be null; set to the first such element where that is the error
};

struct GpuDecoderLimits {
    /// Averages for devices that are out of reach are copied there in pieces of so many bytes, at least one chunk.
    ByteCount staging_bytes = ByteCount{64} << 20U;
    bool uses_peers = true;        ///< false: as if no device reached another one's memory
    unsigned multiprocessors = 0;  ///< as GpuEncoderLimits says, for the kernel that averages
    /// Payloads in these blocks the devices fetch by themselves; null: the host gathers all.
    std::shared_ptr<const MirrorPool> mirrors = nullptr;
};

class GpuDecoder {
public:
    /// Errors: kUnimplemented, kUnavailable, kResourceExhausted.
    [[nodiscard]] static Result<std::unique_ptr<GpuDecoder>> make(std::span<const int> devices,
                                                                  const GpuDecoderLimits& limits);
    [[nodiscard]] static Result<std::unique_ptr<GpuDecoder>> make(int device) { return make({&device, 1}, {}); }
    virtual ~GpuDecoder() = default;

    /// Copies the payloads out and enqueues checks and averages of a batch behind what `stream()` holds; does not wait
    /// for the GPU. The requests and all they point at stay until `finish`, which must follow. Errors:
    /// kInvalidArgument, kFailedPrecondition (a batch is under way), kResourceExhausted, kUnavailable; after an error
    /// nothing is under way. A corrupt payload is no error of the batch: see `finish`.
    [[nodiscard]] virtual Status begin(std::span<const GpuDecodeRequest> tensors) = 0;
    /// Waits; one result per request. A tensor with a corrupt payload has its Status (which contribution, which chunk,
    /// what is wrong, as codec/decoder.hpp words it) and its results are unspecified; the others are complete. Errors:
    /// kUnavailable (the device failed; all results unspecified), kInvalidArgument, kFailedPrecondition.
    [[nodiscard]] virtual Status finish(std::span<Result<DecodeResult>> ret_results) = 0;

    /// Of the device of that place; the others' begin a batch behind what the first one holds.
    [[nodiscard]] virtual const Stream& stream(std::size_t place = 0) const noexcept = 0;
    [[nodiscard]] virtual ByteCount workspace_bytes(std::size_t place = 0) const noexcept = 0;
};

}  // namespace gradsieve::codec::cuda
