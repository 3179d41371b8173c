// Lists of hosts as Slurm writes them. Pure; any thread.
#pragma once

#include "base/status.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::daemon {

/// Most hosts of a list, as of a node list.
inline constexpr std::size_t kHostListLimit = 1024;

/// "rack[1-2]n[01-03,7],login" in the order in which it is written, numbers as wide as the first of their range; no
/// host twice. Errors: kInvalidArgument naming the part, what is allowed and what to do.
[[nodiscard]] Result<std::vector<std::string>> expand_host_list(std::string_view text);

}  // namespace gradsieve::daemon
