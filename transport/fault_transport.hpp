// Wraps any Transport and drops, repeats, delays or corrupts frames by a seeded plan. Product code, so that a suspected
// race in the field can be provoked; off unless constructed.
#pragma once

#include "transport/transport.hpp"

#include <memory>

namespace gradsieve::transport {

struct FaultPlan {
    std::uint64_t seed = 0;
    double drop = 0;       ///< probabilities per outgoing frame, each in [0, 1]
    double repeat = 0;
    double corrupt = 0;    ///< flips one body bit
    double delay = 0;      ///< holds the frame back behind later ones
    Duration delay_by = std::chrono::milliseconds(50);
};

/// `inner` is taken over. Same threads as Transport.
[[nodiscard]] std::unique_ptr<Transport> make_fault_transport(std::unique_ptr<Transport> inner, const FaultPlan& plan, const Clock& clock);

}  // namespace gradsieve::transport
