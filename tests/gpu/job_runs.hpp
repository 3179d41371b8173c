// Whole jobs for the end-to-end sections: daemons of a Cluster and processes of gradsieve-gpu-rank. One thread.
#pragma once

#include "gpu_check.hpp"
#include "tests/e2e/cluster.hpp"

namespace gradsieve::gpu_check {

/// Anybody may connect: the ranks of the check run as other users too.
inline constexpr const char* kOpenSocket = "[socket]\nmode = \"0666\"\n";

[[nodiscard]] std::size_t device_count();

/// Lets other users than the daemons' come to their sockets.
void open_to_others(const e2e::Cluster& cluster, std::size_t nodes);

struct JobPlan {
    std::string name;
    std::string memory = "device";
    std::string type = "f32";
    std::string require{};
    std::string codec;
    std::string elements;
    std::size_t world = 4;
    std::size_t samples = 1;
    bool has_moment = false;  ///< ranks hand in second moments
    std::size_t steps = 4;
    std::size_t until = 0;  ///< not 0: the last step, wherever the job begins
    std::size_t hold = 0;   ///< not 0: the last rank hands this step in only once it is told a line
    std::size_t bad = 0;    ///< if not 0: the last rank's gradients are not finite in this step, and count as zero
    std::size_t sets = 2;   ///< of gradients, which ranks hand in in turn
    bool wants_hash = true;
    bool wants_state = false;  ///< hashes hold a digest of what all nodes keep at the end, too
    std::size_t devices = 1;
    bool is_spread = false;  ///< the ranks of a node on different devices
    bool as_other_user = false;

    [[nodiscard]] std::size_t device_of(std::size_t rank, std::size_t nodes) const {
        return (is_spread ? rank : rank * nodes / world) % devices;
    }
};

[[nodiscard]] e2e::Process start_rank(const e2e::Cluster& cluster, const JobPlan& plan, std::size_t nodes,
                                      std::size_t rank);
/// What every rank said last; empty if one said nothing or an error, which then stands in the report.
[[nodiscard]] std::vector<nlohmann::json> collect(std::vector<e2e::Process>& ranks, const JobPlan& plan,
                                                  Report& report);
[[nodiscard]] std::vector<nlohmann::json> run_job(const e2e::Cluster& cluster, std::size_t nodes, const JobPlan& plan,
                                                  Report& report);
/// Of all averages; empty without answers.
[[nodiscard]] std::string hash_of(const std::vector<nlohmann::json>& answers);
/// Waits until node 0's first job has committed more than `steps`; its entry of the status that showed it. Null if it
/// ended unseen, or after two minutes: the emulated card takes its time, under a sanitizer on a busy machine most of
/// all.
[[nodiscard]] nlohmann::json await_steps(const e2e::Cluster& cluster, std::size_t steps);
/// The plan through host memory, then through device memory: both have to give the same averages.
void check_against_host(const e2e::Cluster& cluster, std::size_t nodes, JobPlan plan, Report& report);

}  // namespace gradsieve::gpu_check
