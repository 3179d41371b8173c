// States of jobs that do not run: left by jobs that ended without all ranks detaching, or by an earlier daemon through
// the service manager. A job that starts again takes its own. Kept within the budgets of memory and of GPUs, the oldest
// goes first, and for a limited time. Conductor thread only.
#pragma once

#include "base/clock.hpp"
#include "daemon/device_parts.hpp"
#include "daemon/log.hpp"
#include "exchange/job_spec.hpp"
#include "shm/state_segment.hpp"

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradsieve::daemon {

class GpuPool;
struct GpuStateCheckTask;
struct MemoryBudget;
struct HandedDescriptor;

/// More would not fit into the descriptor store (FileDescriptorStoreMax=512) beside those of jobs that run: each has
/// one descriptor, and one for each GPU.
inline constexpr std::size_t kKeptStatesLimit = 48;
inline constexpr std::size_t kKeptDescriptorsLimit = 384;

struct KeptJob {
    KeptState state;
    std::string why;  ///< it is kept
    TimePoint since{};
    bool is_checked = true;  ///< false: a GPU's thread looks whether the memory there is what the table says
};
/// A state that is no more, for status.
struct LostState {
    std::string job;
    std::string text;
    TimePoint at{};
};

class KeptStates {
public:
    /// `gpus`: null if states on GPUs are never taken up.
    KeptStates(MemoryBudget& budget, Log& log, GpuPool* gpus = nullptr) : budget_(budget), log_(log), gpus_(gpus) {}

    /// Descriptors that an earlier daemon parked. Each is checked; what cannot be taken up is named, and given up. What
    /// is on GPUs is looked at by their threads, and counts against `gpu_limit_bytes` of each (0: no limit).
    void adopt(std::vector<HandedDescriptor> handed, TimePoint now, ByteCount gpu_limit_bytes = 0);
    /// A GPU's thread has looked.
    void on_checked(const GpuStateCheckTask& task, TimePoint now);
    /// The state's bytes are in the budgets already, and stay there.
    void keep(KeptState state, std::string why, TimePoint now);
    /// The job's own, out of here; its bytes stay in the budgets, for the taker.
    [[nodiscard]] std::optional<KeptState> take(const exchange::JobKey& key);
    /// It cannot be taken yet: it is being looked at.
    [[nodiscard]] bool is_checking(const exchange::JobKey& key) const;
    /// uid of whose it is; nothing if there is none.
    [[nodiscard]] std::optional<std::uint32_t> owner_of(const exchange::JobKey& key) const;
    /// Makes room for somebody else. False if there is nothing left to give up.
    bool drop_oldest(const std::string& why);
    /// The same on GPUs: the oldest with memory on one of them. Their memory is free a moment later, when the service
    /// manager has let go of it, too.
    bool drop_oldest_on(std::span<const int> ordinals, const std::string& why);
    /// Drops what has been here longer than `keep_for`.
    void on_time(Duration keep_for, TimePoint now);
    /// A state came to an end: the manager lets go of it, and its bytes are free.
    void end(const exchange::JobKey& key, KeptState state);
    /// A state came to an end elsewhere: told in status.
    void note_lost(const std::string& job, const std::string& text, TimePoint now);

    [[nodiscard]] const std::deque<KeptJob>& all() const noexcept { return kept_; }
    [[nodiscard]] std::deque<KeptJob>& all() noexcept { return kept_; }
    [[nodiscard]] const std::deque<LostState>& lost() const noexcept { return lost_; }

private:
    using HandedParts = std::map<std::string, UniqueFd>;  ///< by name
    [[nodiscard]] Status adopt_one(HandedDescriptor& handed, HandedParts& inout_parts, ByteCount gpu_limit_bytes,
                                   TimePoint now);
    [[nodiscard]] Result<DeviceParts> adopt_parts(const exchange::JobKey& key, const shm::StateSegment& segment,
                                                  HandedParts& inout_parts, ByteCount gpu_limit_bytes);
    void check(KeptJob& inout_kept);
    void make_room_for(std::size_t descriptors);
    void drop(std::deque<KeptJob>::iterator place, const std::string& why);

    MemoryBudget& budget_;
    Log& log_;
    GpuPool* gpus_;
    std::deque<KeptJob> kept_;  ///< oldest first
    std::deque<LostState> lost_;
    TimePoint now_{};  ///< of the last turn
};

}  // namespace gradsieve::daemon
