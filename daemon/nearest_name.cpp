#include "daemon/nearest_name.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace gradsieve::daemon {

namespace {

constexpr std::size_t kLongestName = 64;  // nobody means a key that long; keeps hostile input cheap

/// Levenshtein's distance, one row at a time.
std::size_t edit_distance(std::string_view left, std::string_view right) {
    std::vector<std::size_t> row(right.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t at_left = 1; at_left <= left.size(); ++at_left) {
        std::size_t diagonal = row[0];
        row[0] = at_left;
        for (std::size_t at_right = 1; at_right <= right.size(); ++at_right) {
            const std::size_t replaced = diagonal + (left[at_left - 1] == right[at_right - 1] ? 0 : 1);
            diagonal = row[at_right];
            row[at_right] = std::min({replaced, row[at_right] + 1, row[at_right - 1] + 1});
        }
    }
    return row.back();
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
    if (name.size() > kLongestName) return "";
    std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
    std::string best;
    for (const auto& candidate : candidates) {
        const auto distance = edit_distance(name, candidate);
        if (distance >= best_distance || distance >= candidate.size()) continue;
        best_distance = distance;
        best = candidate;
    }
    return best;
}

}  // namespace gradsieve::daemon
