#include "codec/encoder.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace gradsieve::codec {
namespace {

/// The same tree by its definition: recursion over tiles, and a sum in a tile lane by lane.
double tile_sum(const std::vector<float>& values, std::size_t first, std::size_t end) {
    double lanes[32] = {};
    for (std::size_t element = first; element < end; ++element) {
        lanes[(element - first) % 32] += double{values[element]} * values[element];
    }
    for (const int half : {16, 8, 4, 2, 1}) {
        for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    return lanes[0];
}
double tree_sum(const std::vector<float>& values, std::size_t first_tile, std::size_t tiles) {
    if (tiles == 1) return tile_sum(values, first_tile * 4096, std::min(values.size(), (first_tile + 1) * 4096));
    std::size_t left = 1;
    while (left * 2 < tiles) left *= 2;
    return tree_sum(values, first_tile, left) + tree_sum(values, first_tile + left, tiles - left);
}

TEST(EncoderNorm, Equals_the_tree_bit_for_bit) {
    std::mt19937_64 random(6);
    std::normal_distribution<float> normal;
    for (const std::size_t elements : {1U, 31U, 33U, 4096U, 4097U, 5U * 4096U, 7U * 4096U + 100U, 16U * 4096U}) {
        std::vector<float> values(elements);
        for (float& value : values) value = normal(random);
        const std::size_t tiles = (elements + 4095) / 4096;
        EXPECT_EQ(residual_square_sum(values), tree_sum(values, 0, tiles)) << elements;
    }
}
TEST(EncoderNorm, Nothing_is_zero_and_large_values_do_not_overflow) {
    EXPECT_EQ(residual_square_sum({}), 0.0);
    const std::vector<float> large(3, 1e38F);
    EXPECT_NEAR(residual_square_sum(large) / 3e76, 1.0, 1e-6);
}

}  // namespace
}  // namespace gradsieve::codec
