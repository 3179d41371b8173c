// Rotations as docs/payload-format.md says them: element by element, stage by stage.
#include "tests/codec/educational_decoder.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::test {

// From its paper.
std::array<std::uint32_t, 4> educational_philox(std::array<std::uint32_t, 4> x, std::uint32_t key0,
                                                std::uint32_t key1) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = x[0] * std::uint64_t{0xD2511F53};
        const std::uint64_t b = x[2] * std::uint64_t{0xCD9E8D57};
        x = {static_cast<std::uint32_t>(b >> 32U) ^ x[1] ^ key0, static_cast<std::uint32_t>(b),
             static_cast<std::uint32_t>(a >> 32U) ^ x[3] ^ key1, static_cast<std::uint32_t>(a)};
        key0 += 0x9E3779B9U;
        key1 += 0xBB67AE85U;
    }
    return x;
}

void educational_rotate_back(std::uint32_t key_low, std::uint32_t key_high, EducationalElements& inout_elements) {
    const std::size_t n = inout_elements.size();
    std::size_t first = 0;
    while (first < n) {
        const std::size_t left = std::min(n, first / 4096 * 4096 + 4096) - first;
        std::size_t order = 4096;
        while (order > left) order /= 4;
        std::vector<float> z;
        for (std::size_t i = 0; i < order; ++i)
            z.push_back(inout_elements[first + i].second / static_cast<float>(std::lround(std::sqrt(order))));
        for (std::size_t h = 1; h < order; h *= 2)
            for (std::size_t i = 0; i < order; ++i) {
                if (i / h % 2 == 1) continue;
                const float sum = z[i] + z[i + h];
                z[i + h] = z[i] - z[i + h];
                z[i] = sum;
            }
        for (std::size_t i = 0; i < order; ++i) {
            const auto at = static_cast<std::uint32_t>(first + i);
            const std::uint32_t word =
                educational_philox({at / 128, 6U * 16777216U, 0, 0}, key_low, key_high)[at / 32 % 4];
            const float value = (word >> (at % 32)) % 2 == 1 ? -z[i] : z[i];
            inout_elements[at].second = value == 0 ? 0.0F : value;
        }
        first += order;
    }
}

}  // namespace gradsieve::test
