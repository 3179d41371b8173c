// Joins one sum per tile in a tree that depends on the number of tiles alone, so that a total is the same on every host
// and device. One thread; plain value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gradsieve::codec {

class TileSumTree {
public:
    /// The next tile's sum. Tiles are joined like the digits of a binary counter: level l holds the sum of 2^l tiles.
    void add(double sum) noexcept {
        std::size_t level = 0;
        for (; ((tiles_ >> level) & 1U) != 0; ++level) sum = levels_[level] + sum;
        levels_[level] = sum;
        ++tiles_;
    }
    [[nodiscard]] double total() const noexcept {
        double total = 0;
        for (std::size_t level = 0; level < levels_.size(); ++level)
            if (((tiles_ >> level) & 1U) != 0) total = levels_[level] + total;
        return total;
    }

private:
    std::array<double, 64> levels_{};
    std::uint64_t tiles_ = 0;
};

}  // namespace gradsieve::codec
