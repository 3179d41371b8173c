// The few calls of the CUDA driver that binding device memory takes, found at run time: the library links no CUDA and
// loads on hosts without a driver. Must never be touched in a forked child. Every call returns the driver's own name
// and text for its error. Any thread; what a call acts on is the caller's current context unless it says otherwise.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "shm/device_message.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace gradsieve::client {

using DeviceAddress = std::uint64_t;
/// The driver's CUcontext and CUstream.
using ContextRef = void*;
using StreamRef = void*;

/// "0x7f0012000000"
[[nodiscard]] std::string address_text(DeviceAddress address);

class CudaDriver {
public:
    /// `library` as for dlopen. Errors: kUnavailable (no such library, a call is missing from it, no device; says which
    /// and what to do).
    [[nodiscard]] static Result<std::unique_ptr<CudaDriver>> load(const std::string& library);
    CudaDriver(const CudaDriver&) = delete;
    CudaDriver& operator=(const CudaDriver&) = delete;
    ~CudaDriver();  ///< the library stays loaded: the program uses it too

    enum class MemoryType : std::uint8_t { kUnknown, kHost, kDevice, kManaged };
    struct PointerFacts {
        MemoryType type = MemoryType::kUnknown;
        int device = 0;
        ContextRef context = nullptr;  ///< null for memory that belongs to none (mapped, from a pool)
    };
    [[nodiscard]] Result<PointerFacts> describe(DeviceAddress address) const;
    struct Range {
        DeviceAddress base = 0;
        ByteCount bytes = 0;
    };
    /// The allocation, or the mapping of one physical allocation, that `address` lies in. Errors: as of the driver.
    [[nodiscard]] Result<Range> range_of(DeviceAddress address) const;
    /// Nothing for memory that has no such handle (mapped with cuMemMap, or from a pool).
    [[nodiscard]] Result<std::optional<shm::DeviceHandle>> memory_handle(DeviceAddress base) const;
    /// A descriptor of the physical allocation that is mapped at `base`. Errors: kFailedPrecondition (not mapped with
    /// cuMemMap, or not created exportable; what to do).
    [[nodiscard]] Result<UniqueFd> export_allocation(DeviceAddress base) const;
    [[nodiscard]] Result<shm::DeviceUuid> device_uuid(int device) const;

    /// Null if there is none.
    [[nodiscard]] Result<ContextRef> current_context() const;
    [[nodiscard]] Result<int> current_device() const;
    [[nodiscard]] Result<ContextRef> context_of(StreamRef stream) const;
    [[nodiscard]] Status push_context(ContextRef context) const;
    void pop_context() const noexcept;

    /// Makes whole pages of host memory known to all contexts, for their devices to write. Errors: kFailedPrecondition
    /// (this host cannot do that; what to do), else as of the driver.
    [[nodiscard]] Status register_host(std::span<std::byte> pages) const;
    /// The same for copies alone, of pages that this process may only read if `is_read_only`. Errors: of the driver;
    /// copies go without it, only slower.
    [[nodiscard]] Status register_for_copies(std::span<const std::byte> pages, bool is_read_only) const;
    void unregister_host(const std::byte* pages) const noexcept;
    /// Where the current context's device finds registered memory.
    [[nodiscard]] Result<DeviceAddress> device_address_of(std::byte* pages) const;
    /// Waits until all that the stream of the current context holds is done. Errors: as of the driver.
    [[nodiscard]] Status synchronize(StreamRef stream) const;
    /// Enqueues copies on a stream of the current context; the host's side is to be left alone until `synchronize`.
    /// Errors: as of the driver; then nothing is enqueued.
    [[nodiscard]] Status copy_to_host(StreamRef stream, std::span<std::byte> to, DeviceAddress from) const;
    [[nodiscard]] Status copy_to_device(StreamRef stream, DeviceAddress to, std::span<const std::byte> from) const;
    /// Enqueues the write of a word, visible to the host only after everything before it on the stream. Allocates
    /// nothing unless it fails. Errors: as `register_host`.
    [[nodiscard]] Status write_word(StreamRef stream, DeviceAddress word, std::uint32_t value) const;

private:
    struct Calls;
    explicit CudaDriver(std::unique_ptr<const Calls> calls);
    /// Ok for 0, else kUnavailable, or kResourceExhausted where memory is what is missing.
    [[nodiscard]] Status status_of(const char* call, int code) const;
    /// The same, and the remedy where the device or its driver does not offer the call.
    [[nodiscard]] Status status_of_writing(const char* call, int code) const;

    const std::unique_ptr<const Calls> calls_;
};

/// Makes a context current for a scope and puts the caller's back.
class ContextScope {
public:
    ContextScope(const CudaDriver& driver, ContextRef context)
        : driver_(driver), status_(driver.push_context(context)) {}
    ContextScope(const ContextScope&) = delete;
    ContextScope& operator=(const ContextScope&) = delete;
    ~ContextScope() {
        if (status_.is_ok()) driver_.pop_context();
    }
    /// Not ok: the context is not current.
    [[nodiscard]] const Status& status() const noexcept { return status_; }

private:
    const CudaDriver& driver_;
    const Status status_;
};

}  // namespace gradsieve::client
