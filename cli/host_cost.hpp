// What exchanging costs a core beside the link: measured on the loopback and in memory, with numbers that no cache
// holds, as gradients are. Any thread; takes about 0.1 s, never more than two.
#pragma once

#include "base/status.hpp"

namespace gradsieve::cli {

struct HostCost {
    double socket_seconds_per_byte = 0;  ///< sent by TCP, and one taken in
    double sum_seconds_per_byte = 0;     ///< of fp32 numbers that are added to others
};
/// Medians of several passes of one thread. Errors: kUnavailable where there is no loopback.
[[nodiscard]] Result<HostCost> measure_host_cost();

}  // namespace gradsieve::cli
