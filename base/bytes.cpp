#include "base/bytes.hpp"

namespace gradsieve {

bool ByteReader::take(std::size_t count) {
    if (!ok_ || bytes_.size() - position_ < count) {
        ok_ = false;
        return false;
    }
    position_ += count;
    return true;
}

std::uint64_t ByteReader::read_varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const auto byte = read<std::uint8_t>();
        if (!ok_) return 0;
        const std::uint64_t low = byte & 0x7FU;
        if (shift == 63 && low > 1) break;
        value |= low << shift;
        if ((byte & 0x80U) == 0) return value;
    }
    ok_ = false;
    return 0;
}

ByteView ByteReader::read_bytes(std::size_t count) {
    if (!take(count)) return {};
    return bytes_.subspan(position_ - count, count);
}

std::string ByteReader::read_text(std::size_t limit_bytes) {
    const auto length = read_varint();
    if (!ok_ || length > limit_bytes) {
        ok_ = false;
        return {};
    }
    const auto view = read_bytes(length);
    return {reinterpret_cast<const char*>(view.data()), view.size()};
}

void ByteWriter::write_varint(std::uint64_t value) {
    while (value >= 0x80U) {
        out_.push_back(static_cast<std::byte>(value | 0x80U));
        value >>= 7U;
    }
    out_.push_back(static_cast<std::byte>(value));
}

void ByteWriter::write_text(std::string_view text) {
    write_varint(text.size());
    write_bytes(as_bytes(text));
}

}  // namespace gradsieve
