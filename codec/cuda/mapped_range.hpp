// A range of device addresses with physical allocations of CUDA's virtual memory management mapped into it. GPU worker
// thread; never included outside this folder.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"

#include <cuda.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace gradsieve::codec::cuda {

/// Memory on `device` that other processes can be given as a descriptor.
[[nodiscard]] CUmemAllocationProp shareable_properties(int device);
/// Size of the device's pages, of which every such allocation is a multiple.
[[nodiscard]] Result<ByteCount> device_page_bytes(int device);

class MappedRange {
public:
    MappedRange() = default;
    /// Addresses for `bytes`, whole pages; makes the device current, and a context on it. `users`: other devices that
    /// may use what is mapped, where they can reach it. Errors: kResourceExhausted, kUnavailable.
    [[nodiscard]] static Result<MappedRange> reserve(int device, ByteCount bytes, std::span<const int> users = {});
    MappedRange(MappedRange&& other) noexcept { swap(other); }
    MappedRange& operator=(MappedRange&& other) noexcept {
        MappedRange(std::move(other)).swap(*this);
        return *this;
    }
    ~MappedRange();

    /// Maps the whole allocation behind what is mapped so far. Takes the handle, also where it fails: the allocation
    /// lives on as long as it is mapped or a descriptor names it.
    [[nodiscard]] Status map(CUmemGenericAllocationHandle handle, ByteCount bytes);
    /// Whether kernels of that device reach what is mapped.
    [[nodiscard]] bool is_open_to(int device) const noexcept;
    [[nodiscard]] std::byte* data() const noexcept { return reinterpret_cast<std::byte*>(reserved_); }

private:
    struct Mapping {
        CUmemGenericAllocationHandle handle = 0;
        CUdeviceptr address = 0;
        ByteCount bytes = 0;  ///< 0: not mapped
    };
    void swap(MappedRange& other) noexcept;

    int device_ = 0;
    CUdeviceptr reserved_ = 0;
    ByteCount reserved_bytes_ = 0, mapped_bytes_ = 0;
    std::vector<CUmemAccessDesc> accesses_;
    std::vector<Mapping> mappings_;
};

}  // namespace gradsieve::codec::cuda
