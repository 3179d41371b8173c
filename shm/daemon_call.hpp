// One request to a daemon and its answer, over a connection of its own, until a deadline. Any thread; the caller owns
// what comes back.
#pragma once

#include "base/clock.hpp"
#include "shm/local_socket.hpp"

#include <span>
#include <string>

namespace gradsieve::shm {

/// `descriptors` are duplicated. Errors: kUnavailable (nobody at the socket, or the daemon closed the connection; what
/// to do), kTimeout, and what sending says.
[[nodiscard]] Result<LocalMessage> call_daemon(const std::string& socket_path, ByteView request,
                                               std::span<const int> descriptors, TimePoint deadline);

}  // namespace gradsieve::shm
