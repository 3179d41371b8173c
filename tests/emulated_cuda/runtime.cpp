// The runtime's calls: devices, memory, copies, streams, events and memory of other processes.
#include "emulated_card.hpp"
#include "streams.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

using namespace gradsieve::emulated;

namespace {

thread_local int device_of_thread = 0;
thread_local cudaError_t seen_error = cudaSuccess;

/// What an IPC handle of this card holds.
struct HandleBytes {
    std::uint64_t magic;
    std::int32_t process, descriptor, device, reserved;
    std::uint64_t bytes, inode;
};
constexpr std::uint64_t kMagic = 0x656d756c61746564ULL;
static_assert(sizeof(HandleBytes) <= sizeof(cudaIpcMemHandle_t));

StreamQueue* queue_of(cudaStream_t stream) { return reinterpret_cast<StreamQueue*>(stream); }
EventState* state_of(cudaEvent_t event) { return reinterpret_cast<EventState*>(event); }
std::uintptr_t number_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

cudaError_t answer(cudaError_t error) {
    if (error == cudaSuccess) error = sticky_error();
    if (error != cudaSuccess) seen_error = error;
    return error;
}
/// Which devices' memory is open to which.
class Peers {
public:
    bool open(int from, int to) {
        const std::lock_guard lock(m_);
        return pairs_.emplace(from, to).second;
    }
    void close(int device) {
        const std::lock_guard lock(m_);
        std::erase_if(pairs_, [&](const auto& pair) { return pair.first == device || pair.second == device; });
    }

private:
    std::mutex m_;
    std::set<std::pair<int, int>> pairs_;
};
Peers& peers() {
    static auto* const only = new Peers;  // never ends: streams may still run while the process leaves
    return *only;
}

/// Whether the bytes lie in one range of that device's memory.
bool is_of_device(const void* pointer, std::size_t bytes, int device) {
    const auto range = MemoryTable::get().find(number_of(pointer));
    return range && range->device == device && number_of(pointer) - range->base + bytes <= range->bytes;
}

/// Copies and fills of the card: kernels' view of memory is not theirs.
void copy_bytes(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(MemoryTable::get().host_view(to), MemoryTable::get().host_view(from), bytes);
}
void fill(void* pointer, int value, std::size_t bytes) {
    if (bytes > 0) std::memset(MemoryTable::get().host_view(pointer), value, bytes);
}

bool is_device(int device) { return device >= 0 && device < options().devices; }

}  // namespace

namespace gradsieve::emulated {
int current_device() { return device_of_thread; }
}  // namespace gradsieve::emulated

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "cudaSuccess";
        case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
        case cudaErrorNoDevice: return "cudaErrorNoDevice";
        case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
        case cudaErrorNotReady: return "cudaErrorNotReady";
        case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
        case cudaErrorPeerAccessUnsupported: return "cudaErrorPeerAccessUnsupported";
        default: return "cudaErrorUnknown";
    }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaGetLastError() {
    const auto error = sticky_error() != cudaSuccess ? sticky_error() : seen_error;
    seen_error = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError() { return sticky_error() != cudaSuccess ? sticky_error() : seen_error; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
    *count = options().devices;
    return answer(options().devices == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaGetDevice(int* device) { return *device = device_of_thread, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
    if (!is_device(device)) return answer(cudaErrorInvalidDevice);
    device_of_thread = device;
    return answer(cudaSuccess);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (!is_device(device)) return answer(cudaErrorInvalidDevice);
    *properties = {};
    std::strncpy(properties->name, "emulated card", sizeof(properties->name) - 1);
    for (int place = 0; place < 16; ++place) properties->uuid.bytes[place] = static_cast<char>(0xE0 + device);
    properties->totalGlobalMem = options().memory_bytes;
    properties->multiProcessorCount = 4;
    properties->major = 9;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    switch (attribute) {
        case cudaDevAttrMultiProcessorCount: *value = 4; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 228 * 1024; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 * 1024; break;
        case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1024; break;
    }
    return answer(is_device(device) ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return answer(cudaSuccess);
}
cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
    *can_access = options().has_peers && device != peer ? 1 : 0;
    return answer(is_device(device) && is_device(peer) ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    if (!is_device(peer) || peer == device_of_thread) return answer(cudaErrorInvalidDevice);
    if (!options().has_peers) return answer(cudaErrorPeerAccessUnsupported);
    return answer(peers().open(device_of_thread, peer) ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceSynchronize() { return answer(cudaSuccess); }
cudaError_t cudaDeviceReset() {
    MemoryTable::get().forget(device_of_thread);
    peers().close(device_of_thread);
    return answer(cudaSuccess);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    *total = options().memory_bytes;
    *free = *total - std::min(*total, MemoryTable::get().used(device_of_thread));
    return answer(cudaSuccess);
}
cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
    if (answer(cudaSuccess) != cudaSuccess) return sticky_error();
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    const auto physical = make_physical(device_of_thread, bytes, true);
    if (physical == nullptr) return answer(cudaErrorMemoryAllocation);
    const auto range = MemoryTable::get().map(RangeKind::kPlain, physical);
    if (!range) return answer(cudaErrorMemoryAllocation);
    *pointer = reinterpret_cast<void*>(range->base);
    return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
    if (pointer == nullptr) return answer(cudaSuccess);
    return answer(MemoryTable::get().remove(number_of(pointer), RangeKind::kPlain) ? cudaSuccess
                                                                                   : cudaErrorInvalidValue);
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
    *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (*pointer == nullptr) return answer(cudaErrorMemoryAllocation);
    MemoryTable::get().add({RangeKind::kPinned, number_of(*pointer), bytes, -1, nullptr});
    return answer(cudaSuccess);
}
cudaError_t cudaFreeHost(void* pointer) {
    if (pointer == nullptr) return answer(cudaSuccess);
    if (!MemoryTable::get().remove(number_of(pointer), RangeKind::kPinned)) return answer(cudaErrorInvalidValue);
    std::free(pointer);
    return answer(cudaSuccess);
}
cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
    MemoryTable::get().add({RangeKind::kRegistered, number_of(pointer), bytes, -1, nullptr});
    return answer(cudaSuccess);
}
cudaError_t cudaHostGetDevicePointer(void** on_device, void* pointer, unsigned) {
    *on_device = pointer;
    return answer(MemoryTable::get().is_page_locked(pointer) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaHostUnregister(void* pointer) {
    return answer(MemoryTable::get().remove(number_of(pointer), RangeKind::kRegistered) ? cudaSuccess
                                                                                        : cudaErrorInvalidValue);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
    copy_bytes(to, from, bytes);
    return answer(cudaSuccess);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    if (answer(cudaSuccess) != cudaSuccess) return sticky_error();
    if (bytes == 0) return cudaSuccess;
    // Host memory that is not page-locked is read before the call returns, and written only after all before it is
    // done.
    if (kind == cudaMemcpyHostToDevice && !MemoryTable::get().is_page_locked(from)) {
        std::string copy(static_cast<const char*>(from), bytes);
        enqueue_on(queue_of(stream), [to, copy = std::move(copy)] { copy_bytes(to, copy.data(), copy.size()); });
        return cudaSuccess;
    }
    enqueue_on(queue_of(stream), [to, from, bytes] { copy_bytes(to, from, bytes); });
    if (kind == cudaMemcpyDeviceToHost && stream != nullptr && !MemoryTable::get().is_page_locked(to))
        queue_of(stream)->synchronize();
    return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream) {
    if (!is_of_device(to, bytes, to_device) || !is_of_device(from, bytes, from_device))
        return answer(cudaErrorInvalidValue);
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes) {
    fill(pointer, value, bytes);
    return answer(cudaSuccess);
}
cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t stream) {
    if (answer(cudaSuccess) != cudaSuccess) return sticky_error();
    enqueue_on(queue_of(stream), [pointer, value, bytes] { fill(pointer, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
    *stream = reinterpret_cast<cudaStream_t>(new StreamQueue(device_of_thread));
    return answer(cudaSuccess);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete queue_of(stream);
    return answer(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (stream != nullptr) queue_of(stream)->synchronize();
    return answer(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return answer(stream == nullptr || queue_of(stream)->is_idle() ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    auto* const state = state_of(event);
    std::uint64_t wanted = 0;
    {
        const std::lock_guard lock(state->m);
        wanted = state->recorded;
    }
    enqueue_on(queue_of(stream), [state, wanted] {
        std::unique_lock lock(state->m);
        state->changed.wait(lock, [&] { return state->reached >= wanted; });
    });
    return answer(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    auto* const state = new EventState;
    state->device = device_of_thread;
    *event = reinterpret_cast<cudaEvent_t>(state);
    return answer(cudaSuccess);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete state_of(event);
    return answer(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    auto* const state = state_of(event);
    if (stream != nullptr && queue_of(stream)->device() != state->device) return answer(cudaErrorInvalidResourceHandle);
    std::uint64_t number = 0;
    {
        const std::lock_guard lock(state->m);
        number = ++state->recorded;
    }
    enqueue_on(queue_of(stream), [state, number] {
        const std::lock_guard lock(state->m);
        state->reached = std::max(state->reached, number);
        state->at = std::chrono::steady_clock::now();
        state->changed.notify_all();
    });
    return answer(cudaSuccess);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    auto* const state = state_of(event);
    std::unique_lock lock(state->m);
    state->changed.wait(lock, [&] { return state->reached >= state->recorded; });
    return answer(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    auto* const state = state_of(event);
    const std::lock_guard lock(state->m);
    return answer(state->reached >= state->recorded ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    *milliseconds = std::chrono::duration<float, std::milli>(state_of(end)->at - state_of(begin)->at).count();
    return answer(cudaSuccess);
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
    const auto range = MemoryTable::get().find(number_of(pointer));
    if (!range || range->kind != RangeKind::kPlain) return answer(cudaErrorInvalidValue);
    HandleBytes bytes{};
    bytes.magic = kMagic;
    bytes.process = ::getpid();
    bytes.descriptor = range->physical->descriptor;
    bytes.device = range->device;
    bytes.bytes = range->bytes;
    bytes.inode = range->physical->inode;
    *handle = {};
    std::memcpy(handle, &bytes, sizeof(bytes));
    return answer(cudaSuccess);
}
cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned) {
    HandleBytes bytes{};
    std::memcpy(&bytes, &handle, sizeof(bytes));
    if (bytes.magic != kMagic || !is_device(bytes.device)) return answer(cudaErrorInvalidValue);
    if (bytes.device != device_of_thread && !options().has_peers) return answer(cudaErrorPeerAccessUnsupported);
    const auto path = "/proc/" + std::to_string(bytes.process) + "/fd/" + std::to_string(bytes.descriptor);
    const auto physical = adopt_physical(::open(path.c_str(), O_RDWR | O_CLOEXEC), bytes.bytes);
    if (physical == nullptr || physical->inode != bytes.inode) return answer(cudaErrorInvalidResourceHandle);
    const auto range = MemoryTable::get().map(RangeKind::kImported, physical, user_of(device_of_thread));
    if (!range) return answer(cudaErrorMemoryAllocation);
    *pointer = reinterpret_cast<void*>(range->base);
    return answer(cudaSuccess);
}
cudaError_t cudaIpcCloseMemHandle(void* pointer) {
    return answer(MemoryTable::get().remove(number_of(pointer), RangeKind::kImported) ? cudaSuccess
                                                                                      : cudaErrorInvalidValue);
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int value) {
    return answer(value <= 227 * 1024 ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, std::size_t) {
    *blocks = 2;
    return answer(cudaSuccess);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
    *function = ::dlsym(RTLD_DEFAULT, (std::string(name) + "_v2").c_str());
    if (*function == nullptr) *function = ::dlsym(RTLD_DEFAULT, name);
    *found = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return answer(cudaSuccess);
}

}  // extern "C"
