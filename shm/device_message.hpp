// How a client says where on a device its gradients lie, and how the daemon answers: messages on the local socket after
// the attach. Field by field, with the order of work on the device, in docs/shared-memory.md. Handles are opaque bytes
// here: nothing in this room calls a driver. Parse functions read untrusted bytes. Plain values; any thread.
#pragma once

#include "shm/message.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace gradsieve::shm {

/// Tensors that one request binds or unbinds.
inline constexpr std::uint32_t kBindingLimit = 4096;
/// Size of the driver's handles for memory (CU_IPC_HANDLE_SIZE).
inline constexpr std::size_t kDeviceHandleBytes = 64;

using DeviceHandle = std::array<std::byte, kDeviceHandleBytes>;
using DeviceUuid = std::array<std::byte, 16>;

/// How the elements of a gradient lie in device memory.
enum class ElementType : std::uint8_t { kF32 = 0, kF16 = 1, kBf16 = 2 };
[[nodiscard]] constexpr ByteCount element_bytes(ElementType type) noexcept { return type == ElementType::kF32 ? 4 : 2; }

/// How another process can open memory on a device.
enum class MemoryKind : std::uint8_t {
    kNone = 0,         ///< no memory
    kIpcHandle = 1,    ///< one allocation by its handle (cuIpcGetMemHandle)
    kDescriptors = 2,  ///< one or more physical allocations by descriptors that come with the message
};
/// A part of one physical allocation.
struct DevicePiece {
    std::uint8_t descriptor = 0;  ///< place among the message's descriptors
    std::uint64_t offset_bytes = 0;
    ByteCount bytes = 0;
};
struct DeviceMemory {
    MemoryKind kind = MemoryKind::kNone;
    // kIpcHandle
    DeviceHandle handle{};           ///< of the whole allocation
    ByteCount allocation_bytes = 0;  ///< its size
    std::uint64_t offset_bytes = 0;  ///< where the memory begins in it
    /// kDescriptors: in the order of addresses. All but the last end with their allocation and all but the first begin
    /// with theirs, so that the allocations, mapped one behind the other, give the memory without gaps.
    std::vector<DevicePiece> pieces;
};

struct Binding {
    std::uint32_t tensor_index = 0;
    DeviceMemory gradient;  ///< kNone: the tensor is unbound, and nothing below counts
    ElementType type = ElementType::kF32;
    DeviceUuid device{};                    ///< cuDeviceGetUuid
    std::uint64_t sample_stride_bytes = 0;  ///< from slice to slice
    DeviceMemory second_moment;             ///< fp32; kNone unless the tensor has one
    [[nodiscard]] bool is_unbinding() const noexcept { return gradient.kind == MemoryKind::kNone; }
};

/// Client to daemon. All of its bindings take effect, or none.
struct BindRequest {
    std::uint32_t abi_version = kAbiVersion;
    std::uint64_t number = 0;                 ///< counts the session's requests from 1; the reply repeats it
    std::vector<ByteCount> descriptor_bytes;  ///< size of each physical allocation whose descriptor comes along
    std::vector<Binding> bindings;
};
/// Daemon to client.
struct BindReply {
    std::uint32_t abi_version = kAbiVersion;
    std::uint64_t number = 0;
    Status status;  ///< not ok: nothing changed
};

/// From the first byte of slice 0 to the last of slice samples_max - 1. Errors: kInvalidArgument (overflow; the tensor
/// is named).
[[nodiscard]] Result<ByteCount> device_extent_bytes(const TensorEntry& tensor, ElementType type,
                                                    std::uint64_t sample_stride_bytes);
/// What must hold between a request and the session's tensors: asked by the client before it sends, and by the daemon
/// after it parsed. `descriptor_count`: how many came along. Errors: kInvalidArgument (the tensor and the value are
/// named): the session may go on, and the reply says so.
[[nodiscard]] Status check_bind_request(const BindRequest& request, std::span<const TensorEntry> tensors,
                                        std::size_t descriptor_count);

[[nodiscard]] Bytes build_bind_request(const BindRequest& request);
/// Checks the form alone; `check_bind_request` looks at values. Errors: kVersionMismatch (before anything else is
/// read), kCorrupt: there is no number to answer, so the session is to be ended.
[[nodiscard]] Result<BindRequest> parse_bind_request(ByteView bytes);
[[nodiscard]] Bytes build_bind_reply(const BindReply& reply);
/// Errors: kVersionMismatch, kCorrupt. That the number fits the request is the caller's to see.
[[nodiscard]] Result<BindReply> parse_bind_reply(ByteView bytes);

}  // namespace gradsieve::shm
