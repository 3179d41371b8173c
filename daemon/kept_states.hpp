// States of jobs that do not run: left by jobs that ended without all ranks detaching, or by an earlier daemon through
// the service manager. A job that starts again takes its own. Kept within the memory budget, the oldest goes first, and
// for a limited time. Conductor thread only.
#pragma once

#include "base/clock.hpp"
#include "daemon/log.hpp"
#include "exchange/job_spec.hpp"
#include "shm/state_segment.hpp"

#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace gradsieve::daemon {

struct MemoryBudget;
struct HandedDescriptor;

/// More would not fit into the descriptor store beside what a service may want to park else
/// (FileDescriptorStoreMax=64).
inline constexpr std::size_t kKeptStatesLimit = 48;

struct KeptJob {
    shm::StateSegment state;
    std::string why;  ///< it is kept
    TimePoint since{};
};
/// A state that is no more, for status.
struct LostState {
    std::string job;
    std::string text;
    TimePoint at{};
};

class KeptStates {
public:
    KeptStates(MemoryBudget& budget, Log& log) : budget_(budget), log_(log) {}

    /// Descriptors that an earlier daemon parked. Each is checked; what cannot be taken up is named, and given up.
    void adopt(std::vector<HandedDescriptor> handed, TimePoint now);
    /// The state's bytes are in the budget already, and stay there.
    void keep(shm::StateSegment state, std::string why, TimePoint now);
    /// The job's own, out of here; its bytes stay in the budget, for the taker.
    [[nodiscard]] std::optional<shm::StateSegment> take(const exchange::JobKey& key);
    /// uid of whose it is; nothing if there is none.
    [[nodiscard]] std::optional<std::uint32_t> owner_of(const exchange::JobKey& key) const;
    /// Makes room for somebody else. False if there is nothing left to give up.
    bool drop_oldest(const std::string& why);
    /// Drops what has been here longer than `keep_for`.
    void on_time(Duration keep_for, TimePoint now);
    /// A state came to an end elsewhere: told in status.
    void note_lost(const std::string& job, const std::string& text, TimePoint now);

    [[nodiscard]] const std::deque<KeptJob>& all() const noexcept { return kept_; }
    [[nodiscard]] std::deque<KeptJob>& all() noexcept { return kept_; }
    [[nodiscard]] const std::deque<LostState>& lost() const noexcept { return lost_; }

private:
    [[nodiscard]] Status adopt_one(HandedDescriptor& handed, TimePoint now);
    void drop(std::deque<KeptJob>::iterator place, const std::string& why);

    MemoryBudget& budget_;
    Log& log_;
    std::deque<KeptJob> kept_;  ///< oldest first
    std::deque<LostState> lost_;
    TimePoint now_{};  ///< of the last turn
};

/// The name under which a job's state is parked: "gradsieve-state-" and the job's hash, one for each part.
[[nodiscard]] std::string parked_name(const exchange::JobKey& key, std::uint32_t part = 0);
[[nodiscard]] bool is_parked_name(std::string_view name);

}  // namespace gradsieve::daemon
