// Eight jobs at once on two nodes, four of which misbehave if they are asked to: shared by the test that holds the
// other four to their results and deadlines, and the benchmark that holds them to their step times.
#pragma once

#include "tests/e2e/cluster.hpp"

#include <map>
#include <string>
#include <vector>

namespace gradsieve::e2e {

/// What one of the four well-behaved jobs came to.
struct HealthyJob {
    std::vector<std::string> digests;  ///< by rank; "none" where a rank did not come that far
    std::vector<std::string> ends;     ///< by rank: its exit code, and its output unless that is 0
    double median_us = 0;              ///< of rank 0's steps
    double longest_us = 0;             ///< of any rank's steps
};
/// What was seen of the others.
struct Faults {
    std::size_t kills = 0;                         ///< ranks that killed themselves in the middle of a step
    std::vector<std::string> orphans;              ///< what the killed ranks' partners printed
    std::size_t failed_steps = 0;                  ///< of the job that hands in NaNs
    std::vector<bool> is_nan_alive;                ///< its ranks still train
    std::vector<std::string> nan_errors;           ///< what else they say that went wrong
    std::vector<std::string> scribbles, exhausts;  ///< a line for each round of theirs
    std::vector<std::string> hostile_ends;         ///< exit codes
};
struct ManyJobs {
    std::map<std::string, HealthyJob> healthy;  ///< by name
    Faults faults;
};

/// Two nodes whose memory eight jobs fit into, and little more.
[[nodiscard]] std::string many_jobs_configuration();
/// Runs them to the end of the four healthy ones. Without faults, the other four train as those do. `kill_at`: the step
/// in which a rank kills itself; its job begins anew each time.
[[nodiscard]] ManyJobs run_many_jobs(Cluster& cluster, bool has_faults, std::uint64_t steps, const std::string& run,
                                     std::uint64_t kill_at = 5);

/// Longest that any wait of these jobs may take.
inline constexpr Milliseconds kManyJobsDeadline{15'000};

}  // namespace gradsieve::e2e
