// A bind request that is right for three tensors on a device, for the tests of its bytes and of its checks. Tests only.
#pragma once

#include "shm/device_message.hpp"

namespace gradsieve::shm {

inline DeviceHandle handle_of(std::uint8_t byte) {
    DeviceHandle handle;
    handle.fill(std::byte{byte});
    return handle;
}

inline std::vector<TensorEntry> three_device_tensors() {
    return {{.name = "a", .shape = {4}, .on_device = true},
            {.name = "b", .shape = {3, 5}, .samples_max = 2, .has_second_moment = true, .on_device = true},
            {.name = "c", .shape = {0x80001}, .on_device = true}};
}

inline DeviceMemory memory_at(std::uint8_t handle, ByteCount allocation_bytes, std::uint64_t offset_bytes) {
    DeviceMemory memory;
    memory.kind = MemoryKind::kIpcHandle;
    memory.handle = handle_of(handle);
    memory.allocation_bytes = allocation_bytes;
    memory.offset_bytes = offset_bytes;
    return memory;
}

/// Tensor b by handle, with its second moment; tensor c (1 MiB + 2 bytes) in two pieces; tensor a unbound.
inline BindRequest sample_bind_request() {
    BindRequest request;
    request.number = 5;
    request.descriptor_bytes = {0x200000, 0x400000};
    Binding b;
    b.tensor_index = 1;
    b.gradient = memory_at(0xA1, 0x100000, 0x200);
    b.device.fill(std::byte{0x77});
    b.sample_stride_bytes = 60;
    b.second_moment = memory_at(0xA2, 0x100000, 0x400);
    Binding c;
    c.tensor_index = 2;
    c.gradient.kind = MemoryKind::kDescriptors;
    c.gradient.pieces = {{.descriptor = 0, .offset_bytes = 0x100000, .bytes = 0x100000},
                         {.descriptor = 1, .offset_bytes = 0, .bytes = 2}};
    c.type = ElementType::kBf16;
    c.device = b.device;
    c.sample_stride_bytes = 0x100002;
    request.bindings = {b, c, Binding{}};
    return request;
}

}  // namespace gradsieve::shm
