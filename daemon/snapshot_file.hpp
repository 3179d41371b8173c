// Snapshots: the committed generation of one group of a job, in one file of the state directory, step-stamped and
// checksummed. A file is complete or not there: it is written beside its place, synced, and renamed. Reading trusts
// nothing. Layout: docs/state-format.md. Any thread, one writer per folder.
#pragma once

#include "daemon/kept_epoch.hpp"
#include "exchange/job_spec.hpp"
#include "shm/state_segment.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::daemon {

inline constexpr std::uint64_t kSnapshotMagic = 0x0050414E53565347ULL;  ///< "GSVSNAP" and a zero
inline constexpr std::uint32_t kSnapshotVersion = 1;
/// Of each group of a job: nodes may be one snapshot apart.
inline constexpr std::size_t kSnapshotsKept = 2;
inline constexpr std::string_view kSnapshotSuffix = ".snapshot";
inline constexpr std::string_view kPinnedSuffix = ".pinned";  ///< see pinned_snapshots.hpp

struct SnapshotHead {
    shm::StateTable table;    ///< of one group; arrays have no place here, they follow one another
    std::uint32_t group = 0;  ///< its number in the job
    Step step = 0;
    std::uint64_t saved_unix_s = 0;
    std::vector<Rank> ranks;     ///< whose mean it is in
    std::vector<double> scales;  ///< by tensor
    std::uint64_t digest = 0;    ///< XXH3-64 of the values, as the file says; set by reading
    KeptEpoch epoch = Epoch{0};  ///< of the values; set by reading
};
/// The memory of each array, in the head's order.
using SnapshotArrays = std::vector<std::span<float>>;

/// An array that is not in the segment: of which tensor, which of its arrays, which generation.
struct ArrayElsewhere {
    std::size_t array = 0;  ///< of the head
    std::size_t tensor = 0;
    std::size_t number = 0;
    std::size_t generation = 0;
};
/// Head and memory of what `state` has of `group`.
struct CommittedGroup {
    SnapshotHead head;
    SnapshotArrays arrays;                     ///< in the segment: the generation of that step; empty if elsewhere
    std::vector<ArrayElsewhere> on_devices{};  ///< those that lie on GPUs
};
/// `step`: one of those that the group can go on from.
[[nodiscard]] CommittedGroup committed_group(shm::StateSegment& state, std::uint32_t group, Step step);

/// Elements of each array, in the head's order.
[[nodiscard]] std::vector<ElementCount> array_elements(const SnapshotHead& head);

/// "HASH-GROUP-STEP.snapshot".
[[nodiscard]] std::string snapshot_name(const exchange::JobKey& key, std::uint32_t group, Step step);

/// Of the values.
[[nodiscard]] std::uint64_t snapshot_digest(std::span<const std::span<float>> arrays) noexcept;
[[nodiscard]] ByteCount snapshot_bytes(const SnapshotHead& head) noexcept;

/// What a call on a snapshot's file or folder ended with: kNotFound, kPermissionDenied, kResourceExhausted or
/// kUnavailable with the path, the call and `error` in words.
[[nodiscard]] Status snapshot_call_failed(const std::string& path, const char* call, int error);
/// Once names in the folder are to outlive a loss of power. Errors: snapshot_call_failed's.
[[nodiscard]] Status sync_snapshot_folder(const std::string& folder);

/// Errors: kUnavailable, kResourceExhausted (what the file system says); nothing is left behind then.
[[nodiscard]] Status write_snapshot(const std::string& folder, const SnapshotHead& head,
                                    std::span<const std::span<float>> arrays);
/// The same under a name in the folder.
[[nodiscard]] Status write_snapshot_as(const std::string& folder, const std::string& name, const SnapshotHead& head,
                                       std::span<const std::span<float>> arrays);
/// Errors: kNotFound, kPermissionDenied, kVersionMismatch, kCorrupt (torn, hostile), naming the file.
[[nodiscard]] Result<SnapshotHead> read_snapshot_head(const std::string& path);
/// The same of an open file, from its first byte on; `name` is for errors. The descriptor stands behind the head then.
[[nodiscard]] Result<SnapshotHead> read_snapshot_head(int fd, const std::string& name);
/// From there on. Errors: as read_snapshot_arrays.
[[nodiscard]] Status read_snapshot_values(int fd, const std::string& name,
                                          std::span<const std::span<float>> ret_arrays);
/// Reads the values into `ret_arrays`, which have the head's sizes. Errors: as read_snapshot_head; `ret_arrays` holds
/// anything then.
[[nodiscard]] Status read_snapshot_arrays(const std::string& path, const SnapshotHead& head,
                                          std::span<const std::span<float>> ret_arrays);

struct FoundSnapshot {
    std::string path;
    Result<SnapshotHead> head;
};
/// Every file in the folder that is named like one, newest step first within each group. A folder that is not there has
/// none.
[[nodiscard]] std::vector<FoundSnapshot> find_snapshots(const std::string& folder);
/// The same of one job.
[[nodiscard]] std::vector<FoundSnapshot> find_snapshots(const std::string& folder, const exchange::JobKey& key);
/// Every file in the folder whose name begins and ends so, in that order.
[[nodiscard]] std::vector<FoundSnapshot> find_snapshot_files(const std::string& folder, const std::string& prefix,
                                                             std::string_view suffix);
/// "HASH-", with which the names of a job's files begin.
[[nodiscard]] std::string snapshot_prefix(const exchange::JobKey& key);
/// What a killed daemon was writing. Before any writer starts.
void remove_snapshot_leftovers(const std::string& folder);
/// Leaves the newest `kept` of each of the job's groups.
void remove_snapshots(const std::string& folder, const exchange::JobKey& key, std::size_t kept);

}  // namespace gradsieve::daemon
