#include "fake_cuda.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

namespace gradsieve::client::test {
namespace {

constexpr int kInvalidValue = 1;
constexpr int kInvalidContext = 201;
constexpr int kInvalidHandle = 400;

struct State {
    std::mutex m;
    std::atomic<bool> is_quiet{false};
    std::vector<FakeCuda::Allocation> allocations;
    std::map<std::string, std::pair<int, int>> failures;  ///< code, how often
    std::vector<std::string> log;
    std::uintptr_t next_event = 1;
    int live_events = 0;
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

/// Contexts are 0xC000 + device, streams 0x5000 + device, events 1, 2, 3...
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
    state().next_event = 1;
    state().live_events = 0;
    state().exported = 0;
    state().is_quiet = false;
    contexts().assign(1, context_of(0));
}
void FakeCuda::add(const Allocation& allocation) {
    const std::lock_guard lock(state().m);
    state().allocations.push_back(allocation);
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
int FakeCuda::live_events() {
    const std::lock_guard lock(state().m);
    return state().live_events;
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
int cuEventCreate(void** ret_event, unsigned flags) {
    if (const int code = called("cuEventCreate", std::to_string(flags)); code != 0) return code;
    const std::lock_guard lock(state().m);
    *ret_event = reinterpret_cast<void*>(state().next_event++);
    ++state().live_events;
    return 0;
}
int cuEventDestroy_v2(void* event) {
    const int code = called("cuEventDestroy", text(event));
    const std::lock_guard lock(state().m);
    --state().live_events;
    return code;
}
int cuIpcGetEventHandle(FakeHandle* ret_handle, void* event) {
    if (const int code = called("cuIpcGetEventHandle"); code != 0) return code;
    std::memcpy(ret_handle->bytes.data(), &event, sizeof(event));
    return 0;
}
/// The event is the number in the handle's first byte: events of a daemon are below 256, from 100 on.
int cuIpcOpenEventHandle(void** ret_event, FakeHandle handle) {
    const auto number = static_cast<unsigned char>(handle.bytes[0]);
    if (const int code = called("cuIpcOpenEventHandle", std::to_string(number)); code != 0) return code;
    *ret_event = reinterpret_cast<void*>(std::uintptr_t{number});
    const std::lock_guard lock(state().m);
    ++state().live_events;
    return 0;
}
int cuEventRecord(void* event, void* stream) {
    if (state().is_quiet) return 0;
    const auto context = FakeCuda::contexts().empty() ? std::string("none") : text(FakeCuda::contexts().back());
    return called("cuEventRecord", text(event) + ", " + text(stream) + ") in context (" + context);
}
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
    if (state().is_quiet) return 0;
    return called("cuStreamWaitEvent", text(stream) + ", " + text(event));
}

}  // extern "C"
