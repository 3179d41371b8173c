#include "codec/tile_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace gradsieve::codec {
namespace {

TEST(TileTable, Tiles_without_elements_are_not_in_it) {
    TileTable tiles;
    find_tiles(std::vector<std::uint32_t>{0, 4095, 8192, 8193, 1048575}, tiles);
    ASSERT_EQ(tiles.count, 3U);
    EXPECT_EQ(tiles.ends[0], 2U);
    EXPECT_EQ(tiles.ends[1], 4U);
    EXPECT_EQ(tiles.ends[2], 5U);
}
TEST(TileTable, Equal_exponents_need_no_section) {
    TileTable tiles;
    tiles.count = 256;
    tiles.exponents.fill(120);
    const ExponentPlan plan = plan_exponents(tiles, 120);
    EXPECT_EQ(plan.parameter, kNoTileExponents);
    EXPECT_EQ(plan.bits, 0U);
    std::byte nothing{};
    EXPECT_EQ(build_exponents(tiles, plan, &nothing), &nothing);
}
TEST(TileTable, Exponents_read_back_with_the_fewest_bits) {
    EXPECT_TRUE(rc::check("exponents", [] {
        TileTable tiles;
        tiles.count = *rc::gen::inRange(1U, 257U);
        const auto spread = *rc::gen::element(1, 2, 5, 253);
        int base = 1;
        for (std::uint32_t tile = 0; tile < tiles.count; ++tile) {
            tiles.exponents[tile] = static_cast<std::uint8_t>(254 - *rc::gen::inRange(0, spread + 1));
            base = std::max<int>(base, tiles.exponents[tile]);
        }
        const ExponentPlan plan = plan_exponents(tiles, static_cast<std::uint8_t>(base));
        Bytes section(plan.bits / 8 + 16);
        const std::byte* end = build_exponents(tiles, plan, section.data());
        RC_ASSERT(static_cast<std::uint64_t>(end - section.data()) == bytes_of_bits(plan.bits));
        section.resize(bytes_of_bits(plan.bits));
        section.shrink_to_fit();
        if (plan.parameter != kNoTileExponents)
            for (unsigned other = 0; other < kNoTileExponents; ++other) {
                std::uint64_t bits = 0;
                for (std::uint32_t tile = 0; tile < tiles.count; ++tile)
                    bits += 1 + other + (static_cast<unsigned>(base - tiles.exponents[tile]) >> other);
                RC_ASSERT(plan.bits <= bits);
            }
        PayloadHeader header;
        header.quantizer = QuantizerKind::kPow2;
        header.base_exponent = plan.base;
        header.exponent_parameter = plan.parameter;
        TileTable read;
        read.count = tiles.count;
        std::size_t used_bytes = 99;
        RC_ASSERT(parse_exponents(header, section, read, used_bytes).is_ok());
        RC_ASSERT(used_bytes == section.size());
        for (std::uint32_t tile = 0; tile < tiles.count; ++tile)
            RC_ASSERT(read.exponents[tile] == tiles.exponents[tile]);
    }));
}
TEST(TileTable, Bad_sections_are_refused_by_name) {
    PayloadHeader header;
    header.quantizer = QuantizerKind::kPow2;
    header.base_exponent = 3;
    TileTable tiles;
    tiles.count = 2;
    std::size_t used_bytes = 0;
    const auto text = [&](unsigned byte) {
        return parse_exponents(header, Bytes(1, static_cast<std::byte>(byte)), tiles, used_bytes).text();
    };
    EXPECT_EQ(text(0b11), "");
    EXPECT_THAT(text(0b10001), ::testing::HasSubstr("distance 3: allowed is less than the base exponent, 3"));
    EXPECT_THAT(text(0b111), ::testing::HasSubstr("set padding"));
    EXPECT_THAT(parse_exponents(header, {}, tiles, used_bytes).text(), ::testing::HasSubstr("cut off"));
}

}  // namespace
}  // namespace gradsieve::codec
