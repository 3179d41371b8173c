#include "codec/bit_stream.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace gradsieve::codec {
namespace {

TEST(BitStream, Fields_lie_lowest_bit_first) {
    std::array<std::byte, 16> memory{};
    BitPacker packer(memory.data());
    packer.put(0b101, 3);
    packer.put_unary(2);
    packer.put(0x3FF, 10);
    // 101 001 1111111111, lowest first: bits 0, 2, 5, 6 .. 15.
    EXPECT_EQ(packer.end() - memory.data(), 2);
    EXPECT_EQ(memory[0], std::byte{0xE5});
    EXPECT_EQ(memory[1], std::byte{0xFF});
}
TEST(BitStream, Long_unary_numbers_keep_all_their_zeros) {
    for (const unsigned quotient : {0U, 7U, 47U, 48U, 49U, 96U, 253U}) {
        Bytes memory(64);
        BitPacker packer(memory.data());
        packer.put_unary(quotient);
        EXPECT_EQ(packer.end() - memory.data(), static_cast<std::ptrdiff_t>(quotient / 8 + 1)) << quotient;
        BitReader reader(memory);
        unsigned zeros = 0;
        while (reader.read_bit() == 0 && reader.is_ok()) ++zeros;
        EXPECT_EQ(zeros, quotient);
    }
}
TEST(BitStream, Reader_stops_at_the_end) {
    const Bytes bytes(1, std::byte{0xFF});
    BitReader reader(bytes);
    EXPECT_EQ(reader.read(8), 0xFFU);
    EXPECT_TRUE(reader.is_ok());
    EXPECT_EQ(reader.read(3), 0U);
    EXPECT_FALSE(reader.is_ok());
    EXPECT_EQ(reader.position_bits(), 8U);
}
TEST(BitStream, Padding_is_what_lies_above_the_used_bits) {
    const Bytes bytes = {std::byte{0xFF}, std::byte{0x07}};
    EXPECT_TRUE(has_zero_padding(bytes, 8));
    EXPECT_TRUE(has_zero_padding(bytes, 11));
    EXPECT_FALSE(has_zero_padding(bytes, 10));
    EXPECT_TRUE(has_zero_padding(bytes, 16));
    EXPECT_TRUE(has_zero_padding({}, 0));
}
TEST(BitStream, Packed_fields_unpack_to_themselves) {
    EXPECT_TRUE(rc::check("fields", [](const std::vector<std::uint32_t>& values) {
        const auto width = *rc::gen::inRange(0U, 33U);
        const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
        const std::size_t size = (values.size() * width + 7) / 8;
        Bytes memory(size + 8);
        BitPacker packer(memory.data());
        for (const auto value : values) packer.put(value & mask, width);
        RC_ASSERT(packer.end() == memory.data() + size);
        memory.resize(size);
        memory.shrink_to_fit();  // so that the address sanitizer sees a read beyond the end
        std::vector<std::uint32_t> fields(values.size(), 0xAAAAAAAA);
        unpack_fields(memory, static_cast<std::uint32_t>(values.size()), width, fields.data());
        for (std::size_t i = 0; i < values.size(); ++i) RC_ASSERT(fields[i] == (values[i] & mask));
    }));
}

}  // namespace
}  // namespace gradsieve::codec
