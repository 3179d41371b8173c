// The groups of faults that `./dev survive` injects, one function for each. Each blocks until it is done, says how far
// it is on standard error, and throws nothing but std::runtime_error, where its processes cannot be started at all.
#pragma once

#include "tests/survive/fault_row.hpp"

namespace gradsieve::survive {

/// SIGKILL of daemons and training processes at random moments; also while the last kill is still being mended.
[[nodiscard]] std::vector<FaultRow> kills(const Amount& amount, Progress& progress);
/// SIGSTOP of daemons and of training processes, which go on later.
[[nodiscard]] std::vector<FaultRow> freezes(const Amount& amount, Progress& progress);
/// A route between two nodes that drops every packet, and comes back. Needs root and iproute2.
[[nodiscard]] std::vector<FaultRow> blackholes(const Amount& amount, Progress& progress);
/// Rounds over a limited link that is kept busy. Needs root and iproute2.
[[nodiscard]] std::vector<FaultRow> saturated(const Amount& amount, Progress& progress);
/// Rounds of codecs that have every stage of the table, on the same two daemons, whose memory is watched.
[[nodiscard]] std::vector<FaultRow> rounds(const Amount& amount, Progress& progress);

}  // namespace gradsieve::survive
