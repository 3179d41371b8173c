#include "reference_clip.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::codec::reference {
namespace {

/// Squares of 256 elements, +0 beyond the tile's end, in the order that codec/stages/dither.hpp states.
double stretch_sum(const std::vector<double>& squares, std::size_t first) {
    const auto at = [&](std::size_t element) { return element < squares.size() ? squares[element] : 0.0; };
    std::vector<double> groups;
    for (std::size_t four = first; four < first + 128; four += 4) {
        double pair[4];
        for (std::size_t i = 0; i < 4; ++i) pair[i] = at(four + i) + at(four + i + 128);
        groups.push_back((pair[0] + pair[1]) + (pair[2] + pair[3]));
    }
    return folded(groups);
}

double tile_sum(const std::vector<double>& squares) {
    std::vector<double> stretches;
    for (std::size_t first = 0; first < 4096; first += 256) stretches.push_back(stretch_sum(squares, first));
    return folded(stretches);
}

/// The largest power of two of tiles, by halves, and then the rest the same way.
double sum_of_tiles(const std::vector<double>& tiles, std::size_t first, std::size_t count) {
    if (count == 0) return 0;
    if (count == 1) return tiles[first];
    std::size_t power = 1;
    while (2 * power <= count) power *= 2;
    if (power == count)
        return sum_of_tiles(tiles, first, count / 2) + sum_of_tiles(tiles, first + count / 2, count / 2);
    return sum_of_tiles(tiles, first, power) + sum_of_tiles(tiles, first + power, count - power);
}

}  // namespace

double folded(std::vector<double> terms) {
    for (std::size_t half = terms.size() / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) terms[i] += terms[i + half];
    return terms[0];
}

Input clipped(const Input& input) {
    std::vector<double> tiles;
    for (ElementCount first = 0; first < input.elements; first += 4096) {
        std::vector<double> squares;
        for (ElementCount element = first; element < std::min<ElementCount>(first + 4096, input.elements); ++element) {
            const double mean = mean_of_samples(input, element);
            squares.push_back(mean * mean);
        }
        tiles.push_back(tile_sum(squares));
    }
    const double norm = std::sqrt(sum_of_tiles(tiles, 0, tiles.size()));
    const double most = input.pipeline.front.clip * std::sqrt(static_cast<double>(input.node_count));
    Input output = input;
    output.pipeline.front.clip = 0;
    if (std::isfinite(norm) && norm > most)
        for (float& weight : output.weights) weight *= static_cast<float>(most / norm);
    return output;
}

}  // namespace gradsieve::codec::reference
