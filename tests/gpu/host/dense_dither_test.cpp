// How the dense pass adds up a tile's squares, in fp64 and to the last bit: a scale, which is fp32, seldom shows it. On
// the emulated card.
#include "codec/cuda/dense_dither.cuh"

#include "codec/cuda/launch.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gradsieve::codec::cuda {
namespace {

struct BlockShared {
    DitherShared dither;
    Gate told;
};
constexpr unsigned kBlockThreads = kPassThreads + 32;

/// A block that does with one tile what the dense pass does, up to the sum of squares.
void add_up(const float* values, double* ret_sums) {
    auto& shared = *reinterpret_cast<BlockShared*>(dynamic_shared());
    if (threadIdx.x == 0) open_gate(shared.told, kPassThreads);
    __syncthreads();
    if (threadIdx.x < kPassThreads) {
        TileWork work{};
        work.plan.needs_squares = 1;
        Vector r[kThreadVectors];
        for (unsigned j = 0; j < kThreadVectors; ++j)
            r[j] = staged_floats(reinterpret_cast<const std::byte*>(values), own_vector(j));
        tell_measures(TileStage{work, nullptr, shared.told, 0, 0}, r, 0, shared.dither);
        return;
    }
    await(shared.told, 0);
    ret_sums[threadIdx.x % 32] = fold_squares(shared.dither.lane_squares);
}

/// The first of `sums` sums, of which each takes the one half of them away until one is left.
double fold(std::vector<double> sums) {
    for (std::size_t half = sums.size() / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    return sums[0];
}
/// The order that codec/stages/dither.hpp states, word for word.
double sum_in_order(const std::vector<float>& values) {
    std::vector<double> stretches;
    for (std::size_t first = 0; first < values.size(); first += kSquareStretch) {
        std::vector<double> sums(128);
        for (std::size_t j = 0; j < 128; ++j) {
            const double one = values[first + j];
            const double other = values[first + j + 128];
            sums[j] = one * one + other * other;
        }
        std::vector<double> fours(32);
        for (std::size_t i = 0; i < 32; ++i)
            fours[i] = (sums[4 * i] + sums[4 * i + 1]) + (sums[4 * i + 2] + sums[4 * i + 3]);
        stretches.push_back(fold(fours));
    }
    return fold(stretches);
}

TEST(DenseDither, Squares_add_up_in_the_order_of_the_format) {
    constexpr unsigned kSeed = 20261128;
    std::mt19937 random(kSeed);
    std::normal_distribution<float> normal;
    unsigned in_another_order = 0;
    for (unsigned trial = 0; trial < 50; ++trial) {
        std::vector<float> values(kTile);
        double plain = 0;
        for (float& value : values) {
            value = normal(random);
            plain += static_cast<double>(value) * value;
        }
        std::vector<double> sums(32, -1.0);
        const float* from = values.data();
        double* to = sums.data();
        ASSERT_EQ(launch(&add_up, {1, kBlockThreads, 0}, nullptr, from, to), cudaSuccess);
        ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
        const double expected = sum_in_order(values);
        for (const double sum : sums) EXPECT_EQ(sum, expected) << "seed " << kSeed << ", trial " << trial;
        if (plain != expected) ++in_another_order;
    }
    EXPECT_GT(in_another_order, 10U);  // else the order would not show
}

}  // namespace
}  // namespace gradsieve::codec::cuda
