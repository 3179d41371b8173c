#include "codec/cuda/mapped_range.hpp"

#include "codec/cuda/driver_api.hpp"
#include "codec/cuda/runtime.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {
namespace {

/// For the device itself and the users that can reach it.
Result<std::vector<CUmemAccessDesc>> accesses_of(int device, std::span<const int> users) {
    std::vector<CUmemAccessDesc> accesses;
    const auto add = [&](int user) {
        CUmemAccessDesc access{};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = user;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        accesses.push_back(access);
    };
    add(device);
    for (const int user : users) {
        if (user == device) continue;
        int can_access = 0;
        GRADSIEVE_CUDA_TRY(cudaDeviceCanAccessPeer(&can_access, user, device), "asking for access between GPUs");
        if (can_access != 0) add(user);
    }
    return accesses;
}

}  // namespace

CUmemAllocationProp shareable_properties(int device) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

Result<ByteCount> device_page_bytes(int device) {
    GRADSIEVE_ASSIGN(const auto* driver, driver_api());
    const auto properties = shareable_properties(device);
    std::size_t bytes = 0;
    GRADSIEVE_TRY(
        driver->status_of(driver->cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                          "asking for the size of device pages"));
    return ByteCount{bytes};
}

Result<MappedRange> MappedRange::reserve(int device, ByteCount bytes, std::span<const int> users) {
    GRADSIEVE_CUDA_TRY(cudaSetDevice(device), "choosing a GPU");
    GRADSIEVE_CUDA_TRY(cudaFree(nullptr), "making a context");  // the driver's calls need one
    GRADSIEVE_ASSIGN(const auto* driver, driver_api());
    MappedRange range;
    range.device_ = device;
    GRADSIEVE_ASSIGN(range.accesses_, accesses_of(device, users));
    GRADSIEVE_TRY(
        driver->status_of(driver->cuMemAddressReserve(&range.reserved_, bytes, 0, 0, 0), "reserving device addresses"));
    range.reserved_bytes_ = bytes;
    return range;
}

MappedRange::~MappedRange() {
    if (reserved_ == 0 && mappings_.empty()) return;
    static_cast<void>(cudaSetDevice(device_));
    const auto driver = driver_api();
    if (!driver.is_ok()) return;
    for (const auto& mapping : mappings_) {
        if (mapping.bytes > 0) static_cast<void>((*driver)->cuMemUnmap(mapping.address, mapping.bytes));
        static_cast<void>((*driver)->cuMemRelease(mapping.handle));
    }
    if (reserved_ != 0) static_cast<void>((*driver)->cuMemAddressFree(reserved_, reserved_bytes_));
}

Status MappedRange::map(CUmemGenericAllocationHandle handle, ByteCount bytes) {
    GRADSIEVE_ASSIGN(const auto* driver, driver_api());
    mappings_.push_back({handle, reserved_ + mapped_bytes_, 0});
    auto& mapping = mappings_.back();
    GRADSIEVE_TRY(driver->status_of(driver->cuMemMap(mapping.address, bytes, 0, handle, 0), "mapping device memory"));
    mapping.bytes = bytes;
    mapped_bytes_ += bytes;
    return driver->status_of(driver->cuMemSetAccess(mapping.address, bytes, accesses_.data(), accesses_.size()),
                             "asking for access to device memory");
}

bool MappedRange::is_open_to(int device) const noexcept {
    return std::ranges::any_of(accesses_,
                               [device](const CUmemAccessDesc& access) { return access.location.id == device; });
}

void MappedRange::swap(MappedRange& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(reserved_, other.reserved_);
    std::swap(reserved_bytes_, other.reserved_bytes_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    accesses_.swap(other.accesses_);
    mappings_.swap(other.mappings_);
}

}  // namespace gradsieve::codec::cuda
