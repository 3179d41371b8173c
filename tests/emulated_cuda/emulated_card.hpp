// What the emulated card knows: its devices, whether it is in error, and every range of memory. One per process; device
// memory is memfds, so that it can be shared between processes and outlives its maker as long as a descriptor is open,
// as a real card's does. Behaviour is chosen by the environment when first asked:
//   GRADSIEVE_EMULATED_GPUS        devices (1)
//   GRADSIEVE_EMULATED_MEMORY_MIB  memory of each (4096)
//   GRADSIEVE_EMULATED_PEERS       0: no device reaches another's memory (1)
//   GRADSIEVE_EMULATED_FAULT       N: the N-th kernel of the process leaves the card in error
// Any thread.
#pragma once

#include "cuda_runtime_api.h"

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace gradsieve::emulated {

struct CardOptions {
    int devices = 1;
    std::size_t memory_bytes = 0;  ///< of each device
    bool has_peers = true;
    std::uint64_t fault_launch = 0;
};
[[nodiscard]] const CardOptions& options();

/// Remembers `error` for cudaGetLastError of this thread, and returns it.
cudaError_t fail(cudaError_t error);
/// Counts a kernel; the answer is an error once the card is in one.
[[nodiscard]] cudaError_t count_launch();
[[nodiscard]] bool is_in_error();
/// The error that every call answers from a fault on; cudaSuccess before.
[[nodiscard]] cudaError_t sticky_error();
[[nodiscard]] int current_device();

/// A physical allocation; alive while a range or a handle needs it.
struct Physical {
    int descriptor = -1;
    std::size_t bytes = 0;
    int device = 0;
    bool is_exportable = true;
    bool is_own = true;  ///< counted against this process's share of the device
    std::uint64_t inode = 0;
    Physical() = default;
    Physical(const Physical&) = delete;
    Physical& operator=(const Physical&) = delete;
    ~Physical();
};
using PhysicalPtr = std::shared_ptr<Physical>;
/// Null: no memory (descriptors or the device's own).
[[nodiscard]] PhysicalPtr make_physical(int device, std::size_t bytes, bool is_exportable);
/// Another process's allocation, or an earlier process's, which this takes `descriptor` of (-1: null). `bytes`: 0 for
/// all that it has. Null: not an allocation of an emulated card.
[[nodiscard]] PhysicalPtr adopt_physical(int descriptor, std::size_t bytes);

enum class RangeKind : std::uint8_t { kPlain, kImported, kMapped, kPinned, kRegistered };
/// Devices whose kernels reach a range: bit i is device i.
using Users = std::uint64_t;
inline constexpr Users kAllDevices = ~Users{0};
[[nodiscard]] constexpr Users user_of(int device) { return Users{1} << static_cast<unsigned>(device); }

struct Range {
    RangeKind kind{};
    std::uintptr_t base = 0;
    std::size_t bytes = 0;
    int device = 0;
    PhysicalPtr physical;
    Users users = kAllDevices;
    std::uintptr_t host_view = 0;  ///< not 0: the same bytes for copies, which reach them whoever's kernels run
};

/// While it lives, kernels of the device run, and of no other device of this process; what they do not reach is not
/// there: touching it ends the process. What is opened by a handle is there for the device that was current, mapped
/// allocations for those that asked.
class KernelTurn {
public:
    explicit KernelTurn(int device);
    ~KernelTurn();
    KernelTurn(const KernelTurn&) = delete;
    KernelTurn& operator=(const KernelTurn&) = delete;
};

class MemoryTable {
public:
    [[nodiscard]] static MemoryTable& get();
    /// Maps `physical` somewhere; nullopt: no addresses left. `users`: not all: with a view for copies.
    [[nodiscard]] std::optional<Range> map(RangeKind kind, const PhysicalPtr& physical, Users users = kAllDevices);
    /// Maps `physical` at `base`, for nobody yet; false: it cannot be.
    [[nodiscard]] bool map_at(std::uintptr_t base, const PhysicalPtr& physical);
    void add(const Range& range);
    /// Lets `users` reach the mapped allocation at `base` too.
    void open_to(std::uintptr_t base, Users users);
    /// Takes the range that begins at `base` out; what was mapped by map() is unmapped.
    [[nodiscard]] std::optional<Range> remove(std::uintptr_t base, RangeKind kind);
    [[nodiscard]] std::optional<Range> find(std::uintptr_t address);
    [[nodiscard]] bool is_page_locked(const void* pointer);
    /// Where copies find what lies at `pointer`.
    [[nodiscard]] void* host_view(const void* pointer);
    void begin_kernel(int device);
    void end_kernel();
    /// Bytes of this process's allocations on a device.
    [[nodiscard]] std::size_t used(int device);
    void forget(int device);

private:
    void show(const Range& range) const;

    std::mutex m_;
    std::condition_variable turn_;
    std::map<std::uintptr_t, Range> ranges_;
    int turn_of_ = 0;       ///< the device whose kernels run or ran last, for which ranges are shown
    unsigned running_ = 0;  ///< kernels
};

}  // namespace gradsieve::emulated
