// Differences to what was sent (stage delta, codec/difference.hpp), of tensors in device memory: what a node has sent
// takes up what its own payloads decode to, by the receivers' kernels. The same bits as there. GPU worker thread.
#pragma once

#include "codec/cuda/gpu_decoder.hpp"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace gradsieve::codec::cuda {

/// What an encoder's devices do once a batch's payloads are there; nothing is allocated before the first one with
/// delta.
class SentFollower {
public:
    SentFollower(std::span<const int> devices, const GpuDecoderLimits& limits)
        : devices_(devices.begin(), devices.end()), limits_(limits) {}

    /// As follow_sent of each request with delta; the others' results stay as they are. Waits. Errors: kCorrupt (a
    /// payload that no node could read; all `out` unspecified); as GpuDecoder.
    [[nodiscard]] Status follow(std::span<const GpuEncodeRequest> requests, std::span<EncodeResult> inout_results);
    [[nodiscard]] ByteCount workspace_bytes(std::size_t place) const noexcept {
        return decoder_ == nullptr ? 0 : decoder_->workspace_bytes(place);
    }

private:
    /// One tensor's own payloads on their way to what was sent.
    struct Own {
        std::size_t request = 0;
        std::vector<ChunkView> views;
        Contribution contribution;
        std::vector<DeviceRange> ranges;
        std::vector<GpuDecodeBase> bases;
        ElementCount bad_sum = 0;
    };
    [[nodiscard]] Status open();
    [[nodiscard]] Status keep(const GpuEncodeRequest& request) const;

    std::vector<int> devices_;
    GpuDecoderLimits limits_;
    std::unique_ptr<GpuDecoder> decoder_;  ///< from the first use on
};

/// keep_state of what the device of `stream` has of a tensor, `elements` of it: enqueues the copies of arrays that have
/// a number for each; the others are the host's and are copied at once.
[[nodiscard]] Status keep_state(const Stream& stream, const Pipeline& pipeline, ElementCount elements,
                                const StateView& in, const StateView& out);

}  // namespace gradsieve::codec::cuda
