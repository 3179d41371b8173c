// Memory of the host that a descriptor names, mapped once more and page-locked, so that every GPU of this process reads
// and writes it in place, over PCIe. What lies in it outlives the object.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"

#include <cstddef>
#include <utility>

namespace gradsieve::codec::cuda {

class SharedHostMemory {
public:
    SharedHostMemory() = default;
    /// The first `bytes` of `descriptor`, which may be closed afterwards. The calling thread's device has a context.
    /// Errors: kResourceExhausted (addresses, or the limit on locked memory), kUnavailable, kUnimplemented (a device
    /// that finds host memory at other addresses than the host).
    [[nodiscard]] static Result<SharedHostMemory> map(int descriptor, ByteCount bytes);
    SharedHostMemory(SharedHostMemory&& other) noexcept { swap(other); }
    SharedHostMemory& operator=(SharedHostMemory&& other) noexcept {
        SharedHostMemory(std::move(other)).swap(*this);
        return *this;
    }
    ~SharedHostMemory();

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] ByteCount size() const noexcept { return size_; }

private:
    void swap(SharedHostMemory& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(is_registered_, other.is_registered_);
    }
    std::byte* data_ = nullptr;
    ByteCount size_ = 0;
    bool is_registered_ = false;
};

}  // namespace gradsieve::codec::cuda
