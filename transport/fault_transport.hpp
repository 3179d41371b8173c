// Wraps any Transport and drops, repeats, delays or corrupts frames by a seeded plan. Product code, so that a suspected
// race in the field can be provoked; off unless constructed.
#pragma once

#include "transport/transport.hpp"

#include <memory>

namespace gradsieve::transport {

struct FaultPlan {
    std::uint64_t seed = 0;
    double drop = 0;  ///< probabilities per outgoing frame, each in [0, 1]
    double repeat = 0;
    double corrupt = 0;  ///< flips one body bit
    double delay = 0;    ///< holds the frame back behind later ones
    Duration delay_by = std::chrono::milliseconds(50);
};
/// What was done so far.
struct FaultCounts {
    std::uint64_t frames = 0;  ///< asked to send
    std::uint64_t dropped = 0;
    std::uint64_t repeated = 0;
    std::uint64_t corrupted = 0;
    std::uint64_t delayed = 0;
    std::uint64_t held = 0;          ///< delayed and not let go yet
    std::uint64_t refused_late = 0;  ///< delayed or repeated frames that the inner transport then did not take
};
class FaultTransport : public Transport {
public:
    [[nodiscard]] virtual FaultCounts fault_counts() const = 0;
};

/// `inner` is taken over. Same threads as Transport. The nth frame meets the same fate for the same seed.
[[nodiscard]] std::unique_ptr<FaultTransport> make_fault_transport(std::unique_ptr<Transport> inner,
                                                                   const FaultPlan& plan, const Clock& clock);

}  // namespace gradsieve::transport
