#include "client/cuda_driver.hpp"

#include <dlfcn.h>
#include <fcntl.h>

#include <array>
#include <cstring>

namespace gradsieve::client {
namespace {

// What the driver's headers say, as far as it is used here. The driver's ABI: these numbers and layouts do not change.
constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kNotSupported = 801;
constexpr unsigned kRegisterPortable = 1;
constexpr unsigned kRegisterMapped = 2;
constexpr unsigned kRegisterReadOnly = 8;
constexpr unsigned kWriteBehindFence = 0;  // the default: a fence of the whole system comes before the write
constexpr int kAttributeContext = 1;
constexpr int kAttributeMemoryType = 2;
constexpr int kAttributeIsManaged = 8;
constexpr int kAttributeDeviceOrdinal = 9;
constexpr unsigned kMemoryTypeHost = 1;
constexpr unsigned kMemoryTypeDevice = 2;
constexpr int kHandleTypePosixDescriptor = 1;

struct IpcHandle {
    std::array<char, shm::kDeviceHandleBytes> bytes;
};
using PhysicalRef = unsigned long long;

constexpr const char* kUseHostMemory =
    "or register the tensor without on_device and hand in through gradient(), which is host memory";

}  // namespace

struct CudaDriver::Calls {
    int (*init)(unsigned) = nullptr;
    int (*error_name)(int, const char**) = nullptr;
    int (*error_text)(int, const char**) = nullptr;
    int (*pointer_attributes)(unsigned, const int*, void**, DeviceAddress) = nullptr;
    int (*address_range)(DeviceAddress*, std::size_t*, DeviceAddress) = nullptr;
    int (*memory_handle)(IpcHandle*, DeviceAddress) = nullptr;
    int (*retain_allocation)(PhysicalRef*, void*) = nullptr;
    int (*export_allocation)(void*, PhysicalRef, int, unsigned long long) = nullptr;
    int (*release_allocation)(PhysicalRef) = nullptr;
    int (*device_uuid)(void*, int) = nullptr;
    int (*current_context)(ContextRef*) = nullptr;
    int (*current_device)(int*) = nullptr;
    int (*stream_context)(StreamRef, ContextRef*) = nullptr;
    int (*push_context)(ContextRef) = nullptr;
    int (*pop_context)(ContextRef*) = nullptr;
    int (*register_host)(void*, std::size_t, unsigned) = nullptr;
    int (*unregister_host)(void*) = nullptr;
    int (*device_pointer)(DeviceAddress*, void*, unsigned) = nullptr;
    int (*stream_synchronize)(StreamRef) = nullptr;
    int (*copy_to_host)(void*, DeviceAddress, std::size_t, StreamRef) = nullptr;
    int (*copy_to_device)(DeviceAddress, const void*, std::size_t, StreamRef) = nullptr;
    int (*write_word)(StreamRef, DeviceAddress, std::uint32_t, unsigned) = nullptr;

    /// The name of the first call that `library` does not have; null if it has all.
    const char* find_all(void* library);
};

const char* CudaDriver::Calls::find_all(void* library) {
    const char* missing = nullptr;
    const auto find = [&](auto& ret_call, const char* name) {
        ret_call = reinterpret_cast<std::remove_reference_t<decltype(ret_call)>>(::dlsym(library, name));
        if (ret_call == nullptr && missing == nullptr) missing = name;
    };
    find(init, "cuInit");
    find(error_name, "cuGetErrorName");
    find(error_text, "cuGetErrorString");
    find(pointer_attributes, "cuPointerGetAttributes");
    find(address_range, "cuMemGetAddressRange_v2");
    find(memory_handle, "cuIpcGetMemHandle");
    find(retain_allocation, "cuMemRetainAllocationHandle");
    find(export_allocation, "cuMemExportToShareableHandle");
    find(release_allocation, "cuMemRelease");
    find(current_context, "cuCtxGetCurrent");
    find(current_device, "cuCtxGetDevice");
    find(stream_context, "cuStreamGetCtx");
    find(stream_synchronize, "cuStreamSynchronize");
    find(copy_to_host, "cuMemcpyDtoHAsync_v2");
    find(copy_to_device, "cuMemcpyHtoDAsync_v2");
    find(push_context, "cuCtxPushCurrent_v2");
    find(pop_context, "cuCtxPopCurrent_v2");
    find(register_host, "cuMemHostRegister_v2");
    find(unregister_host, "cuMemHostUnregister");
    find(device_pointer, "cuMemHostGetDevicePointer_v2");
    const auto find_second = [&](auto& ret_call, const char* second, const char* first) {
        find(ret_call, ::dlsym(library, second) != nullptr ? second : first);
    };
    // The second version tells the parts of a divided GPU (MIG) apart; drivers before CUDA 11.4 have the first alone.
    find_second(device_uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid");
    // Drivers before CUDA 11.7 have the first alone, which answers "not supported" unless a module parameter allows it.
    find_second(write_word, "cuStreamWriteValue32_v2", "cuStreamWriteValue32");
    return missing;
}

std::string address_text(DeviceAddress address) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text;
    do text.insert(text.begin(), kDigits[address % 16]);
    while ((address /= 16) != 0);
    return "0x" + text;
}

CudaDriver::CudaDriver(std::unique_ptr<const Calls> calls) : calls_(std::move(calls)) {}
CudaDriver::~CudaDriver() = default;

Result<std::unique_ptr<CudaDriver>> CudaDriver::load(const std::string& library) {
    void* const loaded = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (loaded == nullptr) {
        const char* const reason = ::dlerror();
        return Status(StatusCode::kUnavailable,
                      "the CUDA driver " + library + " cannot be loaded (" +
                          (reason != nullptr ? reason : "no reason") +
                          "): allowed is a host with NVIDIA's driver; install it (in a container, start that with its "
                          "GPUs), " +
                          kUseHostMemory);
    }
    auto calls = std::make_unique<Calls>();
    if (const char* const missing = calls->find_all(loaded); missing != nullptr)
        return Status(StatusCode::kUnavailable, "the CUDA driver " + library + " has no " + missing +
                                                    ": allowed is one of CUDA 11 or later; update it, " +
                                                    kUseHostMemory);
    std::unique_ptr<CudaDriver> driver(new CudaDriver(std::move(calls)));
    GRADSIEVE_TRY(driver->status_of("cuInit", driver->calls_->init(0)));
    return driver;
}

Status CudaDriver::status_of(const char* call, int code) const {
    if (code == kSuccess) return {};
    const char* name = nullptr;
    const char* text = nullptr;
    if (calls_->error_name(code, &name) != kSuccess || name == nullptr) name = "an unknown error";
    if (calls_->error_text(code, &text) != kSuccess || text == nullptr) text = "no description";
    return {code == kOutOfMemory ? StatusCode::kResourceExhausted : StatusCode::kUnavailable,
            std::string(call) + " answered " + std::to_string(code) + ", " + name + " (" + text +
                "): allowed is success; look for the first CUDA error of this process, and at `nvidia-smi`"};
}

Result<CudaDriver::PointerFacts> CudaDriver::describe(DeviceAddress address) const {
    // Of 32 bits and zero, whichever width the driver writes.
    unsigned memory_type = 0;
    unsigned is_managed = 0;
    PointerFacts facts;
    constexpr std::array<int, 4> kAttributes{kAttributeMemoryType, kAttributeIsManaged, kAttributeDeviceOrdinal,
                                             kAttributeContext};
    std::array<void*, 4> places{&memory_type, &is_managed, &facts.device, &facts.context};
    GRADSIEVE_TRY(status_of("cuPointerGetAttributes", calls_->pointer_attributes(kAttributes.size(), kAttributes.data(),
                                                                                 places.data(), address)));
    if (is_managed != 0)
        facts.type = MemoryType::kManaged;
    else if (memory_type == kMemoryTypeDevice)
        facts.type = MemoryType::kDevice;
    else if (memory_type == kMemoryTypeHost)
        facts.type = MemoryType::kHost;
    return facts;
}

Result<CudaDriver::Range> CudaDriver::range_of(DeviceAddress address) const {
    Range range;
    std::size_t bytes = 0;
    GRADSIEVE_TRY(status_of("cuMemGetAddressRange", calls_->address_range(&range.base, &bytes, address)));
    range.bytes = bytes;
    return range;
}

Result<std::optional<shm::DeviceHandle>> CudaDriver::memory_handle(DeviceAddress base) const {
    IpcHandle seen{};
    const int code = calls_->memory_handle(&seen, base);
    if (code == kInvalidValue || code == kNotSupported) return std::optional<shm::DeviceHandle>();
    GRADSIEVE_TRY(status_of("cuIpcGetMemHandle", code));
    shm::DeviceHandle handle;
    std::memcpy(handle.data(), seen.bytes.data(), handle.size());
    return std::optional(handle);
}

Result<UniqueFd> CudaDriver::export_allocation(DeviceAddress base) const {
    constexpr const char* kRemedy =
        ": allowed is memory of cudaMalloc, or of cuMemCreate with a POSIX descriptor among its handle types; allocate "
        "it so (PyTorch: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False, and its own allocator), ";
    const auto refuse = [&](const std::string& seen) {
        return Status(StatusCode::kFailedPrecondition,
                      "the memory at " + address_text(base) + " " + seen + kRemedy + kUseHostMemory);
    };
    PhysicalRef physical = 0;
    void* const pointer = reinterpret_cast<void*>(base);  // NOLINT: the driver's own type for this argument
    const int retained = calls_->retain_allocation(&physical, pointer);
    if (retained == kInvalidValue || retained == kNotSupported) return refuse("can be shared by no kind of handle");
    GRADSIEVE_TRY(status_of("cuMemRetainAllocationHandle", retained));
    int fd = -1;
    const int exported = calls_->export_allocation(&fd, physical, kHandleTypePosixDescriptor, 0);
    calls_->release_allocation(physical);  // the mapping and the descriptor keep it
    if (exported == kInvalidValue || exported == kNotSupported) return refuse("was not created to be shared");
    GRADSIEVE_TRY(status_of("cuMemExportToShareableHandle", exported));
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    return UniqueFd(fd);
}

Result<shm::DeviceUuid> CudaDriver::device_uuid(int device) const {
    shm::DeviceUuid uuid{};
    GRADSIEVE_TRY(status_of("cuDeviceGetUuid", calls_->device_uuid(uuid.data(), device)));
    return uuid;
}

Result<ContextRef> CudaDriver::current_context() const {
    ContextRef context = nullptr;
    GRADSIEVE_TRY(status_of("cuCtxGetCurrent", calls_->current_context(&context)));
    return context;
}

Result<int> CudaDriver::current_device() const {
    int device = 0;
    GRADSIEVE_TRY(status_of("cuCtxGetDevice", calls_->current_device(&device)));
    return device;
}

Result<ContextRef> CudaDriver::context_of(StreamRef stream) const {
    ContextRef context = nullptr;
    GRADSIEVE_TRY(status_of("cuStreamGetCtx", calls_->stream_context(stream, &context)));
    return context;
}

Status CudaDriver::push_context(ContextRef context) const {
    return status_of("cuCtxPushCurrent", calls_->push_context(context));
}

void CudaDriver::pop_context() const noexcept {
    ContextRef ours = nullptr;
    calls_->pop_context(&ours);
}

Status CudaDriver::register_host(std::span<std::byte> pages) const {
    return status_of_writing("cuMemHostRegister",
                             calls_->register_host(pages.data(), pages.size(), kRegisterPortable | kRegisterMapped));
}

Status CudaDriver::register_for_copies(std::span<const std::byte> pages, bool is_read_only) const {
    auto* const begin = const_cast<std::byte*>(pages.data());  // NOLINT: the driver's own type for this argument
    return status_of(
        "cuMemHostRegister",
        calls_->register_host(begin, pages.size(), kRegisterPortable | (is_read_only ? kRegisterReadOnly : 0U)));
}

void CudaDriver::unregister_host(const std::byte* pages) const noexcept {
    calls_->unregister_host(const_cast<std::byte*>(pages));  // NOLINT: as above
}

Result<DeviceAddress> CudaDriver::device_address_of(std::byte* pages) const {
    DeviceAddress address = 0;
    GRADSIEVE_TRY(status_of_writing("cuMemHostGetDevicePointer", calls_->device_pointer(&address, pages, 0)));
    return address;
}

Status CudaDriver::synchronize(StreamRef stream) const {
    return status_of("cuStreamSynchronize", calls_->stream_synchronize(stream));
}

Status CudaDriver::copy_to_host(StreamRef stream, std::span<std::byte> to, DeviceAddress from) const {
    return status_of("cuMemcpyDtoHAsync", calls_->copy_to_host(to.data(), from, to.size(), stream));
}

Status CudaDriver::copy_to_device(StreamRef stream, DeviceAddress to, std::span<const std::byte> from) const {
    return status_of("cuMemcpyHtoDAsync", calls_->copy_to_device(to, from.data(), from.size(), stream));
}

Status CudaDriver::write_word(StreamRef stream, DeviceAddress word, std::uint32_t value) const {
    return status_of_writing("cuStreamWriteValue32", calls_->write_word(stream, word, value, kWriteBehindFence));
}

Status CudaDriver::status_of_writing(const char* call, int code) const {
    if (code != kNotSupported) return status_of(call, code);
    return {StatusCode::kFailedPrecondition,
            std::string(call) +
                " answered 801, not supported: this device or its driver cannot write to host memory from a stream: "
                "allowed are those that can; update the driver, " +
                kUseHostMemory};
}

}  // namespace gradsieve::client
