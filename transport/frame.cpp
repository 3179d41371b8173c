#include "transport/frame.hpp"

#include <cstdio>

#define XXH_INLINE_ALL  // the hash's state on the stack, and no library to find at run time
#include <xxhash.h>

namespace gradsieve::transport {
namespace {

constexpr std::size_t kChecksumOffset = 28;

/// XXH3-64 over the header without its checksum, then the body.
class FrameHash {
public:
    FrameHash() { XXH3_64bits_reset(&state_); }
    void add(ByteView bytes) {
        if (!bytes.empty()) XXH3_64bits_update(&state_, bytes.data(), bytes.size());
    }
    [[nodiscard]] std::uint64_t value() const { return XXH3_64bits_digest(&state_); }

private:
    alignas(64) XXH3_state_t state_{};
};

std::string version_text(unsigned major, unsigned minor) { return std::to_string(major) + "." + std::to_string(minor); }

std::string hex_text(std::uint16_t value) {
    char text[8];
    std::snprintf(text, sizeof text, "0x%04x", static_cast<unsigned>(value));
    return text;
}

}  // namespace

std::uint64_t checksum_of(ByteView bytes) {
    FrameHash hash;
    hash.add(bytes);
    return hash.value();
}

ByteCount body_bytes(std::span<const SharedView> parts) noexcept {
    ByteCount sum = 0;
    for (const auto& part : parts) sum += part.bytes().size();
    return sum;
}

FrameHeaderBytes build_frame_header(const FrameHeader& header, std::span<const SharedView> parts) {
    const auto body = body_bytes(parts);
    GRADSIEVE_CHECK(body <= kFrameBodyBytesMax);
    Bytes bytes;
    bytes.reserve(kFrameHeaderBytes);
    ByteWriter writer(bytes);
    writer.write(kFrameMagic);
    writer.write(kFrameMajor);
    writer.write(kFrameMinor);
    writer.write(header.type);
    writer.write<std::uint16_t>(0);  // flags: none are defined
    writer.write(static_cast<std::uint32_t>(body));
    writer.write(header.epoch);
    writer.write(header.step);
    FrameHash hash;
    hash.add(bytes);
    for (const auto& part : parts) hash.add(part.bytes());
    writer.write(hash.value());
    FrameHeaderBytes result;
    GRADSIEVE_CHECK(bytes.size() == result.size());
    std::memcpy(result.data(), bytes.data(), result.size());
    return result;
}

Result<FrameHeader> parse_frame(ByteView header, ByteView body, ByteCount limit_bytes) {
    if (header.size() < kFrameHeaderBytes) {
        return Status(StatusCode::kCorrupt, "message of " + std::to_string(header.size()) +
                                                " bytes: a frame has at least " + std::to_string(kFrameHeaderBytes) +
                                                "; is the sender a gradsieve node?");
    }
    ByteReader reader(header.first(kFrameHeaderBytes));
    const auto magic = reader.read<std::uint16_t>();
    const auto major = reader.read<std::uint8_t>();
    const auto minor = reader.read<std::uint8_t>();
    FrameHeader parsed;
    parsed.type = reader.read<std::uint16_t>();
    static_cast<void>(reader.read<std::uint16_t>());  // flags: a reader ignores what it does not know
    const auto length = reader.read<std::uint32_t>();
    parsed.epoch = reader.read<std::uint64_t>();
    parsed.step = reader.read<std::uint64_t>();
    const auto checksum = reader.read<std::uint64_t>();
    if (magic != kFrameMagic) {
        return Status(StatusCode::kCorrupt, "frame magic " + hex_text(magic) + ": expected " + hex_text(kFrameMagic) +
                                                "; is the sender a gradsieve node?");
    }
    if (major != kFrameMajor) {
        return Status(StatusCode::kVersionMismatch,
                      "frame format " + version_text(major, minor) + " from the sender: this node reads " +
                          version_text(kFrameMajor, kFrameMinor) + "; install the same release on all nodes");
    }
    if (body.size() > limit_bytes) {
        return Status(StatusCode::kResourceExhausted, "frame body of " + std::to_string(body.size()) +
                                                          " bytes: the limit is " + std::to_string(limit_bytes) +
                                                          "; give all nodes the same frame limit");
    }
    if (length != body.size()) {
        return Status(StatusCode::kCorrupt, "frame body of " + std::to_string(body.size()) +
                                                " bytes: its header says " + std::to_string(length) +
                                                "; nothing was taken from it");
    }
    FrameHash hash;
    hash.add(header.first(kChecksumOffset));
    hash.add(body);
    if (hash.value() != checksum) {
        return Status(StatusCode::kCorrupt,
                      "frame of type " + std::to_string(parsed.type) + " and " + std::to_string(body.size()) +
                          " bytes: its checksum differs, it was damaged on the way; nothing was taken from it");
    }
    return parsed;
}

}  // namespace gradsieve::transport
