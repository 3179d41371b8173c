// What the values of a bind request may be, given the session's tensors. Used by both sides, as message_check.cpp is.
#include "shm/device_message.hpp"
#include "shm/layout.hpp"
#include "shm/local_socket.hpp"

#include <algorithm>

namespace gradsieve::shm {
namespace {

struct Wanted {
    const char* what;       ///< "gradient"
    ByteCount bytes = 0;    ///< exactly
    ByteCount element = 0;  ///< alignment, bytes
};

Status refuse(const TensorEntry& tensor, const std::string& seen, const std::string& allowed) {
    return {StatusCode::kInvalidArgument,
            "tensor '" + tensor.name + "': " + seen + "; allowed is " + allowed + "; bind it again with that"};
}

Status check_allocation(const TensorEntry& tensor, const DeviceMemory& memory, const Wanted& wanted) {
    const auto end = checked_add(memory.offset_bytes, wanted.bytes);
    if (end && *end <= memory.allocation_bytes) return {};
    return refuse(tensor,
                  std::string(wanted.what) + " of " + std::to_string(wanted.bytes) + " bytes at offset " +
                      std::to_string(memory.offset_bytes),
                  "what ends within its allocation of " + std::to_string(memory.allocation_bytes) + " bytes");
}

Status check_piece(const TensorEntry& tensor, const DeviceMemory& memory, std::size_t place,
                   std::span<const ByteCount> descriptor_bytes) {
    const auto& piece = memory.pieces[place];
    const auto who = "piece " + std::to_string(place);
    if (piece.descriptor >= descriptor_bytes.size())
        return refuse(tensor, who + " in descriptor " + std::to_string(piece.descriptor),
                      "one of the " + std::to_string(descriptor_bytes.size()) + " that came along");
    const auto allocation_bytes = descriptor_bytes[piece.descriptor];
    const auto end = checked_add(piece.offset_bytes, piece.bytes);
    const bool is_inside = piece.bytes > 0 && end && *end <= allocation_bytes;
    const bool begins_right = place == 0 || piece.offset_bytes == 0;
    const bool ends_right = place + 1 == memory.pieces.size() || end == allocation_bytes;
    if (is_inside && begins_right && ends_right) return {};
    return refuse(tensor,
                  who + " of " + std::to_string(piece.bytes) + " bytes at offset " + std::to_string(piece.offset_bytes),
                  "a part of its allocation of " + std::to_string(allocation_bytes) +
                      " bytes that leaves no gap to the pieces beside it");
}

Status check_pieces(const TensorEntry& tensor, const DeviceMemory& memory, const Wanted& wanted,
                    std::span<const ByteCount> descriptor_bytes) {
    ByteCount total_bytes = 0;
    for (std::size_t place = 0; place < memory.pieces.size(); ++place) {
        GRADSIEVE_TRY(check_piece(tensor, memory, place, descriptor_bytes));
        const auto sum = checked_add(total_bytes, memory.pieces[place].bytes);
        if (!sum) return refuse(tensor, std::string(wanted.what) + " beyond 2^64 bytes", "what a device holds");
        total_bytes = *sum;
    }
    if (total_bytes == wanted.bytes && memory.pieces.size() <= kLocalDescriptorLimit) return {};
    return refuse(tensor,
                  std::string(wanted.what) + " of " + std::to_string(total_bytes) + " bytes in " +
                      std::to_string(memory.pieces.size()) + " pieces",
                  std::to_string(wanted.bytes) + " bytes in 1 to " + std::to_string(kLocalDescriptorLimit));
}

Status check_memory(const TensorEntry& tensor, const DeviceMemory& memory, const Wanted& wanted,
                    std::span<const ByteCount> descriptor_bytes) {
    const bool is_handle = memory.kind == MemoryKind::kIpcHandle;
    if (!is_handle && memory.pieces.empty())
        return refuse(tensor, std::string("no ") + wanted.what, "1 to 8 pieces, or an allocation's handle");
    const auto offset_bytes = is_handle ? memory.offset_bytes : memory.pieces.front().offset_bytes;
    if (offset_bytes % wanted.element != 0)
        return refuse(tensor, std::string(wanted.what) + " at offset " + std::to_string(offset_bytes),
                      "a multiple of its element's " + std::to_string(wanted.element) + " bytes");
    return is_handle ? check_allocation(tensor, memory, wanted)
                     : check_pieces(tensor, memory, wanted, descriptor_bytes);
}

Status check_binding(const Binding& binding, const TensorEntry& tensor, std::span<const ByteCount> descriptor_bytes) {
    if (!tensor.on_device) return refuse(tensor, "a binding", "one for a tensor that was registered as on a device");
    if (binding.is_unbinding()) return {};
    const auto element = element_bytes(binding.type);
    const auto stride = binding.sample_stride_bytes;
    if (stride % element != 0 || stride / element < tensor.elements())
        return refuse(tensor, "slices " + std::to_string(stride) + " bytes apart",
                      "a multiple of " + std::to_string(element) + " from " +
                          std::to_string(tensor.elements() * element) + " up");
    GRADSIEVE_ASSIGN(const auto extent, device_extent_bytes(tensor, binding.type, stride));
    GRADSIEVE_TRY(check_memory(tensor, binding.gradient, {"gradient", extent, element}, descriptor_bytes));
    const bool has_second_moment = binding.second_moment.kind != MemoryKind::kNone;
    if (has_second_moment != tensor.has_second_moment)
        return refuse(tensor, has_second_moment ? "a second moment" : "no second moment",
                      tensor.has_second_moment ? "one, as registered" : "none, as registered");
    if (!has_second_moment) return {};
    const Wanted moment{"second moment", tensor.elements() * sizeof(float), sizeof(float)};
    return check_memory(tensor, binding.second_moment, moment, descriptor_bytes);
}

}  // namespace

Result<ByteCount> device_extent_bytes(const TensorEntry& tensor, ElementType type, std::uint64_t sample_stride_bytes) {
    const auto strides = checked_multiply(sample_stride_bytes, tensor.samples_max - 1);
    const auto slice = checked_multiply(tensor.elements(), element_bytes(type));
    const auto extent = strides && slice ? checked_add(*strides, *slice) : std::nullopt;
    if (extent && *extent <= kSegmentLimitBytes * kSamplesLimit) return *extent;
    return refuse(
        tensor, std::to_string(tensor.samples_max) + " slices " + std::to_string(sample_stride_bytes) + " bytes apart",
        "a memory of up to " + std::to_string(kSegmentLimitBytes * kSamplesLimit) + " bytes");
}

Status check_bind_request(const BindRequest& request, std::span<const TensorEntry> tensors,
                          std::size_t descriptor_count) {
    if (request.bindings.empty() || request.bindings.size() > kBindingLimit)
        return {StatusCode::kInvalidArgument, "bind request: " + std::to_string(request.bindings.size()) +
                                                  " bindings; allowed is 1 to " + std::to_string(kBindingLimit) +
                                                  "; send several requests"};
    if (request.descriptor_bytes.size() != descriptor_count || descriptor_count > kLocalDescriptorLimit)
        return {StatusCode::kInvalidArgument, "bind request: " + std::to_string(request.descriptor_bytes.size()) +
                                                  " allocations with " + std::to_string(descriptor_count) +
                                                  " descriptors; allowed is one descriptor for each, up to " +
                                                  std::to_string(kLocalDescriptorLimit) +
                                                  "; raise the limit of open files, or send several requests"};
    std::vector<std::uint32_t> indices;
    indices.reserve(request.bindings.size());
    for (const auto& binding : request.bindings) {
        if (binding.tensor_index >= tensors.size())
            return {StatusCode::kInvalidArgument, "bind request: tensor index " + std::to_string(binding.tensor_index) +
                                                      "; allowed is below " + std::to_string(tensors.size()) +
                                                      "; bind tensors of this session"};
        GRADSIEVE_TRY(check_binding(binding, tensors[binding.tensor_index], request.descriptor_bytes));
        indices.push_back(binding.tensor_index);
    }
    std::ranges::sort(indices);
    const auto twice = std::ranges::adjacent_find(indices);
    if (twice == indices.end()) return {};
    return refuse(tensors[*twice], "two bindings in one request", "one");
}

}  // namespace gradsieve::shm
