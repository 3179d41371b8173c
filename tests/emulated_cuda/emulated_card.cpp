#include "emulated_card.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace gradsieve::emulated {
namespace {

constexpr std::size_t kPage = 4096;
/// What fresh memory holds: a NaN in every type, and no count that a kernel could take for its own.
constexpr int kFresh = 0xFB;
const std::string kName = "emulated-device-memory-";  // and the device
constexpr std::size_t kMostFilled = std::size_t{64} << 20U;

thread_local cudaError_t last_error = cudaSuccess;
std::atomic<std::uint64_t> launches{0};
std::atomic<bool> has_fault{false};

std::uint64_t number_of(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

std::size_t padded(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::array<std::atomic<std::size_t>, 64> taken{};  ///< bytes of each device

/// Addresses for the allocation, and a page behind it that nobody may touch; 0: none left.
std::uintptr_t map_guarded(const Physical& physical) {
    const std::size_t bytes = padded(physical.bytes);
    void* whole = ::mmap(nullptr, bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (whole == MAP_FAILED) return 0;
    void* data = ::mmap(whole, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, physical.descriptor, 0);
    return data == MAP_FAILED ? 0 : reinterpret_cast<std::uintptr_t>(data);
}
void unmap_guarded(std::uintptr_t base, std::size_t bytes) {
    if (base != 0) ::munmap(reinterpret_cast<void*>(base), padded(bytes) + kPage);
}

}  // namespace

const CardOptions& options() {
    static const CardOptions only{
        static_cast<int>(std::min<std::uint64_t>(number_of("GRADSIEVE_EMULATED_GPUS", 1), 64)),
        number_of("GRADSIEVE_EMULATED_MEMORY_MIB", 4096) << 20U, number_of("GRADSIEVE_EMULATED_PEERS", 1) != 0,
        number_of("GRADSIEVE_EMULATED_FAULT", 0)};
    return only;
}

cudaError_t fail(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}
cudaError_t sticky_error() { return has_fault.load() ? cudaErrorLaunchFailure : cudaSuccess; }
bool is_in_error() { return has_fault.load(); }
cudaError_t count_launch() {
    if (launches.fetch_add(1) + 1 == options().fault_launch) has_fault = true;  // a launch itself succeeds
    return launches.load() > options().fault_launch && options().fault_launch > 0 ? fail(sticky_error()) : cudaSuccess;
}

Physical::~Physical() {
    if (descriptor >= 0) ::close(descriptor);
    if (is_own) taken[static_cast<std::size_t>(device)] -= bytes;
}

PhysicalPtr make_physical(int device, std::size_t bytes, bool is_exportable) {
    auto& of_device = taken[static_cast<std::size_t>(device)];
    if (of_device.fetch_add(bytes) + bytes > options().memory_bytes) {
        of_device -= bytes;
        return nullptr;
    }
    auto physical = std::make_shared<Physical>();
    physical->bytes = bytes;
    physical->device = device;
    physical->is_exportable = is_exportable;
    physical->descriptor = ::memfd_create((kName + std::to_string(device)).c_str(), MFD_CLOEXEC);
    struct stat about {};
    if (physical->descriptor < 0 || ::ftruncate(physical->descriptor, static_cast<off_t>(padded(bytes))) != 0 ||
        ::fstat(physical->descriptor, &about) != 0)
        return nullptr;
    physical->inode = about.st_ino;
    const std::size_t filled = std::min(bytes, kMostFilled);
    void* fresh = ::mmap(nullptr, filled, PROT_READ | PROT_WRITE, MAP_SHARED, physical->descriptor, 0);
    if (fresh == MAP_FAILED) return nullptr;
    std::memset(fresh, kFresh, filled);
    ::munmap(fresh, filled);
    return physical;
}

PhysicalPtr adopt_physical(int descriptor, std::size_t bytes) {
    if (descriptor < 0) return nullptr;
    auto physical = std::make_shared<Physical>();
    physical->is_own = false;
    physical->descriptor = descriptor;
    std::array<char, 128> target{};
    const auto path = "/proc/self/fd/" + std::to_string(descriptor);
    const std::string prefix = "/memfd:" + std::string(kName);
    struct stat about {};
    if (::readlink(path.c_str(), target.data(), target.size() - 1) <= 0 || ::fstat(descriptor, &about) != 0 ||
        std::string(target.data()).rfind(prefix, 0) != 0 || static_cast<std::size_t>(about.st_size) < bytes)
        return nullptr;
    physical->device = std::atoi(target.data() + prefix.size());
    if (physical->device < 0 || physical->device >= options().devices) return nullptr;
    physical->bytes = bytes > 0 ? bytes : static_cast<std::size_t>(about.st_size);
    physical->inode = about.st_ino;
    return physical;
}

MemoryTable& MemoryTable::get() {
    static auto* const only = new MemoryTable;  // never ends: streams may still run while the process leaves
    return *only;
}

std::optional<Range> MemoryTable::map(RangeKind kind, const PhysicalPtr& physical, Users users) {
    Range range{kind, map_guarded(*physical), physical->bytes, physical->device, physical, users};
    if (range.base == 0) return std::nullopt;
    if (users != kAllDevices) {
        range.host_view = map_guarded(*physical);
        if (range.host_view == 0) return std::nullopt;
    }
    add(range);
    return range;
}

bool MemoryTable::map_at(std::uintptr_t base, const PhysicalPtr& physical) {
    if (::mmap(reinterpret_cast<void*>(base), physical->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->descriptor,
               0) == MAP_FAILED)
        return false;
    Range range{RangeKind::kMapped, base, physical->bytes, physical->device, physical, 0, map_guarded(*physical)};
    if (range.host_view == 0) return false;
    add(range);
    return true;
}

void MemoryTable::add(const Range& range) {
    const std::lock_guard lock(m_);
    ranges_[range.base] = range;
    show(range);
}

void MemoryTable::open_to(std::uintptr_t base, Users users) {
    const std::lock_guard lock(m_);
    const auto found = ranges_.find(base);
    if (found == ranges_.end()) return;
    found->second.users |= users;
    show(found->second);
}

/// Or hides it from the device whose turn it is.
void MemoryTable::show(const Range& range) const {
    if (range.users == kAllDevices) return;
    const bool is_open = (range.users & user_of(turn_of_)) != 0;
    ::mprotect(reinterpret_cast<void*>(range.base), padded(range.bytes), is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void MemoryTable::begin_kernel(int device) {
    std::unique_lock lock(m_);
    turn_.wait(lock, [&] { return running_ == 0 || turn_of_ == device; });
    ++running_;
    if (turn_of_ == device) return;
    turn_of_ = device;
    for (const auto& [base, range] : ranges_) show(range);
}

void MemoryTable::end_kernel() {
    const std::lock_guard lock(m_);
    if (--running_ == 0) turn_.notify_all();
}

KernelTurn::KernelTurn(int device) { MemoryTable::get().begin_kernel(device); }
KernelTurn::~KernelTurn() { MemoryTable::get().end_kernel(); }

void* MemoryTable::host_view(const void* pointer) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    const auto range = find(address);
    const bool has_view = range && range->host_view != 0;
    return reinterpret_cast<void*>(has_view ? range->host_view + (address - range->base) : address);
}

std::optional<Range> MemoryTable::remove(std::uintptr_t base, RangeKind kind) {
    const std::lock_guard lock(m_);
    const auto found = ranges_.find(base);
    if (found == ranges_.end() || found->second.kind != kind) return std::nullopt;
    auto range = found->second;
    ranges_.erase(found);
    if (kind == RangeKind::kPlain || kind == RangeKind::kImported) unmap_guarded(range.base, range.bytes);
    unmap_guarded(range.host_view, range.bytes);
    return range;
}

std::optional<Range> MemoryTable::find(std::uintptr_t address) {
    const std::lock_guard lock(m_);
    const auto behind = ranges_.upper_bound(address);
    if (behind == ranges_.begin()) return std::nullopt;
    const Range& range = std::prev(behind)->second;
    if (address - range.base >= range.bytes) return std::nullopt;
    return range;
}

bool MemoryTable::is_page_locked(const void* pointer) {
    return find(reinterpret_cast<std::uintptr_t>(pointer)).has_value();
}

std::size_t MemoryTable::used(int device) { return taken[static_cast<std::size_t>(device)].load(); }

void MemoryTable::forget(int device) {
    std::vector<std::pair<std::uintptr_t, RangeKind>> bases;
    {
        const std::lock_guard lock(m_);
        for (const auto& [base, range] : ranges_)
            if (range.device == device && (range.kind == RangeKind::kPlain || range.kind == RangeKind::kImported))
                bases.emplace_back(base, range.kind);
    }
    for (const auto& [base, kind] : bases) static_cast<void>(remove(base, kind));
}

}  // namespace gradsieve::emulated
