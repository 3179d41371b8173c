// What a client or the tool asks of its node's daemon about kept state: keep a snapshot of a committed step, go on from
// one, read one, bring one, let some go. Messages on the local socket, before the attach or without one. Field by field
// in docs/shared-memory.md. Parse functions read untrusted bytes. Plain values; any thread.
#pragma once

#include "shm/message.hpp"

#include <string>
#include <vector>

namespace gradsieve::shm {

/// Groups times nodes of one job: a reply has one entry for each.
inline constexpr std::uint32_t kSnapshotPartLimit = 65'536;

enum class StateRequestKind : std::uint8_t {
    kSave = 1,     ///< pin a snapshot of `step` on every node of the job; answered when all have it
    kResume = 2,   ///< the attach that follows on this connection goes on from `step` of `group`
    kRead = 3,     ///< this node's pinned snapshot: its file's descriptor comes with the reply
    kWrite = 4,    ///< a sealed memfd with such a file comes along: pin it on this node
    kRelease = 5,  ///< let go of this node's pinned snapshots of `step`, or of all steps
    kChoose = 6,   ///< the next start of the job goes on from `step`, whoever starts it
};

/// Client to daemon.
struct StateRequest {
    std::uint32_t abi_version = kAbiVersion;
    StateRequestKind kind = StateRequestKind::kSave;
    std::uint64_t number = 0;  ///< the caller's own; the reply repeats it
    std::string job_name;
    std::string run_id;
    std::string group;
    bool is_of_all_groups = false;  ///< save, release, choose: `group` does not count
    Step step = 0;                  ///< save: 0 = the last committed one; release: 0 = all; choose: 0 = none after all
    std::uint64_t digest = 0;       ///< resume: of this node's part; 0 = any
};
/// One node's part of a snapshot of one group.
struct SnapshotPart {
    std::string group = {};
    Step step = 0;
    std::string node = {};
    std::vector<Rank> ranks = {};  ///< ascending; whose mean it is in
    std::uint64_t digest = 0;      ///< XXH3-64 of the values
    ByteCount bytes = 0;           ///< of the values
    bool operator==(const SnapshotPart&) const = default;
};
/// Daemon to client.
struct StateReply {
    std::uint32_t abi_version = kAbiVersion;
    std::uint64_t number = 0;
    Status status;                      ///< not ok: nothing is promised
    std::vector<SnapshotPart> parts{};  ///< save: of every node; read, write: this node's; release: what was let go
};

/// Errors: kInvalidArgument (names as in an attach request; the value is named).
[[nodiscard]] Status check_state_request(const StateRequest& request);
[[nodiscard]] Bytes build_state_request(const StateRequest& request);
/// Errors: kVersionMismatch (before anything else is read), kCorrupt, kInvalidArgument (a value out of range; named).
[[nodiscard]] Result<StateRequest> parse_state_request(ByteView bytes);
[[nodiscard]] Bytes build_state_reply(const StateReply& reply);
/// Errors: kVersionMismatch, kCorrupt.
[[nodiscard]] Result<StateReply> parse_state_reply(ByteView bytes);

}  // namespace gradsieve::shm
