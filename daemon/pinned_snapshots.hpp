// Pinned snapshots: those that somebody asked for. They have names of their own in the state directory, so that the
// ones made by interval neither replace nor use them, and a job goes on from one only if somebody names its step. And
// the choice of such a step that waits for a job's next start. docs/state-format.md. Any thread, one writer per folder.
#pragma once

#include "base/clock.hpp"
#include "daemon/snapshot_file.hpp"

#include <map>
#include <string>
#include <vector>

namespace gradsieve::daemon {

/// Of one group, on one node: more are refused, not dropped. Reached only if newer ones never get complete everywhere.
inline constexpr std::size_t kPinnedLimit = 16;

struct PinnedLimits {
    std::size_t kept = 2;         ///< of each group, once the newest of them is complete on every node
    ByteCount limit_bytes = 0;    ///< of all pinned files in the folder; 0 = what the disk has
    std::uint64_t keep_days = 0;  ///< 0 = whatever their age
};

/// "HASH-GROUP-STEP.pinned".
[[nodiscard]] std::string pinned_name(const exchange::JobKey& key, std::uint32_t group, Step step);
/// As find_snapshots.
[[nodiscard]] std::vector<FoundSnapshot> find_pinned(const std::string& folder);
[[nodiscard]] std::vector<FoundSnapshot> find_pinned(const std::string& folder, const exchange::JobKey& key);

/// Whether one more of `bytes` may be made. Errors: kResourceExhausted, with the figures.
[[nodiscard]] Status check_pinned_room(const std::string& folder, const exchange::JobKey& key, std::uint32_t group,
                                       ByteCount bytes, const PinnedLimits& limits);
/// The interval's snapshot of that step is pinned, or the pinned one is the interval's too: one file under both names,
/// in place of what had the name before. Errors: as write_snapshot.
[[nodiscard]] Status pin_snapshot(const std::string& folder, const exchange::JobKey& key, std::uint32_t group,
                                  Step step);
[[nodiscard]] Status add_interval_name(const std::string& folder, const exchange::JobKey& key, std::uint32_t group,
                                       Step step);
/// `step` of `group` is complete on every node: leaves it and the newest before it, `kept` in all.
void remove_older_pinned(const std::string& folder, const exchange::JobKey& key, std::uint32_t group, Step step,
                         std::size_t kept);
/// Those that are older than that by their own time; 0 days: none. What went.
std::vector<FoundSnapshot> remove_aged_pinned(const std::string& folder, std::uint64_t keep_days);

/// Takes a snapshot's file from outside and pins it as `owner`'s, whoever it was made for. `fd`: stands at the file's
/// beginning; must be a memfd sealed against writing and shrinking, or reading it could wait for ever. Errors:
/// kInvalidArgument (no such memfd; another job's), kCorrupt, kVersionMismatch, kResourceExhausted.
[[nodiscard]] Result<SnapshotHead> take_in_pinned(const std::string& folder, int fd, const exchange::JobKey& key,
                                                  std::uint32_t owner, const PinnedLimits& limits);

/// Steps that the next start of a job goes on from, by name of the group.
using ResumeChoice = std::map<std::string, Step>;
/// Replaces the one before; an empty one takes it away. Errors: kUnavailable, kPermissionDenied.
[[nodiscard]] Status write_resume_choice(const std::string& folder, const exchange::JobKey& key,
                                         const ResumeChoice& choice);
/// Empty if there is none, or one that cannot be read.
[[nodiscard]] ResumeChoice read_resume_choice(const std::string& folder, const exchange::JobKey& key);

}  // namespace gradsieve::daemon
