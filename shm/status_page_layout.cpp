#include "shm/status_page_layout.hpp"

#define XXH_INLINE_ALL  // no run-time dependency for one function
#include <xxhash.h>

namespace gradsieve::shm {

Bytes build_status_header(const StatusPageHeader& header) {
    Bytes bytes;
    ByteWriter writer(bytes);
    writer.write(header.magic);
    writer.write(header.version);
    writer.write(header.pid);
    writer.write(header.start_ticks);
    writer.write(header.boot_hash);
    writer.write(header.pid_namespace);
    writer.write(header.capacity_bytes);
    bytes.resize(kStatusHeartbeatOffset);  // what changes has a cache line of its own
    writer.write(header.heartbeat_ns);
    writer.write(static_cast<std::uint32_t>(header.state));
    bytes.resize(kStatusHeaderBytes);
    return bytes;
}

StatusPageHeader parse_status_header(ByteView bytes) {
    ByteReader reader(bytes);
    StatusPageHeader header;
    header.magic = reader.read<std::uint64_t>();
    header.version = reader.read<std::uint32_t>();
    header.pid = reader.read<std::uint32_t>();
    header.start_ticks = reader.read<std::uint64_t>();
    header.boot_hash = reader.read<std::uint64_t>();
    header.pid_namespace = reader.read<std::uint64_t>();
    header.capacity_bytes = reader.read<std::uint64_t>();
    static_cast<void>(reader.read_bytes(kStatusHeartbeatOffset - reader.position_bytes()));
    header.heartbeat_ns = reader.read<std::int64_t>();
    header.state = static_cast<StatusPageState>(reader.read<std::uint32_t>());
    return header;
}

Bytes build_status_copy_head(const StatusCopyHead& head) {
    Bytes bytes;
    ByteWriter writer(bytes);
    writer.write(head.sequence);
    writer.write(head.length_bytes);
    writer.write(head.checksum);
    bytes.resize(kStatusCopyHeadBytes);
    return bytes;
}

StatusCopyHead parse_status_copy_head(ByteView bytes) {
    ByteReader reader(bytes);
    StatusCopyHead head;
    head.sequence = reader.read<std::uint64_t>();
    head.length_bytes = reader.read<std::uint64_t>();
    head.checksum = reader.read<std::uint64_t>();
    return head;
}

std::uint64_t status_checksum(std::uint64_t sequence, ByteView document) noexcept {
    return XXH3_64bits_withSeed(document.data(), document.size(), sequence);
}

}  // namespace gradsieve::shm
