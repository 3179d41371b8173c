#include "base/bytes.hpp"

#include <gtest/gtest.h>

namespace gradsieve {
namespace {

TEST(Bytes, Written_values_read_back_and_nothing_is_left) {
    Bytes bytes;
    ByteWriter writer(bytes);
    writer.write<std::uint32_t>(0x01020304U);
    writer.write_varint(300);
    writer.write_varint(UINT64_MAX);
    writer.write_text("tensor");
    EXPECT_EQ(bytes[0], std::byte{4}) << "little-endian";
    ByteReader reader(bytes);
    EXPECT_EQ(reader.read<std::uint32_t>(), 0x01020304U);
    EXPECT_EQ(reader.read_varint(), 300U);
    EXPECT_EQ(reader.read_varint(), UINT64_MAX);
    EXPECT_EQ(reader.read_text(16), "tensor");
    EXPECT_TRUE(reader.is_done());
}
TEST(Bytes, Short_read_fails_once_and_for_all) {
    const Bytes bytes(3);
    ByteReader reader(bytes);
    EXPECT_EQ(reader.read<std::uint32_t>(), 0U);
    EXPECT_FALSE(reader.is_ok());
    EXPECT_EQ(reader.read<std::uint8_t>(), 0U);
    EXPECT_FALSE(reader.is_ok());
}
TEST(Bytes, Varint_of_more_than_64_bits_is_refused) {
    const Bytes bytes(11, std::byte{0xFF});
    ByteReader reader(bytes);
    EXPECT_EQ(reader.read_varint(), 0U);
    EXPECT_FALSE(reader.is_ok());
}
TEST(Bytes, Text_longer_than_the_limit_is_refused) {
    Bytes bytes;
    ByteWriter(bytes).write_text("longer than four");
    ByteReader reader(bytes);
    EXPECT_EQ(reader.read_text(4), "");
    EXPECT_FALSE(reader.is_ok());
}
TEST(Bytes, Checked_arithmetic_notices_overflow) {
    EXPECT_EQ(checked_multiply(6, 7), 42U);
    EXPECT_FALSE(checked_multiply(UINT64_MAX, 2));
    EXPECT_FALSE(checked_add(UINT64_MAX, 1));
    EXPECT_EQ(checked_align(4097, 4096), 8192U);
    EXPECT_FALSE(checked_align(UINT64_MAX - 3, 4096));
}

}  // namespace
}  // namespace gradsieve
