#include "codec/cuda/device.hpp"

#include "codec/cuda/runtime.hpp"

#include <cstdio>

namespace gradsieve::codec::cuda {
namespace {

std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string uuid_text(const cudaUUID_t& uuid) {
    std::string text = "GPU-";
    for (std::size_t place = 0; place < sizeof(uuid.bytes); ++place) {
        if (place == 4 || place == 6 || place == 8 || place == 10) text += '-';
        char digits[3];
        std::snprintf(digits, sizeof(digits), "%02x",
                      static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[place])));
        text += digits;
    }
    return text;
}

std::string mebibytes(ByteCount bytes) { return std::to_string((bytes + (1U << 20U) - 1) >> 20U) + " MiB"; }

Result<DeviceInfo> describe(int ordinal) {
    cudaDeviceProp properties{};
    GRADSIEVE_CUDA_TRY(cudaGetDeviceProperties(&properties, ordinal), "reading a device's properties");
    DeviceInfo info;
    info.ordinal = ordinal;
    info.name = properties.name;
    info.uuid = uuid_text(properties.uuid);
    info.total_bytes = properties.totalGlobalMem;
    info.multiprocessors = properties.multiProcessorCount;
    info.compute_major = properties.major;
    info.compute_minor = properties.minor;
    return info;
}

Result<ByteCount> free_bytes(int device) {
    GRADSIEVE_CUDA_TRY(cudaSetDevice(device), "choosing a GPU");
    std::size_t free = 0;
    std::size_t total = 0;
    GRADSIEVE_CUDA_TRY(cudaMemGetInfo(&free, &total), "asking for free device memory");
    return ByteCount{free};
}

}  // namespace

bool is_built() noexcept { return true; }

Status status_of(cudaError_t error, const char* doing) {
    if (error == cudaSuccess) return {};
    static_cast<void>(cudaGetLastError());
    const std::string seen =
        std::string(doing) + ": CUDA says " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
    switch (error) {
        case cudaErrorMemoryAllocation:
            return {StatusCode::kResourceExhausted, seen +
                                                        ": allowed is what the card has free; end other programs on "
                                                        "it, or keep state on the host (state = \"host\")"};
        case cudaErrorInsufficientDriver:
            return {StatusCode::kUnavailable, seen + ": allowed is a driver for CUDA " + version_text(CUDART_VERSION) +
                                                  "; install a newer NVIDIA driver, or use the CPU"};
        case cudaErrorNoDevice:
            return {StatusCode::kUnavailable,
                    seen + ": at least one device is needed; check nvidia-smi and CUDA_VISIBLE_DEVICES"};
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchFailure:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorHardwareStackError:
        case cudaErrorECCUncorrectable:
        case cudaErrorAssert:
            return {StatusCode::kUnavailable, seen +
                                                  ": this process can use the GPU no more; look for an Xid in dmesg, "
                                                  "and restart the daemon"};
        default: break;
    }
    return {StatusCode::kUnavailable,
            seen + ": allowed is a GPU in good order and memory that its owner still holds; see gradsieve doctor"};
}

std::string versions_text() {
    int driver = 0;
    int runtime = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no NVIDIA driver";
    static_cast<void>(cudaRuntimeGetVersion(&runtime));
    return "driver " + version_text(driver) + ", runtime " + version_text(runtime);
}

Result<std::vector<DeviceInfo>> list_devices() {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        return Status(StatusCode::kUnavailable,
                      "GPUs: no NVIDIA driver on this host; install one (libcuda.so.1), or use the CPU");
    }
    int count = 0;
    GRADSIEVE_CUDA_TRY(cudaGetDeviceCount(&count), "counting GPUs");
    std::vector<DeviceInfo> devices;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        GRADSIEVE_ASSIGN(auto info, describe(ordinal));
        devices.push_back(std::move(info));
    }
    return devices;
}

Result<DeviceMemory> DeviceMemory::make(int device, ByteCount bytes, std::string_view what) {
    GRADSIEVE_CUDA_TRY(cudaSetDevice(device), "choosing a GPU");
    DeviceMemory memory;
    memory.device_ = device;
    if (bytes == 0) return memory;
    void* data = nullptr;
    if (const auto status = status_of(cudaMalloc(&data, bytes), "allocating device memory"); !status.is_ok()) {
        const auto free = free_bytes(device);
        return status.with_context(std::string(what) + ": " + mebibytes(bytes) + " of device memory" +
                                   (free.is_ok() ? ", " + mebibytes(*free) + " free" : std::string()));
    }
    memory.data_ = static_cast<std::byte*>(data);
    memory.size_ = bytes;
    return memory;
}

DeviceMemory::~DeviceMemory() {
    if (data_ == nullptr) return;
    static_cast<void>(cudaSetDevice(device_));
    static_cast<void>(cudaFree(data_));
}

Result<PinnedMemory> PinnedMemory::make(ByteCount bytes, std::string_view what) {
    PinnedMemory memory;
    if (bytes == 0) return memory;
    void* data = nullptr;
    if (const auto status = status_of(cudaHostAlloc(&data, bytes, cudaHostAllocPortable), "locking host memory");
        !status.is_ok())
        return status.with_context(std::string(what) + ": " + mebibytes(bytes) + " of page-locked memory");
    memory.data_ = static_cast<std::byte*>(data);
    memory.size_ = bytes;
    return memory;
}

PinnedMemory::~PinnedMemory() {
    if (data_ != nullptr) static_cast<void>(cudaFreeHost(data_));
}

Result<Stream> Stream::make(int device) {
    GRADSIEVE_CUDA_TRY(cudaSetDevice(device), "choosing a GPU");
    int least = 0;
    int greatest = 0;
    GRADSIEVE_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for stream priorities");
    cudaStream_t handle = nullptr;
    GRADSIEVE_CUDA_TRY(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, greatest), "making a stream");
    Stream stream;
    stream.handle_ = handle;
    stream.device_ = device;
    return stream;
}

Stream::~Stream() {
    if (handle_ == nullptr) return;
    static_cast<void>(cudaSetDevice(device_));
    static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(handle_)));
}

Status Stream::make_current() const { return status_of(cudaSetDevice(device_), "choosing a GPU"); }

Status Stream::synchronize() const {
    GRADSIEVE_TRY(make_current());
    return status_of(cudaStreamSynchronize(static_cast<cudaStream_t>(handle_)), "waiting for a GPU");
}

Status fill_bytes(const Stream& stream, void* data, ByteCount bytes, int value) {
    if (bytes == 0) return {};
    GRADSIEVE_TRY(stream.make_current());
    return status_of(cudaMemsetAsync(data, value, bytes, static_cast<cudaStream_t>(stream.handle())),
                     "filling device memory");
}

Status check_device(int device) {
    GRADSIEVE_CUDA_TRY(cudaSetDevice(device), "choosing a GPU");
    return status_of(cudaDeviceSynchronize(), "waiting for a GPU");
}

Status release_context(int device) {
    GRADSIEVE_CUDA_TRY(cudaSetDevice(device), "choosing a GPU");
    return status_of(cudaDeviceReset(), "giving the GPU's context back");
}

}  // namespace gradsieve::codec::cuda
