// One line per codec: at which rate it trains, and how close it comes to the uncompressed loss in as many steps. A new
// stage joins with a line here and in the table of docs/codecs.md.
#pragma once

#include <span>
#include <string>

namespace gradsieve::test {

struct ConvergenceRow {
    std::string codec;
    /// Over the uncompressed loss, as a share of it: at most this; where there is a reason, at least this.
    double tolerance = 0.01;
    double rate = 1;     ///< over the uncompressed run's
    std::string reason;  ///< why it does not come as close as others; empty: it does
};
[[nodiscard]] std::span<const ConvergenceRow> convergence_rows();

}  // namespace gradsieve::test
