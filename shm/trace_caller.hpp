// Asks a daemon for a trace over a connection of its own, as the tool does, and waits for the answer. Any thread; the
// caller owns what comes back.
#pragma once

#include "shm/trace_message.hpp"

#include <string>

namespace gradsieve::shm {

/// Waits until the steps have come, at most the request's timeout and a few seconds. The reply's own status says
/// whether all came. Errors: kInvalidArgument; kTimeout (the daemon hangs); kUnavailable (which socket, what to do; or
/// the daemon went); kCorrupt, kVersionMismatch.
[[nodiscard]] Result<TraceReply> ask_for_trace(const std::string& socket_path, const TraceRequest& request);

}  // namespace gradsieve::shm
