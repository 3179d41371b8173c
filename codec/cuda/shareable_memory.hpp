// Device memory that a descriptor names: it lives as long as the descriptor is open anywhere or it is mapped anywhere,
// so it can be handed to a later process. GPU worker thread.
#pragma once

#include "base/unique_fd.hpp"
#include "codec/cuda/device.hpp"

#include <memory>

namespace gradsieve::codec::cuda {

/// One allocation, mapped into this process for its own device.
class ShareableMemory {
public:
    ShareableMemory() = default;
    /// `bytes`: whole pages of the device, more than 0. The contents are anything. `ret_descriptor` names the
    /// allocation from here on. Errors: kResourceExhausted with the figures, kInvalidArgument (not whole pages),
    /// kUnimplemented, kUnavailable.
    [[nodiscard]] static Result<ShareableMemory> make(int device, ByteCount bytes, std::string_view what,
                                                      UniqueFd& ret_descriptor);
    /// What `descriptor` names, contents and all; it stays the caller's. Errors: kInvalidArgument (not such a
    /// descriptor, or smaller than `bytes`), kUnavailable.
    [[nodiscard]] static Result<ShareableMemory> open(int device, int descriptor, ByteCount bytes);
    ShareableMemory(ShareableMemory&&) noexcept;
    ShareableMemory& operator=(ShareableMemory&&) noexcept;
    ~ShareableMemory();

    [[nodiscard]] std::byte* data() const noexcept;
    [[nodiscard]] ByteCount size() const noexcept { return size_; }
    [[nodiscard]] int device() const noexcept { return device_; }
    template <typename T>
    [[nodiscard]] T* as(ByteCount offset_bytes = 0) const noexcept {
        return reinterpret_cast<T*>(data() + offset_bytes);
    }

private:
    struct Impl;
    ShareableMemory(std::unique_ptr<Impl> impl, int device, ByteCount size);
    std::unique_ptr<Impl> impl_;
    int device_ = 0;
    ByteCount size_ = 0;
};

}  // namespace gradsieve::codec::cuda
