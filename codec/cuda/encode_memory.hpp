// The memory of one encoder, grown to its largest use and then reused; the only place where it allocates. One thread;
// nothing may be under way on the device while it grows.
#pragma once

#include "codec/cuda/encode_batch.hpp"

namespace gradsieve::codec::cuda {

struct EncodeMemory {
    DeviceMemory plan;
    DeviceMemory indices, values, infos, gates;  ///< slots of lists
    DeviceMemory sums;                           ///< of tiles' squares
    DeviceMemory payload;
    DeviceMemory histograms;  ///< zero between batches
    DeviceMemory scratch;     ///< samples between the two looks at them
    DeviceMemory staging;     ///< samples of devices out of reach
    PinnedMemory upload;      ///< the plan on its way in
    PinnedMemory download;    ///< states and results on their way back
    PinnedMemory pieces;      ///< the way out for payloads beyond the batch's mirror

    [[nodiscard]] ByteCount device_bytes() const noexcept;
    /// Of `payload`, from its beginning: what goes to the batch's mirror on the host.
    [[nodiscard]] static ByteCount mirror_bytes(const EncodeBatch& batch) noexcept;
    [[nodiscard]] static ByteCount download_bytes(const EncodeBatch& batch) noexcept {
        return batch.layout().end - batch.layout().tensor_states;
    }
    /// Whether `fit` has anything to do, so that a stream has to be waited for first.
    [[nodiscard]] bool fits(const EncodeBatch& batch, ByteCount scratch_bytes) const noexcept;
    /// Makes room for a batch. Errors: kResourceExhausted (the card, or `limit_bytes` of device memory; 0: no limit),
    /// kUnavailable. What was there before stays usable.
    [[nodiscard]] Status fit(const Stream& stream, const EncodeBatch& batch, ByteCount scratch_bytes,
                             ByteCount limit_bytes);
};

}  // namespace gradsieve::codec::cuda
