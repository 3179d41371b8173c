// The driver's calls, for the client library (which finds them with dlopen) and for what the runtime does not offer.
#include "cuda.h"
#include "emulated_card.hpp"
#include "streams.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

using namespace gradsieve::emulated;

struct CUctx_st {
    int device = 0;
};

namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20U;

CUcontext context_of(int device) {
    static std::array<CUctx_st, 64> contexts;
    contexts[static_cast<std::size_t>(device)].device = device;
    return &contexts[static_cast<std::size_t>(device)];
}
/// The calling thread's contexts, the current one last; the runtime's device if there is none.
std::vector<CUcontext>& contexts_of_thread() {
    thread_local std::vector<CUcontext> contexts;
    return contexts;
}

struct Handles {
    std::mutex m;
    std::unordered_map<CUmemGenericAllocationHandle, PhysicalPtr> physical;
    CUmemGenericAllocationHandle next = 0x1000;
    CUmemGenericAllocationHandle add(PhysicalPtr one) {
        const std::lock_guard lock(m);
        physical[++next] = std::move(one);
        return next;
    }
    PhysicalPtr find(CUmemGenericAllocationHandle handle) {
        const std::lock_guard lock(m);
        const auto found = physical.find(handle);
        return found == physical.end() ? nullptr : found->second;
    }
};
Handles& handles() {
    static auto* const only = new Handles;
    return *only;
}

CUresult result_of(cudaError_t error) { return static_cast<CUresult>(error); }
std::uintptr_t number_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
StreamQueue* queue_of(CUstream stream) { return reinterpret_cast<StreamQueue*>(stream); }

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return options().devices > 0 ? CUDA_SUCCESS : static_cast<CUresult>(cudaErrorNoDevice); }
CUresult cuGetErrorName(CUresult error, const char** name) {
    *name = cudaGetErrorName(static_cast<cudaError_t>(error));
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr pointer) {
    const auto range = MemoryTable::get().find(pointer);
    if (!range) return CUDA_ERROR_INVALID_VALUE;
    if (base != nullptr) *base = range->base;
    if (bytes != nullptr) *bytes = range->bytes;
    return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
    *bytes = kGranularity;
    return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* pointer, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
    if (bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
    void* place = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = number_of(place);
    return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr pointer, std::size_t bytes) {
    return ::munmap(reinterpret_cast<void*>(pointer), bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long) {
    if (bytes == 0 || bytes % kGranularity != 0 || properties->location.id < 0 ||
        properties->location.id >= options().devices)
        return CUDA_ERROR_INVALID_VALUE;
    auto physical = make_physical(properties->location.id, bytes,
                                  properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (physical == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = handles().add(std::move(physical));
    return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    const std::lock_guard lock(handles().m);
    return handles().physical.erase(handle) > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemMap(CUdeviceptr pointer, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
    const auto physical = handles().find(handle);
    if (physical == nullptr || offset != 0 || bytes != physical->bytes) return CUDA_ERROR_INVALID_VALUE;
    return MemoryTable::get().map_at(pointer, physical) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemUnmap(CUdeviceptr pointer, std::size_t bytes) {
    if (!MemoryTable::get().remove(pointer, RangeKind::kMapped)) return CUDA_ERROR_INVALID_VALUE;
    void* place = ::mmap(reinterpret_cast<void*>(pointer), bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return place == MAP_FAILED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count) {
    const auto range = MemoryTable::get().find(pointer);
    if (!range || range->kind != RangeKind::kMapped || range->base != pointer || range->bytes != bytes)
        return CUDA_ERROR_INVALID_VALUE;
    Users users = 0;
    for (std::size_t place = 0; place < count; ++place) {
        if (access[place].location.id != range->device && !options().has_peers)
            return static_cast<CUresult>(cudaErrorPeerAccessUnsupported);
        users |= user_of(access[place].location.id);
    }
    MemoryTable::get().open_to(pointer, users);
    return CUDA_SUCCESS;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* descriptor,
                                        CUmemAllocationHandleType) {
    auto physical = adopt_physical(::fcntl(static_cast<int>(number_of(descriptor)), F_DUPFD_CLOEXEC, 3), 0);
    if (physical == nullptr || physical->bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
    *handle = handles().add(std::move(physical));
    return CUDA_SUCCESS;
}
CUresult cuMemExportToShareableHandle(void* descriptor, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                                      unsigned long long) {
    const auto physical = handles().find(handle);
    if (physical == nullptr || !physical->is_exportable) return CUDA_ERROR_INVALID_VALUE;
    const int fd = ::fcntl(physical->descriptor, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *static_cast<int*>(descriptor) = fd;
    return CUDA_SUCCESS;
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* pointer) {
    const auto range = MemoryTable::get().find(number_of(pointer));
    if (!range || range->kind != RangeKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
    *handle = handles().add(range->physical);
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, const int* attributes, void** data, CUdeviceptr pointer) {
    const auto range = MemoryTable::get().find(pointer);
    for (unsigned place = 0; place < count; ++place) {
        const bool is_host = range && range->device < 0;
        switch (attributes[place]) {
            case 1:
                *static_cast<CUcontext*>(data[place]) = range && !is_host ? context_of(range->device) : nullptr;
                break;
            case 2: *static_cast<unsigned*>(data[place]) = !range ? 0U : is_host ? 1U : 2U; break;
            case 8: *static_cast<int*>(data[place]) = 0; break;
            case 9: *static_cast<int*>(data[place]) = range && !is_host ? range->device : -2; break;
            default: return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
    return result_of(
        cudaIpcGetMemHandle(reinterpret_cast<cudaIpcMemHandle_t*>(handle), reinterpret_cast<void*>(pointer)));
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(uuid, &properties.uuid, sizeof(*uuid));
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    *context = context_of(device);
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
    const auto& contexts = contexts_of_thread();
    *context = contexts.empty() ? context_of(current_device()) : contexts.back();
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    contexts_of_thread().assign(1, context);
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
    CUcontext context = nullptr;
    cuCtxGetCurrent(&context);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *device = context->device;
    return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
    contexts_of_thread().push_back(context);
    return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
    auto& contexts = contexts_of_thread();
    if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *context = contexts.back();
    contexts.pop_back();
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
    return result_of(cudaStreamCreateWithFlags(stream, flags));
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
    *context = context_of(stream == nullptr ? current_device() : queue_of(stream)->device());
    return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) { return result_of(cudaStreamSynchronize(stream)); }
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, std::uint32_t value, unsigned) {
    enqueue_on(queue_of(stream), [address, value] {
        std::atomic_ref(*reinterpret_cast<std::uint32_t*>(address)).store(value, std::memory_order_release);
    });
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t bytes) {
    return result_of(cudaMalloc(reinterpret_cast<void**>(pointer), bytes));
}
CUresult cuMemFree_v2(CUdeviceptr pointer) { return result_of(cudaFree(reinterpret_cast<void*>(pointer))); }
CUresult cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned flags) {
    return result_of(cudaHostRegister(pointer, bytes, flags));
}
CUresult cuMemHostUnregister(void* pointer) { return result_of(cudaHostUnregister(pointer)); }
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* pointer, unsigned) {
    *device = number_of(pointer);
    return MemoryTable::get().is_page_locked(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemsetD32Async(CUdeviceptr pointer, unsigned value, std::size_t words, CUstream stream) {
    enqueue_on(queue_of(stream), [pointer, value, words] {
        void* const view = MemoryTable::get().host_view(reinterpret_cast<const void*>(pointer));
        std::fill_n(static_cast<std::uint32_t*>(view), words, value);
    });
    return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    return result_of(cudaMemcpyAsync(to, reinterpret_cast<const void*>(from), bytes, cudaMemcpyDeviceToHost, stream));
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
    return result_of(cudaMemcpyAsync(reinterpret_cast<void*>(to), from, bytes, cudaMemcpyHostToDevice, stream));
}

}  // extern "C"
