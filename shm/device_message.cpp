#include "shm/device_message.hpp"

#include "shm/local_socket.hpp"
#include "shm/message_head.hpp"

#include <cstring>

namespace gradsieve::shm {
namespace {

constexpr const char* kRequest = "bind request";
constexpr const char* kReply = "bind reply";
/// Fewest bytes that one binding takes (tensor index, memory of no kind): bounds a count before anything is allocated.
constexpr std::size_t kBindingMinimumBytes = 5;

template <std::size_t kCount>
void read_array(ByteReader& reader, std::array<std::byte, kCount>& ret_bytes) {
    const auto bytes = reader.read_bytes(kCount);
    if (bytes.size() == kCount) std::memcpy(ret_bytes.data(), bytes.data(), kCount);
}

void write_memory(ByteWriter& writer, const DeviceMemory& memory) {
    writer.write(static_cast<std::uint8_t>(memory.kind));
    switch (memory.kind) {
        case MemoryKind::kNone: return;
        case MemoryKind::kIpcHandle:
            writer.write_bytes(memory.handle);
            writer.write(memory.allocation_bytes);
            writer.write(memory.offset_bytes);
            return;
        case MemoryKind::kDescriptors:
            writer.write(static_cast<std::uint8_t>(memory.pieces.size()));
            for (const auto& piece : memory.pieces) {
                writer.write(piece.descriptor);
                writer.write(piece.offset_bytes);
                writer.write(piece.bytes);
            }
            return;
    }
}

Status read_memory(ByteReader& reader, DeviceMemory& ret_memory) {
    const auto kind = reader.read<std::uint8_t>();
    if (kind > static_cast<std::uint8_t>(MemoryKind::kDescriptors))
        return unparsable(kRequest, "memory kind " + std::to_string(kind) + ", expected 0 to 2");
    ret_memory.kind = static_cast<MemoryKind>(kind);
    if (ret_memory.kind == MemoryKind::kIpcHandle) {
        read_array(reader, ret_memory.handle);
        ret_memory.allocation_bytes = reader.read<ByteCount>();
        ret_memory.offset_bytes = reader.read<std::uint64_t>();
    }
    if (ret_memory.kind == MemoryKind::kDescriptors) {
        const auto count = reader.read<std::uint8_t>();
        if (count < 1 || count > kLocalDescriptorLimit)
            return unparsable(kRequest, "memory of " + std::to_string(count) + " pieces, expected 1 to 8");
        ret_memory.pieces.resize(count);
        for (auto& piece : ret_memory.pieces) {
            piece.descriptor = reader.read<std::uint8_t>();
            piece.offset_bytes = reader.read<std::uint64_t>();
            piece.bytes = reader.read<ByteCount>();
        }
    }
    return reader.is_ok() ? Status() : unparsable(kRequest, "it is cut");
}

void write_binding(ByteWriter& writer, const Binding& binding) {
    writer.write(binding.tensor_index);
    write_memory(writer, binding.gradient);
    if (binding.is_unbinding()) return;
    writer.write(static_cast<std::uint8_t>(binding.type));
    writer.write_bytes(binding.device);
    writer.write(binding.sample_stride_bytes);
    write_memory(writer, binding.second_moment);
}

Status read_binding(ByteReader& reader, Binding& ret_binding) {
    ret_binding.tensor_index = reader.read<std::uint32_t>();
    GRADSIEVE_TRY(read_memory(reader, ret_binding.gradient));
    if (ret_binding.is_unbinding()) return {};
    const auto type = reader.read<std::uint8_t>();
    if (type > static_cast<std::uint8_t>(ElementType::kBf16))
        return unparsable(kRequest, "element type " + std::to_string(type) + ", expected 0 to 2");
    ret_binding.type = static_cast<ElementType>(type);
    read_array(reader, ret_binding.device);
    ret_binding.sample_stride_bytes = reader.read<std::uint64_t>();
    return read_memory(reader, ret_binding.second_moment);
}

}  // namespace

Bytes build_bind_request(const BindRequest& request) {
    Bytes bytes;
    ByteWriter writer(bytes);
    write_head(writer, request.abi_version, MessageType::kBindRequest);
    writer.write(request.number);
    writer.write(static_cast<std::uint8_t>(request.descriptor_bytes.size()));
    for (const auto size_bytes : request.descriptor_bytes) writer.write(size_bytes);
    writer.write_varint(request.bindings.size());
    for (const auto& binding : request.bindings) write_binding(writer, binding);
    return bytes;
}

Result<BindRequest> parse_bind_request(ByteView bytes) {
    ByteReader reader(bytes);
    GRADSIEVE_TRY(read_head(reader, kRequest, MessageType::kBindRequest));
    BindRequest request;
    request.number = reader.read<std::uint64_t>();
    const auto descriptor_count = reader.read<std::uint8_t>();
    if (descriptor_count > kLocalDescriptorLimit)
        return unparsable(kRequest, std::to_string(descriptor_count) + " descriptors, expected 0 to 8");
    request.descriptor_bytes.resize(descriptor_count);
    for (auto& size_bytes : request.descriptor_bytes) size_bytes = reader.read<ByteCount>();
    const auto binding_count = reader.read_varint();
    if (!reader.is_ok()) return unparsable(kRequest, "it is cut");
    if (binding_count < 1 || binding_count > kBindingLimit ||
        binding_count > reader.remaining_bytes() / kBindingMinimumBytes)
        return unparsable(kRequest, std::to_string(binding_count) + " bindings in " +
                                        std::to_string(reader.remaining_bytes()) + " bytes, expected 1 to " +
                                        std::to_string(kBindingLimit));
    request.bindings.resize(binding_count);
    for (auto& binding : request.bindings) GRADSIEVE_TRY(read_binding(reader, binding));
    if (!reader.is_done()) return unparsable(kRequest, "bytes after its end");
    return request;
}

Bytes build_bind_reply(const BindReply& reply) {
    Bytes bytes;
    ByteWriter writer(bytes);
    write_head(writer, reply.abi_version, MessageType::kBindReply);
    writer.write(reply.number);
    write_status(writer, reply.status);
    return bytes;
}

Result<BindReply> parse_bind_reply(ByteView bytes) {
    ByteReader reader(bytes);
    GRADSIEVE_TRY(read_head(reader, kReply, MessageType::kBindReply));
    BindReply reply;
    reply.number = reader.read<std::uint64_t>();
    GRADSIEVE_TRY(read_status(reader, kReply, reply.status));
    if (!reader.is_done()) return unparsable(kReply, "bytes after its end");
    return reply;
}

}  // namespace gradsieve::shm
