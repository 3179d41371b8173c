#include "base/id.hpp"

#include <gtest/gtest.h>

namespace gradsieve {
namespace {

// Pinned: these numbers are on the wire and in state files.
TEST(Id, Mix64_matches_splitmix64_known_answers) {
    EXPECT_EQ(mix64(0x9E3779B97F4A7C15ULL), 0xE220A8397B1DCDAFULL);
    EXPECT_EQ(mix64(0), 0U);
}
TEST(Id, Tensor_id_depends_on_every_character) {
    EXPECT_NE(tensor_id("layer1.weight"), tensor_id("layer2.weight"));
    EXPECT_EQ(tensor_id("a"), mix64(0xAF63DC4C8601EC8CULL)) << "FNV-1a of one letter, published vector";
}

}  // namespace
}  // namespace gradsieve
