#include "codec/cuda/shared_host_memory.hpp"

#include "codec/cuda/runtime.hpp"

#include <sys/mman.h>
#include <cerrno>
#include <string>

namespace gradsieve::codec::cuda {

Result<SharedHostMemory> SharedHostMemory::map(int descriptor, ByteCount bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED)
        return Status(StatusCode::kResourceExhausted,
                      "mapping " + std::to_string(bytes) + " bytes of host memory for GPUs: errno " +
                          std::to_string(errno) +
                          ": allowed is what the process may map; raise its address space limit");
    SharedHostMemory memory;
    memory.data_ = static_cast<std::byte*>(data);
    memory.size_ = bytes;
    GRADSIEVE_CUDA_TRY(cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
                       "locking host memory for GPUs");
    memory.is_registered_ = true;
    void* on_device = nullptr;
    GRADSIEVE_CUDA_TRY(cudaHostGetDevicePointer(&on_device, data, 0), "asking where a GPU finds host memory");
    if (on_device != data)
        return Status(StatusCode::kUnimplemented,
                      "state on the host: this GPU finds host memory at other addresses than the host: allowed is "
                      "state on the device; set gpu.state = \"device\"");
    return memory;
}

SharedHostMemory::~SharedHostMemory() {
    if (data_ == nullptr) return;
    if (is_registered_) static_cast<void>(cudaHostUnregister(data_));
    ::munmap(data_, size_);
}

}  // namespace gradsieve::codec::cuda
