// Which jobs a daemon's status page tells of, for commands that are given a name alone. Any thread.
#pragma once

#include "base/status.hpp"

#include <string>
#include <vector>

namespace gradsieve::cli {

struct KnownJob {
    std::string name, run_id;
    bool is_running = false;
    bool operator==(const KnownJob&) const = default;
};
/// Running ones, then those that ended; empty if there is no page. `socket`: "" = the usual places.
[[nodiscard]] std::vector<KnownJob> known_jobs(const std::string& socket);

/// The one that is meant; an empty name or run means any. Errors: kInvalidArgument (none or several that run; which).
[[nodiscard]] Result<KnownJob> choose_running_job(const std::vector<KnownJob>& jobs, const std::string& name,
                                                  const std::string& run);

}  // namespace gradsieve::cli
