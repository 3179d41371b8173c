// Norm of a residual for status: fp64 in a fixed tree, so that the figure is the same on every host.
#include "codec/encoder.hpp"
#include "codec/tile_sum_tree.hpp"

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
    TileSumTree sums;
    while (!residual.empty()) {
        const std::size_t size = std::min<std::size_t>(residual.size(), kTileElements);
        sums.add(tile_square_sum(residual.first(size)));
        residual = residual.subspan(size);
    }
    return sums.total();
}

}  // namespace gradsieve::codec
