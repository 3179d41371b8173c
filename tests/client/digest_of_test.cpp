#include "gradsieve/gradsieve.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace gradsieve {
namespace {

std::uint64_t digest_of_text(std::string_view text) {
    return digest_of(std::as_bytes(std::span(text.data(), text.size())));
}

// The published vectors of XXH3 with 64 bits and seed 0 (xxHash's specification and its tests).
TEST(Digest, Empty_and_short_inputs_match_the_published_values) {
    EXPECT_EQ(digest_of({}), 0x2D06800538D394C2ULL);
    EXPECT_EQ(digest_of_text("abc"), 0x78AF5F94892F3950ULL);
}
TEST(Digest, One_flipped_bit_anywhere_changes_it) {
    std::array<float, 1000> values{};
    values.fill(0.25F);
    const auto before = digest_of(std::as_bytes(std::span(values)));
    for (const std::size_t index : {0U, 499U, 999U}) {
        auto changed = values;
        std::uint32_t bits = 0;
        std::memcpy(&bits, &changed[index], sizeof(bits));
        bits ^= 1U;
        std::memcpy(&changed[index], &bits, sizeof(bits));
        EXPECT_NE(digest_of(std::as_bytes(std::span(changed))), before) << index;
    }
}
TEST(Version, Is_the_projects) { EXPECT_EQ(version(), GRADSIEVE_VERSION); }

}  // namespace
}  // namespace gradsieve
