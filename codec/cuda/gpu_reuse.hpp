// Steps that are skipped (codec/reuse.hpp) of tensors in device memory: many at a time, each whole on one device.
// Signatures, p and p - d are the device's; the last payload, which is kept in host memory with `sent`, is decoded
// there once more. The same payloads, state and verdicts as encode_or_reuse, bit for bit. GPU worker thread.
#pragma once

#include "codec/cuda/device.hpp"
#include "codec/cuda/gpu_decoder.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/reuse_steps.hpp"

#include <span>
#include <vector>

namespace gradsieve::codec::cuda {

struct GpuReuseRequest {
    /// As for GpuEncoder; `request`'s `in.sent` and `out.sent` are host memory, also where there are parts, of which
    /// one has elements.
    GpuEncodeRequest encode;
    HeldView held;  ///< as for encode_or_reuse
};
struct GpuReuseResult {
    ReuseEncode reuse;
    std::optional<Signature> gradient;  ///< none where it is not finite
};

class GpuReuse {
public:
    /// Waits. `encoder` and `decoder` have nothing under way, and the same devices, always the same ones here. Errors:
    /// kInvalidArgument, as encode_or_reuse; as the encoder; kCorrupt (a payload in `sent`). All `out` generations are
    /// unspecified then.
    [[nodiscard]] Status encode(GpuEncoder& encoder, GpuDecoder& decoder, std::span<const GpuReuseRequest> requests,
                                std::span<GpuReuseResult> ret_results);

    [[nodiscard]] ByteCount workspace_bytes(std::size_t place) const noexcept {
        return place < lanes_.size() ? lanes_[place].values.size() + lanes_[place].sums.size() : 0;
    }

private:
    struct Lane {
        DeviceMemory values;  ///< what payloads decode to
        DeviceMemory sums;    ///< of tiles: |p|^2, then |p - d|^2
        PinnedMemory host_sums;
    };
    struct Turn;
    struct Piece;
    [[nodiscard]] Status settle(Turn& turn, std::size_t place, std::span<const std::size_t> numbers);
    [[nodiscard]] Status subtract(Turn& turn, std::size_t place, std::span<const Piece> pieces);
    [[nodiscard]] static Status encode_some(Turn& turn, std::span<const std::size_t> numbers, bool is_pass);

    std::vector<Lane> lanes_;  ///< one for each device; grow to their largest use
};

}  // namespace gradsieve::codec::cuda
