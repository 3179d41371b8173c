// Bits in little-endian bytes: bit i of a stream is bit i % 8 of byte i / 8. The packer needs eight writable bytes
// beyond its end; the reader never reads past its span. One thread; the caller owns the memory.
#pragma once

#include "base/bytes.hpp"

namespace gradsieve::codec {

/// Writes fields one after the other into zeroed or unwritten memory; what follows its end is overwritten with zeros
/// for up to eight bytes, so sections are packed in ascending order.
class BitPacker {
public:
    explicit BitPacker(std::byte* out) noexcept : out_(out) {}

    /// The low `width` bits of `value`; width <= 56, higher bits of `value` clear.
    void put(std::uint64_t value, unsigned width) noexcept {
        pending_ |= value << fill_;
        std::memcpy(out_, &pending_, sizeof(pending_));
        fill_ += width;
        const unsigned whole_bytes = fill_ / 8;
        out_ += whole_bytes;
        pending_ >>= 8 * whole_bytes;
        fill_ %= 8;
    }
    /// `quotient` zeros, then a one.
    void put_unary(std::uint64_t quotient) noexcept {
        for (; quotient >= 48; quotient -= 48) put(0, 48);
        put(std::uint64_t{1} << quotient, static_cast<unsigned>(quotient) + 1);
    }
    /// First byte after the padded stream.
    [[nodiscard]] std::byte* end() const noexcept { return out_ + (fill_ > 0 ? 1 : 0); }

private:
    std::byte* out_;
    std::uint64_t pending_ = 0;
    unsigned fill_ = 0;
};

/// Field by field, for short streams: after the end `is_ok()` is false and every value is zero.
class BitReader {
public:
    explicit BitReader(ByteView bytes) noexcept : bytes_(bytes) {}

    [[nodiscard]] unsigned read_bit() noexcept {
        if (position_ / 8 >= bytes_.size()) {
            is_ok_ = false;
            return 0;
        }
        const unsigned bit = (static_cast<unsigned>(bytes_[position_ / 8]) >> (position_ % 8)) & 1U;
        ++position_;
        return bit;
    }
    [[nodiscard]] std::uint32_t read(unsigned width) noexcept {
        std::uint32_t value = 0;
        for (unsigned i = 0; i < width; ++i) value |= static_cast<std::uint32_t>(read_bit()) << i;
        return value;
    }
    [[nodiscard]] bool is_ok() const noexcept { return is_ok_; }
    [[nodiscard]] std::size_t position_bits() const noexcept { return position_; }

private:
    ByteView bytes_;
    std::size_t position_ = 0;
    bool is_ok_ = true;
};

/// Whether the bits behind the first `used_bits` of the last byte are zero. `bytes` holds at least those bits.
[[nodiscard]] inline bool has_zero_padding(ByteView bytes, std::uint64_t used_bits) noexcept {
    if (used_bits % 8 == 0) return true;
    return (static_cast<unsigned>(bytes[used_bits / 8]) >> (used_bits % 8)) == 0;
}

/// Reads `count` fields of `width` <= 32 bits into `ret_fields`. `bytes` holds at least count * width bits.
template <typename Field>
void unpack_fields(ByteView bytes, std::uint32_t count, unsigned width, Field* ret_fields) noexcept {
    const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
    for (std::uint32_t field = 0; field < count; ++field) {
        const std::uint64_t bit = std::uint64_t{field} * width;
        const std::size_t byte = bit / 8;
        std::uint64_t word = 0;
        if (byte + sizeof(word) <= bytes.size())
            std::memcpy(&word, bytes.data() + byte, sizeof(word));
        else if (byte < bytes.size())
            std::memcpy(&word, bytes.data() + byte, bytes.size() - byte);
        ret_fields[field] = static_cast<Field>((word >> (bit % 8)) & mask);
    }
}

}  // namespace gradsieve::codec
