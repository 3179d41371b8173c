// Puts what the conductor knows into the JSON document of docs/status-document.md. Pure but for the process's own id
// and CPU time; reads only. Conductor thread.
#pragma once

#include "base/clock.hpp"
#include "daemon/config.hpp"
#include "daemon/gpu_pool.hpp"
#include "daemon/kept_states.hpp"
#include "exchange/job_machine.hpp"
#include "transport/transport.hpp"

#include <deque>
#include <string>
#include <vector>

namespace gradsieve::daemon {

class HostedJob;

struct EndedJob {
    exchange::JobKey key;
    std::string text;
    std::uint64_t steps_committed = 0;
    double wire_ratio = 0;
    double sent_bytes = 0;
    TimePoint at{};
};
/// A peer as its last event told.
struct PeerView {
    transport::PeerState state = transport::PeerState::kConnecting;
    std::uint64_t instance = 0;
    std::string text;
    TimePoint since{};  ///< when that event came
};
/// Errors are kept once with a count, so that a storm cannot fill anything.
struct DistinctError {
    std::string text;
    std::uint64_t count = 0;
    TimePoint last{};
};

struct StatusFacts {
    const Config& config;
    const std::vector<PeerView>& peers;             ///< one per node of the configuration
    std::vector<transport::PeerCounters> counters;  ///< the same; empty without a network
    transport::PortCounters port{};                 ///< all zero without a network
    std::string bound;                              ///< empty without a network
    std::vector<const HostedJob*> jobs;             ///< those that have not ended
    const std::deque<EndedJob>& ended_jobs;
    const KeptStates& kept_states;
    const std::deque<DistinctError>& errors;
    ByteCount memory_bytes = 0;
    ByteCount memory_limit_bytes = 0;
    std::size_t threads = 0;
    std::vector<GpuView> gpus{};
    TimePoint started{};
    bool is_stopping = false;
};

/// One line of JSON; bytes that are no UTF-8 are replaced.
[[nodiscard]] std::string status_document(const StatusFacts& facts, TimePoint now);

}  // namespace gradsieve::daemon
