// A path as the address of a Unix socket. Pure; any thread.
#pragma once

#include "base/status.hpp"

#include <sys/un.h>
#include <string>

namespace gradsieve::shm {

/// Errors: kInvalidArgument (empty, or longer than a socket address holds).
[[nodiscard]] Result<sockaddr_un> socket_address(const std::string& path);

}  // namespace gradsieve::shm
