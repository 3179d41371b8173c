#include "codec/digest.hpp"

#include <gtest/gtest.h>

#include <set>

namespace gradsieve::codec {
namespace {

// The finalizer written out from docs/payload-format.md.
std::uint64_t mix_by_the_page(std::uint64_t x) {
    x ^= x >> 30U;
    x *= 0xBF58476D1CE4E5B9ULL;
    x ^= x >> 27U;
    x *= 0x94D049BB133111EBULL;
    return x ^ (x >> 31U);
}

TEST(Digest, Element_is_mixed_as_the_page_says) {
    const std::uint64_t key = mix_by_the_page(mix_by_the_page(mix_by_the_page(5) + 6) + 7);
    EXPECT_EQ(digest_key(5, 6, 7), key);
    EXPECT_EQ(element_digest(key, 9, 0x3F800000), mix_by_the_page(key + ((9ULL << 32U) | 0x3F800000)));
}
TEST(Digest, Tensor_step_chunk_index_and_bits_all_count) {
    std::set<std::uint64_t> seen;
    for (unsigned which = 0; which < 6; ++which) {
        const auto key = digest_key(which == 1 ? 2 : 1, which == 2 ? 2 : 1, which == 3 ? 2 : 1);
        seen.insert(element_digest(key, which == 4 ? 2 : 1, which == 5 ? 2 : 1));
    }
    EXPECT_EQ(seen.size(), 6U);
}

}  // namespace
}  // namespace gradsieve::codec
