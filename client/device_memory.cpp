#include "client/device_memory.hpp"

namespace gradsieve::client {
namespace {

using MemoryType = CudaDriver::MemoryType;

Status refuse(const std::string& what, const std::string& seen, const std::string& allowed) {
    return {StatusCode::kInvalidArgument, what + " " + seen + ": allowed is " + allowed};
}

const char* name_of(MemoryType type) {
    switch (type) {
        case MemoryType::kHost: return "host memory";
        case MemoryType::kManaged: return "managed memory (cudaMallocManaged)";
        default: return "no memory that CUDA knows";
    }
}

}  // namespace

Result<CudaDriver::PointerFacts> describe_device_memory(const CudaDriver& driver, const std::string& what,
                                                        DeviceAddress address, ByteCount alignment) {
    if (address == 0) return refuse(what, "has the null pointer", "device memory; pass its address");
    if (address % alignment != 0)
        return refuse(what, "lies at " + address_text(address),
                      "a multiple of its element's " + std::to_string(alignment) + " bytes; align it");
    GRADSIEVE_ASSIGN(const auto facts, driver.describe(address));
    if (facts.type == MemoryType::kDevice) return facts;
    return refuse(what, "at " + address_text(address) + " is " + name_of(facts.type),
                  "device memory, as of cudaMalloc; use that, or register the tensor without on_device and write into "
                  "gradient()");
}

Result<LocatedMemory> locate_device_memory(const CudaDriver& driver, const std::string& what, DeviceAddress address,
                                           ByteCount bytes) {
    const auto end = checked_add(address, bytes);
    const auto beyond = [&](DeviceAddress allocated_end) {
        return refuse(what, "of " + std::to_string(bytes) + " bytes at " + address_text(address),
                      "what ends within its memory, at " + address_text(allocated_end) +
                          "; check elements, element type and sample stride");
    };
    GRADSIEVE_ASSIGN(const auto first, driver.range_of(address));
    LocatedMemory located{.address = address, .bytes = bytes, .handle = {}, .ranges = {first}};
    GRADSIEVE_ASSIGN(located.handle, driver.memory_handle(first.base));
    if (!end) return beyond(first.base + first.bytes);
    auto seen_end = first.base + first.bytes;
    while (seen_end < *end) {
        if (located.handle) return beyond(seen_end);
        // What lies behind belongs to it only if it is mapped there as well.
        const auto next = driver.range_of(seen_end);
        if (!next.is_ok() || next->base != seen_end || next->bytes == 0) return beyond(seen_end);
        located.ranges.push_back(*next);
        seen_end += next->bytes;
    }
    return located;
}

}  // namespace gradsieve::client
