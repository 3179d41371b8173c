// Two nodes of two ranks each, for tests of how a job starts.
#pragma once

#include "tests/exchange/sim.hpp"

namespace gradsieve::exchange {

inline SimOptions two_nodes(std::uint32_t groups = 1) {
    return {.ranks = {{0, 1}, {2, 3}}, .spec = make_spec(4, 2 * groups, groups)};
}
/// What the node was told to start with; null: nothing.
inline const StartJob* start_of(Sim& sim, std::size_t node) {
    for (const auto& action : sim.node(node).log)
        if (const auto* start = std::get_if<StartJob>(&action)) return start;
    return nullptr;
}

}  // namespace gradsieve::exchange
