// Asks a daemon something about kept state over a connection of its own, as the client library and the tool do. Waits
// for the answer until a deadline. Any thread; the caller owns what comes back.
#pragma once

#include "base/clock.hpp"
#include "base/unique_fd.hpp"
#include "shm/state_message.hpp"

#include <optional>
#include <string>
#include <vector>

namespace gradsieve::shm {

struct AnsweredState {
    std::vector<SnapshotPart> parts;
    UniqueFd file;  ///< kRead: the snapshot's, for reading from its first byte on
};
/// One request and its answer. `file`: for kWrite, sealed (seal_message). Errors: the daemon's refusal; kTimeout (what
/// was asked for goes on: ask again); kUnavailable (which socket, what to do; or the daemon went); kCorrupt,
/// kVersionMismatch.
[[nodiscard]] Result<AnsweredState> ask_for_state(const std::string& socket_path, const StateRequest& request,
                                                  TimePoint deadline, std::optional<int> file = std::nullopt);

/// All bytes of a regular file. Errors: kUnavailable, kResourceExhausted (memory).
[[nodiscard]] Result<Bytes> read_whole_file(int fd, const std::string& name);

}  // namespace gradsieve::shm
