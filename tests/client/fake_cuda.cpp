#include "fake_cuda.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

namespace gradsieve::client::test {
namespace {

constexpr int kInvalidValue = 1;
constexpr int kInvalidContext = 201;
constexpr int kInvalidHandle = 400;
constexpr int kAlreadyRegistered = 712;
constexpr int kNotRegistered = 713;
constexpr std::chrono::seconds kWatchdog{30};
constexpr std::uint64_t kDeviceSide = std::uint64_t{1} << 60U;  ///< added to the address of registered memory

struct Copy {
    void* stream = nullptr;
    void* to = nullptr;
    const void* from = nullptr;
    std::size_t bytes = 0;
};

struct State {
    std::mutex m;
    std::condition_variable changed;
    std::vector<std::vector<std::uint64_t>> memory;  ///< behind allocations
    std::vector<Copy> copies;                        ///< enqueued, not done
    bool is_holding_streams = false;
    int held_threads = 0;
    std::atomic<bool> is_quiet{false};
    std::vector<FakeCuda::Allocation> allocations;
    std::map<std::string, std::pair<int, int>> failures;  ///< code, how often
    std::vector<std::string> log;
    std::map<void*, std::size_t> registered;  ///< host memory: begin and bytes
    bool is_holding = false;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> held;  ///< writes to come: device address and value
    int exported = 0;
};
State& state() {
    static State only;
    return only;
}

/// Writes the call down and answers what a test wants it to; 0 if nothing.
int called(const std::string& call, const std::string& arguments = {}) {
    const std::lock_guard lock(state().m);
    state().log.push_back(call + "(" + arguments + ")");
    const auto failure = state().failures.find(call);
    if (failure == state().failures.end() || failure->second.second == 0) return 0;
    --failure->second.second;
    return failure->second.first;
}

std::optional<FakeCuda::Allocation> find(std::uint64_t address) {
    const std::lock_guard lock(state().m);
    for (const auto& allocation : state().allocations)
        if (address >= allocation.base && address - allocation.base < allocation.bytes) return allocation;
    return std::nullopt;
}

std::string text(const void* pointer) { return std::to_string(reinterpret_cast<std::uintptr_t>(pointer)); }

std::string current() { return FakeCuda::contexts().empty() ? "none" : text(FakeCuda::contexts().back()); }

/// Is there memory behind all of it? Locked.
bool is_backed(std::uint64_t address, std::size_t bytes) {
    return std::ranges::any_of(state().memory, [&](const auto& words) {
        const auto base = reinterpret_cast<std::uintptr_t>(words.data());
        return address >= base && address + bytes <= base + words.size() * 8;
    });
}

/// Enqueues a copy; of memory that is not there nothing is moved.
int copy(const char* call, const Copy& one, std::uint64_t device) {
    if (!state().is_quiet) {
        const int code = called(call, text(one.stream) + ", " + std::to_string(device) + ", " +
                                          std::to_string(one.bytes) + ") in context (" + current());
        if (code != 0) return code;
    }
    const std::lock_guard lock(state().m);
    if (is_backed(device, one.bytes)) state().copies.push_back(one);
    return 0;
}

/// Waits while streams are held, then does what is enqueued. With an error nothing is done any more.
int synchronize(void* stream) {
    const int code = state().is_quiet ? 0 : called("cuStreamSynchronize", text(stream));
    std::unique_lock lock(state().m);
    ++state().held_threads;
    state().changed.notify_all();
    if (!state().changed.wait_for(lock, kWatchdog, [] { return !state().is_holding_streams; })) std::abort();
    --state().held_threads;
    std::erase_if(state().copies, [&](const Copy& one) {
        if (one.stream != stream) return false;
        if (code == 0) std::memcpy(one.to, one.from, one.bytes);
        return true;
    });
    return code;
}

/// What a device does. To memory that is not registered it does what a real one does: the process ends.
void write(std::uint64_t address, std::uint32_t value) {
    auto* const host = reinterpret_cast<std::byte*>(address - kDeviceSide);
    const bool is_known = std::ranges::any_of(state().registered, [&](const auto& range) {
        const auto* const begin = static_cast<const std::byte*>(range.first);
        return host >= begin && host + sizeof(value) <= begin + range.second;
    });
    if (!is_known) std::abort();
    std::atomic_ref(*reinterpret_cast<std::uint32_t*>(host)).store(value, std::memory_order_release);
}

/// Contexts are 0xC000 + device, streams 0x5000 + device.
constexpr std::uintptr_t kContexts = 0xC000;
constexpr std::uintptr_t kStreams = 0x5000;

}  // namespace

FakeCuda& FakeCuda::get() {
    static FakeCuda only;
    return only;
}
std::string FakeCuda::path() {
    Dl_info info{};
    // A function that nobody outside can stand in for.
    return ::dladdr(reinterpret_cast<void*>(&called), &info) != 0 ? info.dli_fname : "";
}
void FakeCuda::reset() {
    const std::lock_guard lock(state().m);
    state().allocations.clear();
    state().failures.clear();
    state().log.clear();
    state().registered.clear();
    state().is_holding = false;
    state().held.clear();
    state().memory.clear();
    state().copies.clear();
    state().is_holding_streams = false;
    state().exported = 0;
    state().is_quiet = false;
    contexts().assign(1, context_of(0));
}
void FakeCuda::add(const Allocation& allocation) {
    const std::lock_guard lock(state().m);
    state().allocations.push_back(allocation);
}
std::uint64_t FakeCuda::add_memory(Kind kind, std::uint64_t bytes, int device) {
    const std::lock_guard lock(state().m);
    const auto& words = state().memory.emplace_back(bytes / 8 + 1, 0xCDCDCDCDCDCDCDCDULL);
    const auto base = reinterpret_cast<std::uintptr_t>(words.data());
    state().allocations.push_back({base, bytes, kind, device});
    return base;
}
void FakeCuda::hold_streams(bool is_holding) {
    const std::lock_guard lock(state().m);
    state().is_holding_streams = is_holding;
    state().changed.notify_all();
}
void FakeCuda::await_held(int threads) {
    std::unique_lock lock(state().m);
    if (!state().changed.wait_for(lock, kWatchdog, [&] { return state().held_threads >= threads; })) std::abort();
}
void FakeCuda::fail(const std::string& call, int code, int count) {
    const std::lock_guard lock(state().m);
    state().failures[call] = {code, count};
}
void FakeCuda::note(const std::string& line) {
    const std::lock_guard lock(state().m);
    state().log.push_back(line);
}
std::vector<std::string> FakeCuda::log() {
    const std::lock_guard lock(state().m);
    return state().log;
}
std::vector<std::string> FakeCuda::log_of(const std::string& beginning) {
    auto lines = log();
    std::erase_if(lines, [&](const std::string& line) { return !line.starts_with(beginning); });
    return lines;
}
void FakeCuda::clear_log() {
    const std::lock_guard lock(state().m);
    state().log.clear();
}
void FakeCuda::keep_quiet() { state().is_quiet = true; }
void FakeCuda::hold_writes(bool is_holding) {
    const std::lock_guard lock(state().m);
    state().is_holding = is_holding;
    if (is_holding) return;
    for (const auto& [address, value] : state().held) write(address, value);
    state().held.clear();
}
int FakeCuda::registered() {
    const std::lock_guard lock(state().m);
    return static_cast<int>(state().registered.size());
}
std::uint64_t FakeCuda::device_address_of(const void* host) {
    return reinterpret_cast<std::uintptr_t>(host) + kDeviceSide;
}
int FakeCuda::exported() {
    const std::lock_guard lock(state().m);
    return state().exported;
}
void* FakeCuda::context_of(int device) {
    return reinterpret_cast<void*>(kContexts + static_cast<std::uintptr_t>(device));
}
void* FakeCuda::stream_of(int device) {
    return reinterpret_cast<void*>(kStreams + static_cast<std::uintptr_t>(device));
}
std::vector<void*>& FakeCuda::contexts() {
    thread_local std::vector<void*> stack;
    return stack;
}

}  // namespace gradsieve::client::test

using gradsieve::client::test::called;
using gradsieve::client::test::current;
using gradsieve::client::test::FakeCuda;
using gradsieve::client::test::find;
using gradsieve::client::test::state;
using gradsieve::client::test::text;

struct FakeHandle {
    std::array<char, 64> bytes;
};

extern "C" {

int cuInit(unsigned) { return called("cuInit"); }
int cuGetErrorName(int code, const char** ret_name) {
    *ret_name = code == 999 ? nullptr : "CUDA_ERROR_FAKE";
    return code == 999 ? gradsieve::client::test::kInvalidValue : 0;
}
int cuGetErrorString(int code, const char** ret_text) {
    *ret_text = "a fake error";
    return code == 999 ? gradsieve::client::test::kInvalidValue : 0;
}
int cuPointerGetAttributes(unsigned count, const int* attributes, void** data, unsigned long long address) {
    if (const int code = called("cuPointerGetAttributes"); code != 0) return code;
    const auto allocation = find(address);
    if (!allocation) return 0;  // the driver leaves zeros for what it does not know
    const bool is_host = allocation->kind == FakeCuda::Kind::kHost;
    for (unsigned place = 0; place < count; ++place) {
        switch (attributes[place]) {
            case 1:  // context: mapped and pooled memory has none
                if (allocation->kind == FakeCuda::Kind::kLegacy || is_host)
                    *static_cast<void**>(data[place]) = FakeCuda::context_of(allocation->device);
                break;
            case 2: *static_cast<unsigned*>(data[place]) = is_host ? 1 : 2; break;
            case 8: *static_cast<bool*>(data[place]) = allocation->kind == FakeCuda::Kind::kManaged; break;
            case 9: *static_cast<int*>(data[place]) = allocation->device; break;
            default: return gradsieve::client::test::kInvalidValue;
        }
    }
    return 0;
}
int cuMemGetAddressRange_v2(unsigned long long* ret_base, std::size_t* ret_bytes, unsigned long long address) {
    if (const int code = called("cuMemGetAddressRange"); code != 0) return code;
    const auto allocation = find(address);
    if (!allocation) return gradsieve::client::test::kInvalidValue;
    *ret_base = allocation->base;
    *ret_bytes = allocation->bytes;
    return 0;
}
/// The handle holds the base, so that tests can see whose it is.
int cuIpcGetMemHandle(FakeHandle* ret_handle, unsigned long long address) {
    if (const int code = called("cuIpcGetMemHandle"); code != 0) return code;
    const auto allocation = find(address);
    if (!allocation || allocation->kind != FakeCuda::Kind::kLegacy) return gradsieve::client::test::kInvalidValue;
    std::memcpy(ret_handle->bytes.data(), &allocation->base, sizeof(allocation->base));
    return 0;
}
int cuMemRetainAllocationHandle(unsigned long long* ret_handle, void* address) {
    if (const int code = called("cuMemRetainAllocationHandle"); code != 0) return code;
    const auto allocation = find(reinterpret_cast<std::uintptr_t>(address));
    if (!allocation || (allocation->kind != FakeCuda::Kind::kMapped && allocation->kind != FakeCuda::Kind::kUnexported))
        return gradsieve::client::test::kInvalidValue;
    *ret_handle = allocation->base;
    return 0;
}
int cuMemExportToShareableHandle(void* ret_handle, unsigned long long handle, int, unsigned long long) {
    if (const int code = called("cuMemExportToShareableHandle"); code != 0) return code;
    if (find(handle)->kind == FakeCuda::Kind::kUnexported) return gradsieve::client::test::kInvalidValue;
    const int fd = ::memfd_create("fake-device-memory", 0);
    if (::write(fd, &handle, sizeof(handle)) != sizeof(handle)) return gradsieve::client::test::kInvalidValue;
    std::memcpy(ret_handle, &fd, sizeof(fd));
    const std::lock_guard lock(state().m);
    ++state().exported;
    return 0;
}
int cuMemRelease(unsigned long long) { return called("cuMemRelease"); }
int cuDeviceGetUuid_v2(void* ret_uuid, int device) {
    std::memset(ret_uuid, 0x70 + device, 16);
    return called("cuDeviceGetUuid", std::to_string(device));
}
int cuCtxGetCurrent(void** ret_context) {
    *ret_context = FakeCuda::contexts().empty() ? nullptr : FakeCuda::contexts().back();
    return called("cuCtxGetCurrent");
}
int cuCtxGetDevice(int* ret_device) {
    if (FakeCuda::contexts().empty()) return gradsieve::client::test::kInvalidContext;
    *ret_device = FakeCuda::contexts().back() == FakeCuda::context_of(1) ? 1 : 0;
    return called("cuCtxGetDevice");
}
int cuStreamGetCtx(void* stream, void** ret_context) {
    if (const int code = called("cuStreamGetCtx"); code != 0) return code;
    for (const int device : {0, 1}) {
        if (stream != FakeCuda::stream_of(device)) continue;
        *ret_context = FakeCuda::context_of(device);
        return 0;
    }
    return gradsieve::client::test::kInvalidHandle;
}
int cuCtxPushCurrent_v2(void* context) {
    if (state().is_quiet) return 0;
    if (const int code = called("cuCtxPushCurrent"); code != 0) return code;
    FakeCuda::contexts().push_back(context);
    return 0;
}
int cuCtxPopCurrent_v2(void** ret_context) {
    if (state().is_quiet) return 0;
    if (FakeCuda::contexts().empty()) return gradsieve::client::test::kInvalidContext;
    *ret_context = FakeCuda::contexts().back();
    FakeCuda::contexts().pop_back();
    return called("cuCtxPopCurrent");
}
int cuMemHostRegister_v2(void* pages, std::size_t bytes, unsigned flags) {
    const int code = called("cuMemHostRegister", text(pages) + ", " + std::to_string(bytes) + ", " +
                                                     std::to_string(flags) + ") in context (" + current());
    if (code != 0) return code;
    const std::lock_guard lock(state().m);
    const bool is_new = state().registered.emplace(pages, bytes).second;
    return is_new ? 0 : gradsieve::client::test::kAlreadyRegistered;
}
int cuMemHostUnregister(void* pages) {
    if (const int code = called("cuMemHostUnregister", text(pages)); code != 0) return code;
    const std::lock_guard lock(state().m);
    return state().registered.erase(pages) == 1 ? 0 : gradsieve::client::test::kNotRegistered;
}
int cuMemHostGetDevicePointer_v2(unsigned long long* ret_address, void* pages, unsigned) {
    if (const int code = called("cuMemHostGetDevicePointer", text(pages)); code != 0) return code;
    *ret_address = FakeCuda::device_address_of(pages);
    const std::lock_guard lock(state().m);
    return state().registered.contains(pages) ? 0 : gradsieve::client::test::kNotRegistered;
}
int cuStreamSynchronize(void* stream) { return gradsieve::client::test::synchronize(stream); }
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes, void* stream) {
    return gradsieve::client::test::copy("cuMemcpyDtoHAsync", {stream, to, reinterpret_cast<const void*>(from), bytes},
                                         from);
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes, void* stream) {
    return gradsieve::client::test::copy("cuMemcpyHtoDAsync", {stream, reinterpret_cast<void*>(to), from, bytes}, to);
}
/// A stream that is not held has come as far as this call at once.
int cuStreamWriteValue32_v2(void* stream, unsigned long long address, std::uint32_t value, unsigned flags) {
    if (!state().is_quiet) {
        const int code = called("cuStreamWriteValue32", text(stream) + ", " + std::to_string(address) + ", " +
                                                            std::to_string(value) + ", " + std::to_string(flags) +
                                                            ") in context (" + current());
        if (code != 0) return code;
    }
    const std::lock_guard lock(state().m);
    if (state().is_holding)
        state().held.emplace_back(address, value);
    else
        gradsieve::client::test::write(address, value);
    return 0;
}

}  // extern "C"
