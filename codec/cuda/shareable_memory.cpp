#include "codec/cuda/shareable_memory.hpp"

#include "codec/cuda/driver_api.hpp"
#include "codec/cuda/mapped_range.hpp"
#include "codec/cuda/runtime.hpp"

#include <fcntl.h>
#include <string>

namespace gradsieve::codec::cuda {
namespace {

std::string mebibytes(ByteCount bytes) { return std::to_string((bytes + (1U << 20U) - 1) >> 20U) + " MiB"; }

std::string free_text() {
    std::size_t free = 0;
    std::size_t total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? ", " + mebibytes(free) + " free" : std::string();
}

Status check_pages(int device, ByteCount bytes) {
    GRADSIEVE_ASSIGN(const auto page, device_page_bytes(device));
    if (bytes > 0 && bytes % page == 0) return {};
    return {StatusCode::kInvalidArgument, "device memory of " + std::to_string(bytes) +
                                              " bytes: allowed is a multiple of this device's pages of " +
                                              std::to_string(page) + "; keep state on the host (gpu.state = \"host\")"};
}

}  // namespace

struct ShareableMemory::Impl {
    MappedRange range;
};

ShareableMemory::ShareableMemory(std::unique_ptr<Impl> impl, int device, ByteCount size)
    : impl_(std::move(impl)), device_(device), size_(size) {}
ShareableMemory::ShareableMemory(ShareableMemory&&) noexcept = default;
ShareableMemory& ShareableMemory::operator=(ShareableMemory&&) noexcept = default;
ShareableMemory::~ShareableMemory() = default;
std::byte* ShareableMemory::data() const noexcept { return impl_ ? impl_->range.data() : nullptr; }

Result<ShareableMemory> ShareableMemory::make(int device, ByteCount bytes, std::string_view what,
                                              UniqueFd& ret_descriptor) {
    GRADSIEVE_TRY(check_pages(device, bytes));
    auto impl = std::make_unique<Impl>();
    GRADSIEVE_ASSIGN(impl->range, MappedRange::reserve(device, bytes));
    GRADSIEVE_ASSIGN(const auto* driver, driver_api());
    const auto properties = shareable_properties(device);
    CUmemGenericAllocationHandle handle = 0;
    const auto made = driver->cuMemCreate(&handle, bytes, &properties, 0);
    if (made == CUDA_ERROR_OUT_OF_MEMORY)
        return Status(StatusCode::kResourceExhausted,
                      std::string(what) + ": " + mebibytes(bytes) + " of device memory" + free_text() +
                          ": allowed is what the card has free; end other programs on it, or keep state on the host "
                          "(gpu.state = \"host\")");
    GRADSIEVE_TRY(driver->status_of(made, "allocating device memory"));
    GRADSIEVE_TRY(impl->range.map(handle, bytes));
    int descriptor = -1;
    GRADSIEVE_TRY(driver->status_of(
        driver->cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "making a descriptor for device memory"));
    ret_descriptor.reset(descriptor);
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);  // drivers differ in whether it is
    return ShareableMemory(std::move(impl), device, bytes);
}

Result<ShareableMemory> ShareableMemory::open(int device, int descriptor, ByteCount bytes) {
    GRADSIEVE_TRY(check_pages(device, bytes));
    auto impl = std::make_unique<Impl>();
    GRADSIEVE_ASSIGN(impl->range, MappedRange::reserve(device, bytes));
    GRADSIEVE_ASSIGN(const auto* driver, driver_api());
    CUmemGenericAllocationHandle handle = 0;
    GRADSIEVE_TRY(driver->status_of(
        driver->cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "taking up device memory by its descriptor"));
    GRADSIEVE_TRY(impl->range.map(handle, bytes));
    return ShareableMemory(std::move(impl), device, bytes);
}

}  // namespace gradsieve::codec::cuda
