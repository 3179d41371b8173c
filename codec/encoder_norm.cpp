// Norm of a residual for status: fp64 in a fixed tree, so that the figure is the same on every host.
#include "codec/encoder.hpp"

#include <algorithm>
#include <array>

namespace gradsieve::codec {
namespace {

constexpr std::size_t kLanes = 32;

/// One tile: 32 strided lanes in order, then lane i + 16 onto lane i, i + 8, 4, 2, 1.
double tile_square_sum(std::span<const float> tile) {
    std::array<double, kLanes> lanes{};
    std::size_t element = 0;
    for (; element + kLanes <= tile.size(); element += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            const double value = tile[element + lane];
            lanes[lane] += value * value;
        }
    }
    for (std::size_t lane = 0; element < tile.size(); ++element, ++lane) {
        const double value = tile[element];
        lanes[lane] += value * value;
    }
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
        for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    return lanes[0];
}

}  // namespace

double residual_square_sum(std::span<const float> residual) noexcept {
    // Tiles are joined like the digits of a binary counter: level l holds the sum of 2^l tiles, so the tree depends on
    // the number of tiles alone.
    std::array<double, 64> levels{};
    std::uint64_t tiles = 0;
    while (!residual.empty()) {
        const std::size_t size = std::min<std::size_t>(residual.size(), kTileElements);
        double sum = tile_square_sum(residual.first(size));
        std::size_t level = 0;
        for (; ((tiles >> level) & 1U) != 0; ++level) sum = levels[level] + sum;
        levels[level] = sum;
        ++tiles;
        residual = residual.subspan(size);
    }
    double total = 0;
    for (std::size_t level = 0; level < levels.size(); ++level) {
        if (((tiles >> level) & 1U) != 0) total = levels[level] + total;
    }
    return total;
}

}  // namespace gradsieve::codec
