// Little-endian reading and writing of bytes that leave the process, and checked size arithmetic. The reader never
// reads past its span: after the first short read `is_ok()` is false and every further value is zero. Any thread; the
// caller owns the memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gradsieve {

static_assert(std::endian::native == std::endian::little, "supported hosts are little-endian");

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

class ByteReader {
public:
    explicit ByteReader(ByteView bytes) : bytes_(bytes) {}

    /// Next fixed-width integer or float; zero once the bytes ran out.
    template <typename T>
    [[nodiscard]] T read() {
        static_assert(std::is_arithmetic_v<T>);
        T value{};
        if (!take(sizeof(T))) return value;
        std::memcpy(&value, bytes_.data() + position_ - sizeof(T), sizeof(T));
        return value;
    }
    /// Unsigned LEB128 of at most 10 bytes.
    [[nodiscard]] std::uint64_t read_varint();
    /// The next `count` bytes, a view into the input; empty once they ran out.
    [[nodiscard]] ByteView read_bytes(std::size_t count);
    /// Varint length, then that many bytes; longer than `limit_bytes` is a failed read.
    [[nodiscard]] std::string read_text(std::size_t limit_bytes);

    [[nodiscard]] bool is_ok() const noexcept { return ok_; }
    /// True if everything was read and nothing is left.
    [[nodiscard]] bool is_done() const noexcept { return ok_ && position_ == bytes_.size(); }
    [[nodiscard]] std::size_t remaining_bytes() const noexcept { return bytes_.size() - position_; }
    [[nodiscard]] std::size_t position_bytes() const noexcept { return position_; }

private:
    bool take(std::size_t count);

    ByteView bytes_;
    std::size_t position_ = 0;
    bool ok_ = true;
};

class ByteWriter {
public:
    explicit ByteWriter(Bytes& out) : out_(out) {}

    template <typename T>
    void write(T value) {
        static_assert(std::is_arithmetic_v<T>);
        const auto position = out_.size();
        out_.resize(position + sizeof(T));
        std::memcpy(out_.data() + position, &value, sizeof(T));
    }
    void write_varint(std::uint64_t value);
    void write_bytes(ByteView bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
    void write_text(std::string_view text);

private:
    Bytes& out_;
};

[[nodiscard]] inline ByteView as_bytes(std::string_view text) noexcept {
    return std::as_bytes(std::span(text.data(), text.size()));
}

/// a * b and a + b, or nothing if the result does not fit: for sizes that come from outside.
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) noexcept {
    std::uint64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
    return product;
}
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) noexcept {
    std::uint64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
    return sum;
}
/// `value` rounded up to a multiple of `alignment` (a power of two); nothing on overflow.
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_align(std::uint64_t value,
                                                                   std::uint64_t alignment) noexcept {
    const auto sum = checked_add(value, alignment - 1);
    if (!sum) return std::nullopt;
    return *sum & ~(alignment - 1);
}

}  // namespace gradsieve
