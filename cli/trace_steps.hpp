// A trace's events put together: what each tensor did in each step, and the phases that its time there falls into.
// Pure; any thread.
#pragma once

#include "shm/trace_message.hpp"

#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace gradsieve::cli {

/// In the order in which a tensor goes through them; none overlaps another.
enum class Phase : std::uint8_t {
    kWaitForRanks = 0,  ///< from the first sign of the step to the last local rank's hand-in
    kWaitForAcks = 1,   ///< until every node is done with the step before
    kQueueToEncode = 2,
    kEncode = 3,
    kWaitForPeers = 4,  ///< until the last node's payload is here
    kQueueToDecode = 5,
    kDecode = 6,
    kHandBack = 7,
    kNoAverage = 8,  ///< instead of the last three, where a policy leaves the average out
};
inline constexpr std::size_t kPhaseCount = 9;
[[nodiscard]] std::string_view phase_name(Phase phase) noexcept;

struct PhaseSpan {
    Phase phase = Phase::kWaitForRanks;
    std::int64_t begin_ns = 0, end_ns = 0;
    bool is_cut = false;  ///< the step failed, or the trace ended, before the phase did
};
/// A payload on its way to or from one node.
struct Passage {
    std::int64_t begin_ns = 0, end_ns = 0;
    bool is_cut = false;
};
struct TracedTensor {
    std::uint32_t tensor = 0;
    std::vector<std::pair<Rank, std::int64_t>> hand_ins = {};  ///< by time
    std::vector<PhaseSpan> phases = {};                        ///< each begins where the one before it ends
    std::map<PeerIndex, Passage> sends = {}, receives = {};
    ByteCount payload_bytes = 0;
    std::vector<Rank> missing_ranks = {};
    std::vector<PeerIndex> missing_peers = {};
    std::optional<PeerIndex> last_peer = {};  ///< whose payload came last
    [[nodiscard]] std::int64_t begin_ns() const { return phases.front().begin_ns; }
    [[nodiscard]] std::int64_t end_ns() const { return phases.back().end_ns; }
};
struct TracedStep {
    enum class Outcome : std::uint8_t { kOpen, kCommitted, kFailed };
    std::uint32_t group = 0;
    Step step = 0;
    std::int64_t begin_ns = 0, end_ns = 0;
    Outcome outcome = Outcome::kOpen;
    std::vector<TracedTensor> tensors = {};  ///< those of which anything was seen, in the job's order
};
/// By the time at which they began.
[[nodiscard]] std::vector<TracedStep> put_together(const shm::TraceReply& reply);

struct PhaseFigures {
    std::size_t count = 0;  ///< tensors times steps
    double median_ms = 0, p90_ms = 0, longest_ms = 0;
};
/// Over all tensors of all steps; phases that were cut short do not count.
[[nodiscard]] std::array<PhaseFigures, kPhaseCount> figures_of(const std::vector<TracedStep>& steps);

}  // namespace gradsieve::cli
