// Arrays of host memory that go to a device together, what kernels make of them there, and the way back: one copy each
// way, and one wait, for all of them. Of codecs whose phases decide on the host. GPU worker thread.
#pragma once

#include "codec/cuda/device.hpp"

#include <functional>
#include <span>
#include <vector>

namespace gradsieve::codec::cuda {

class RoundTrip {
public:
    /// Calls nothing of CUDA. `what`: errors name it; constant text.
    RoundTrip(int device, const char* what) : device_(device), what_(what) {}

    /// A tensor's arrays, of which any may be empty; host memory.
    struct Slot {
        std::span<const std::byte> in[2];
        std::span<std::byte> out[2];
        ByteCount at[4] = {};  ///< of `in`, then `out`, in the device's memory
    };
    /// Enqueues the kernels of the slot of that number.
    using Launch = std::function<Status(std::size_t number, const Slot& slot)>;

    /// `out` is zeros on the device before the kernels. Behind what `stream` of the device holds; waits for it. Errors:
    /// kResourceExhausted, kUnavailable (the device failed: what was to be written is unspecified); `launch`'s.
    [[nodiscard]] Status run(const Stream& stream, std::vector<Slot>& inout_slots, const Launch& launch);

    /// While `launch` runs: what lies there on the device.
    template <typename T>
    [[nodiscard]] T* as(ByteCount at) const noexcept {
        return memory_.as<T>(at);
    }
    [[nodiscard]] ByteCount bytes() const noexcept { return memory_.size(); }

private:
    [[nodiscard]] Status fit(ByteCount bytes);

    int device_ = 0;
    const char* what_ = "";
    DeviceMemory memory_;  ///< grows to its largest use
    PinnedMemory mirror_;  ///< the same on the host
};

}  // namespace gradsieve::codec::cuda
