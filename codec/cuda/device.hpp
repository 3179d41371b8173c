// CUDA devices and memory without CUDA's headers: what there is, plain allocations, one stream, and errors as Status.
// In a build without CUDA every function answers kUnimplemented, so that callers need no #ifdef. A stream and what is
// enqueued on it belong to one thread; a memory object may be given to another.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradsieve::codec::cuda {

/// Whether this build has the CUDA forms at all; that a driver or a device is there is another matter.
[[nodiscard]] bool is_built() noexcept;

struct DeviceInfo {
    int ordinal = 0;
    std::string name;
    std::string uuid;  ///< "GPU-…", the same in every process
    ByteCount total_bytes = 0;
    int multiprocessors = 0;
    int compute_major = 0, compute_minor = 0;
};
/// Every device that the driver shows this process. Makes no context. Errors: kUnimplemented (built without CUDA),
/// kUnavailable (no driver, too old a driver, no device; says which).
[[nodiscard]] Result<std::vector<DeviceInfo>> list_devices();
/// "driver 13.0, runtime 13.0", or why there is none.
[[nodiscard]] std::string versions_text();

/// Device memory of one allocation, freed with the object. Contents are not initialised.
class DeviceMemory {
public:
    DeviceMemory() = default;
    /// Errors: kResourceExhausted with the figures; kUnavailable (the device is in error).
    [[nodiscard]] static Result<DeviceMemory> make(int device, ByteCount bytes, std::string_view what);
    DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
    DeviceMemory& operator=(DeviceMemory&& other) noexcept {
        DeviceMemory(std::move(other)).swap(*this);
        return *this;
    }
    ~DeviceMemory();

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] ByteCount size() const noexcept { return size_; }
    [[nodiscard]] int device() const noexcept { return device_; }
    template <typename T>
    [[nodiscard]] T* as(ByteCount offset_bytes = 0) const noexcept {
        return reinterpret_cast<T*>(data_ + offset_bytes);
    }

private:
    void swap(DeviceMemory& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(device_, other.device_);
    }
    std::byte* data_ = nullptr;
    ByteCount size_ = 0;
    int device_ = 0;
};

/// Page-locked host memory that every device can read and write.
class PinnedMemory {
public:
    PinnedMemory() = default;
    /// Errors: kResourceExhausted, with the limit on locked memory in words.
    [[nodiscard]] static Result<PinnedMemory> make(ByteCount bytes, std::string_view what);
    PinnedMemory(PinnedMemory&& other) noexcept { swap(other); }
    PinnedMemory& operator=(PinnedMemory&& other) noexcept {
        PinnedMemory(std::move(other)).swap(*this);
        return *this;
    }
    ~PinnedMemory();

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] ByteCount size() const noexcept { return size_; }
    template <typename T>
    [[nodiscard]] T* as(ByteCount offset_bytes = 0) const noexcept {
        return reinterpret_cast<T*>(data_ + offset_bytes);
    }

private:
    void swap(PinnedMemory& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }
    std::byte* data_ = nullptr;
    ByteCount size_ = 0;
};

/// A stream of the highest priority of one device, not ordered with the default stream.
class Stream {
public:
    Stream() = default;
    [[nodiscard]] static Result<Stream> make(int device);
    Stream(Stream&& other) noexcept { swap(other); }
    Stream& operator=(Stream&& other) noexcept {
        Stream(std::move(other)).swap(*this);
        return *this;
    }
    ~Stream();

    /// cudaStream_t.
    [[nodiscard]] void* handle() const noexcept { return handle_; }
    [[nodiscard]] int device() const noexcept { return device_; }
    /// Makes the device current for this thread; before every group of calls.
    [[nodiscard]] Status make_current() const;
    /// Waits until everything enqueued is done. Errors: kUnavailable: the device is in error, and every later call says
    /// so too.
    [[nodiscard]] Status synchronize() const;

private:
    void swap(Stream& other) noexcept {
        std::swap(handle_, other.handle_);
        std::swap(device_, other.device_);
    }
    void* handle_ = nullptr;
    int device_ = 0;
};

/// Enqueues a fill of device memory with one byte value; 0xFF makes every floating-point type a quiet NaN.
[[nodiscard]] Status fill_bytes(const Stream& stream, void* data, ByteCount bytes, int value);
/// Ok unless this process can use the device no more, whatever it tries: a kernel faulted, or the device fell off the
/// bus. Waits for the device. Errors: kUnavailable with CUDA's words.
[[nodiscard]] Status check_device(int device);
/// Gives this process's context on the device back to the driver, with all that is left in it. Only once every object
/// of the device is gone.
[[nodiscard]] Status release_context(int device);

}  // namespace gradsieve::codec::cuda
