// Where memory that a program names lies, as the driver knows it, and whether another process can open it. Asks the
// driver and changes nothing. Any thread, with a context of the memory's device current; values are plain.
#pragma once

#include "client/cuda_driver.hpp"

#include <optional>
#include <string>
#include <vector>

namespace gradsieve::client {

struct LocatedMemory {
    DeviceAddress address = 0;
    ByteCount bytes = 0;
    /// Of the allocation that it lies in; nothing: it is mapped from physical allocations.
    std::optional<shm::DeviceHandle> handle;
    /// In the order of addresses, without gaps; one if there is a handle.
    std::vector<CudaDriver::Range> ranges;
};

/// `what`: "tensor 'w': its gradient". Errors: kInvalidArgument (null, misaligned, no device memory of device memory's
/// kind), kUnavailable (the driver).
[[nodiscard]] Result<CudaDriver::PointerFacts> describe_device_memory(const CudaDriver& driver, const std::string& what,
                                                                      DeviceAddress address, ByteCount alignment);
/// All `bytes` from `address` on. Errors: kInvalidArgument (they reach beyond what is allocated there), kUnavailable.
[[nodiscard]] Result<LocatedMemory> locate_device_memory(const CudaDriver& driver, const std::string& what,
                                                         DeviceAddress address, ByteCount bytes);

}  // namespace gradsieve::client
