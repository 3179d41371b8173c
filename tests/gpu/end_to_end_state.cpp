// State of tensors on a device that lies in host memory (gpu.state = "host"): the same averages as ever, and it
// outlives the daemon, which is killed in the middle of a run and comes back with what the service manager kept for it.
#include "job_runs.hpp"

#include <fmt/format.h>

namespace gradsieve::gpu_check {
namespace {

using e2e::Cluster;
using e2e::Milliseconds;
using nlohmann::json;

const std::string kHostState = std::string(kOpenSocket) + "[gpu]\nstate = \"host\"\n";

JobPlan long_plan(std::size_t devices) {
    JobPlan plan;
    plan.name = "kept";
    plan.codec = "variance(1.5) | pow2(bits=4) | auto";
    plan.elements = "33,70000,1100000";
    plan.world = 2;
    plan.devices = devices;
    plan.is_spread = true;
    plan.until = 40;
    return plan;
}

std::string last_hash_of(const std::vector<json>& answers) {
    return answers.empty() ? "" : answers.front().value("last_hash", "");
}

void check_killed_daemon(Report& report, std::size_t devices) {
    const auto plan = long_plan(devices);
    const Cluster quiet(1, kHostState);
    const auto whole = run_job(quiet, 1, plan, report);
    Cluster cluster(1, kHostState, "127.0.0.1", true);
    std::vector<e2e::Process> ranks;
    for (std::size_t rank = 0; rank < plan.world; ++rank) ranks.push_back(start_rank(cluster, plan, 1, rank));
    report.expect(!await_steps(cluster, 5).is_null(), "state on the host: the job runs");
    cluster.kill_daemon(0);
    for (auto& rank : ranks)
        report.expect(rank.wait_for_exit(Milliseconds(20'000)) == 3,
                      "state on the host: ranks are told that the daemon died: " + rank.output());
    cluster.restart_daemon(0);
    const auto resumed = run_job(cluster, 1, plan, report);
    const bool goes_on = !resumed.empty() && resumed.front().value("first", 0) > 5;
    report.expect(goes_on, "state on the host: the job goes on where it was");
    report.expect(!whole.empty() && last_hash_of(whole) == last_hash_of(resumed),
                  fmt::format("state on the host: last averages {} after a killed daemon, {} without",
                              last_hash_of(resumed), last_hash_of(whole)));
}

}  // namespace

void check_state_end_to_end(const Options& options, Report& report) {
    const auto devices = std::min<std::size_t>(2, device_count());
    {
        const Cluster cluster(2, kHostState);
        int number = 0;
        for (const char* codec :
             {"all | sign", "variance(2) | pow2(bits=4) | auto", "topk(0.01) | pow2(bits=4) | auto"}) {
            JobPlan plan;
            plan.codec = codec;
            plan.elements = options.is_small ? "33,70000,1100000" : "33,4101,70000,1100000,9000000";
            plan.devices = devices;
            plan.is_spread = true;
            plan.name = std::to_string(++number);
            check_against_host(cluster, 2, plan, report);
        }
    }
    check_killed_daemon(report, devices);
}

}  // namespace gradsieve::gpu_check
