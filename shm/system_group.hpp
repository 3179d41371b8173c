// Groups of the system by name and number: who may use the socket and read the status page. Any thread.
#pragma once

#include "base/status.hpp"

#include <sys/types.h>
#include <string>

namespace gradsieve::shm {

/// Errors: kNotFound (no such group; how to add it).
[[nodiscard]] Result<gid_t> find_group(const std::string& name);

/// The group's name in quotes, or its number if it has none.
[[nodiscard]] std::string group_text(gid_t id);

}  // namespace gradsieve::shm
