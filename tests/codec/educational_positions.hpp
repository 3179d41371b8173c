// The positions that a key stands for, as docs/payload-format.md says them: number by number.
#pragma once

#include <cstdint>
#include <vector>

namespace gradsieve::test {

// A key, and what it stands for.
class KeyedPositions {
public:
    KeyedPositions(std::uint32_t low, std::uint32_t high) : low_(low), high_(high) {}

    std::vector<std::uint64_t> subset(std::uint64_t n, std::uint64_t k) const;
    std::vector<std::uint64_t> independent(std::uint64_t n, std::uint32_t first, std::uint32_t last) const;

private:
    std::uint32_t word(std::uint32_t purpose, std::uint32_t counter, std::uint32_t place, std::uint32_t attempt) const;
    // B(...) of the page.
    std::uint64_t below(std::uint64_t bound, std::uint32_t purpose, std::uint32_t counter, std::uint32_t place) const;

    std::uint32_t low_, high_;
};

}  // namespace gradsieve::test
