#include "tests/codec/educational_positions.hpp"

#include "tests/codec/educational_decoder.hpp"

#include <algorithm>
#include <set>

namespace gradsieve::test {
std::uint32_t KeyedPositions::word(std::uint32_t purpose, std::uint32_t counter, std::uint32_t place,
                                   std::uint32_t attempt) const {
    return educational_philox({counter, purpose * 16777216U, attempt, 0}, low_, high_)[place];
}

std::uint64_t KeyedPositions::below(std::uint64_t bound, std::uint32_t purpose, std::uint32_t counter,
                                    std::uint32_t place) const {
    const std::uint64_t range = 4294967296ULL;
    for (std::uint32_t attempt = 0;; ++attempt) {
        const std::uint64_t product = word(purpose, counter, place, attempt) * bound;
        if (product % range >= range % bound) return product / range;
    }
}

std::vector<std::uint64_t> KeyedPositions::subset(std::uint64_t n, std::uint64_t k) const {
    std::vector<std::uint64_t> found;
    const std::uint64_t u = below(n, 3, 0, 0);
    for (std::uint32_t tile = 0; 4096ULL * tile < n; ++tile) {
        const std::uint64_t a = 4096ULL * tile;
        const std::uint64_t b = std::min<std::uint64_t>(a + 4096, n);
        const std::uint64_t m = b - a;
        const std::uint64_t q = (u + k * b) / n - (u + k * a) / n;
        const std::uint64_t f = 2 * q > m ? m - q : q;
        std::set<std::uint64_t> drawn;
        for (std::uint32_t j = 0; j < f; ++j) {
            const std::uint64_t x = below(m - f + j + 1, 2, 512 * tile + j / 4, j % 4);
            drawn.insert(drawn.count(x) != 0 ? m - f + j : x);
        }
        for (std::uint64_t i = 0; i < m; ++i)
            if ((drawn.count(i) != 0) == (f == q)) found.push_back(a + i);
    }
    return found;
}

std::vector<std::uint64_t> KeyedPositions::independent(std::uint64_t n, std::uint32_t first, std::uint32_t last) const {
    std::vector<std::uint64_t> found;
    const std::int64_t tiles = static_cast<std::int64_t>((n + 4095) / 4096);
    for (std::uint32_t i = 0; i < n; ++i) {
        const std::int64_t tile = i / 4096;
        const std::int64_t steps = tiles > 1 ? (std::int64_t{last} - first) * tile / (tiles - 1) : 0;
        if (word(4, i / 4, i % 4, 0) <= first + steps) found.push_back(i);
    }
    return found;
}

}  // namespace gradsieve::test
