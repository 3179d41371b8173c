#include "shm/message.hpp"

#include "shm/message_head.hpp"

#include <algorithm>
#include <cstring>

namespace gradsieve::shm {
namespace {

/// Fewest bytes that one tensor's entry or one offset takes: bounds a count before anything is allocated for it.
constexpr std::size_t kTensorEntryMinimumBytes = 5;
constexpr std::size_t kOffsetBytes = sizeof(std::uint64_t);

/// Bits of a tensor's flags.
constexpr std::uint8_t kHasSecondMoment = 1U << 0U;
constexpr std::uint8_t kIsOnDevice = 1U << 1U;
constexpr std::uint8_t kIsStaged = 1U << 2U;
constexpr std::uint8_t kKnownFlags = kHasSecondMoment | kIsOnDevice | kIsStaged;

void write_tensor(ByteWriter& writer, const TensorEntry& tensor) {
    writer.write_text(tensor.name);
    writer.write_text(tensor.group);
    writer.write_varint(tensor.shape.size());
    for (const auto extent : tensor.shape) writer.write_varint(extent);
    writer.write_varint(tensor.samples_max);
    writer.write(static_cast<std::uint8_t>((tensor.has_second_moment ? kHasSecondMoment : 0U) |
                                           (tensor.on_device ? kIsOnDevice : 0U) | (tensor.staged ? kIsStaged : 0U)));
}

Result<TensorEntry> read_tensor(ByteReader& reader) {
    TensorEntry tensor;
    tensor.name = reader.read_text(kNameLimitBytes);
    tensor.group = reader.read_text(kNameLimitBytes);
    const auto dimensions = reader.read_varint();
    if (!reader.is_ok()) return unparsable("attach request", "a tensor's name or group is cut or too long");
    if (dimensions > kDimensionLimit) {
        return Status(StatusCode::kInvalidArgument, "tensor '" + tensor.name + "': shape of " +
                                                        std::to_string(dimensions) + " dimensions; allowed is up to " +
                                                        std::to_string(kDimensionLimit) +
                                                        "; change it and attach again");
    }
    for (std::uint64_t dimension = 0; dimension < dimensions; ++dimension) tensor.shape.push_back(reader.read_varint());
    const auto samples_max = reader.read_varint();
    tensor.samples_max = static_cast<std::uint32_t>(std::min<std::uint64_t>(samples_max, kSamplesLimit + 1));
    const auto flags = reader.read<std::uint8_t>();
    if (!reader.is_ok() || (flags & ~kKnownFlags) != 0)
        return unparsable("attach request", "tensor '" + tensor.name + "' is cut or has unknown flags");
    tensor.has_second_moment = (flags & kHasSecondMoment) != 0;
    tensor.on_device = (flags & kIsOnDevice) != 0;
    tensor.staged = (flags & kIsStaged) != 0;
    return tensor;
}

}  // namespace

Bytes build_attach_request(const AttachRequest& request) {
    Bytes bytes;
    ByteWriter writer(bytes);
    write_head(writer, request.abi_version, MessageType::kAttachRequest);
    writer.write_text(request.job_name);
    writer.write_text(request.run_id);
    writer.write(request.rank);
    writer.write(request.world_size);
    writer.write_text(request.codec);
    writer.write(static_cast<std::uint8_t>(request.non_finite));
    writer.write_varint(request.tensors.size());
    for (const auto& tensor : request.tensors) write_tensor(writer, tensor);
    return bytes;
}

Result<AttachRequest> parse_attach_request(ByteView bytes) {
    ByteReader reader(bytes);
    GRADSIEVE_TRY(read_head(reader, "attach request", MessageType::kAttachRequest));
    AttachRequest request;
    request.job_name = reader.read_text(kNameLimitBytes);
    request.run_id = reader.read_text(kNameLimitBytes);
    request.rank = reader.read<Rank>();
    request.world_size = reader.read<std::uint32_t>();
    request.codec = reader.read_text(kCodecLimitBytes);
    request.non_finite = static_cast<NonFinitePolicy>(reader.read<std::uint8_t>());
    const auto tensor_count = reader.read_varint();
    if (!reader.is_ok()) return unparsable("attach request", "it is cut, or a text is too long");
    if (tensor_count > kTensorLimit) {
        return Status(StatusCode::kInvalidArgument, "a job of " + std::to_string(tensor_count) +
                                                        " tensors; allowed is 1 to " + std::to_string(kTensorLimit) +
                                                        "; change it and attach again");
    }
    if (tensor_count > reader.remaining_bytes() / kTensorEntryMinimumBytes) {
        return unparsable("attach request", "too short for its " + std::to_string(tensor_count) + " tensors");
    }
    request.tensors.reserve(tensor_count);
    for (std::uint64_t index = 0; index < tensor_count; ++index) {
        GRADSIEVE_ASSIGN(auto tensor, read_tensor(reader));
        request.tensors.push_back(std::move(tensor));
    }
    if (!reader.is_done()) {
        return unparsable("attach request", std::to_string(reader.remaining_bytes()) + " bytes after its end");
    }
    GRADSIEVE_TRY(check_attach_request(request));
    return request;
}

Bytes build_attach_reply(const AttachReply& reply) {
    Bytes bytes;
    ByteWriter writer(bytes);
    write_head(writer, reply.abi_version, MessageType::kAttachReply);
    write_status(writer, reply.status);
    writer.write(reply.control_bytes);
    writer.write(reply.gradient_bytes);
    writer.write(reply.result_bytes);
    writer.write_varint(reply.result_offsets.size());
    for (const auto offset : reply.result_offsets) writer.write(offset);
    writer.write_varint(reply.host_only.size());
    for (const auto index : reply.host_only) writer.write(index);
    return bytes;
}

Result<AttachReply> parse_attach_reply(ByteView bytes) {
    ByteReader reader(bytes);
    GRADSIEVE_TRY(read_head(reader, "attach reply", MessageType::kAttachReply));
    AttachReply reply;
    GRADSIEVE_TRY(read_status(reader, "attach reply", reply.status));
    reply.control_bytes = reader.read<ByteCount>();
    reply.gradient_bytes = reader.read<ByteCount>();
    reply.result_bytes = reader.read<ByteCount>();
    const auto offset_count = reader.read_varint();
    if (!reader.is_ok()) return unparsable("attach reply", "it is cut");
    if (offset_count > kTensorLimit || offset_count > reader.remaining_bytes() / kOffsetBytes)
        return unparsable("attach reply", "wrong length for its " + std::to_string(offset_count) + " offsets");
    reply.result_offsets.reserve(offset_count);
    for (std::uint64_t index = 0; index < offset_count; ++index)
        reply.result_offsets.push_back(reader.read<std::uint64_t>());
    const auto host_only_count = reader.read_varint();
    if (!reader.is_ok()) return unparsable("attach reply", "it is cut");
    if (host_only_count > kTensorLimit || host_only_count != reader.remaining_bytes() / sizeof(std::uint32_t))
        return unparsable("attach reply", "wrong length for its " + std::to_string(host_only_count) + " host tensors");
    reply.host_only.reserve(host_only_count);
    for (std::uint64_t index = 0; index < host_only_count; ++index)
        reply.host_only.push_back(reader.read<std::uint32_t>());
    if (!reader.is_done()) return unparsable("attach reply", "bytes after its end");
    return reply;
}

void Completion::set_text(std::string_view full) noexcept {
    const auto kept_bytes = std::min(full.size(), text.size() - 1);
    text.fill('\0');
    if (kept_bytes > 0) std::memcpy(text.data(), full.data(), kept_bytes);
}

}  // namespace gradsieve::shm
