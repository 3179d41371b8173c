// One line per codec: at which rate it trains, and how close it comes to the uncompressed loss in as many steps. A new
// stage joins with a line here and in the table of docs/codecs.md.
#pragma once

#include <span>
#include <string>

namespace gradsieve::test {

struct ConvergenceRow {
    std::string codec;
    double tolerance = 0.01;  ///< most that its loss is over the uncompressed one, as a share of it
    double rate = 1;          ///< over the uncompressed run's
    std::string reason = {};  ///< why no closer; empty: it is at least as close as others
    double least = 0;         ///< where it does not come close: its loss is over the uncompressed one by this share
};
[[nodiscard]] std::span<const ConvergenceRow> convergence_rows();

}  // namespace gradsieve::test
