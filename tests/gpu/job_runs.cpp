#include "job_runs.hpp"

#include "codec/cuda/device.hpp"

#include <fmt/format.h>

#include <filesystem>

namespace gradsieve::gpu_check {
namespace {

using e2e::Cluster;
using e2e::Milliseconds;
using e2e::Process;
using nlohmann::json;

constexpr auto kLong = Milliseconds(120'000);

}  // namespace

std::size_t device_count() {
    const auto devices = codec::cuda::list_devices();
    return devices.is_ok() ? devices->size() : 0;
}

void open_to_others(const Cluster& cluster, std::size_t nodes) {
    namespace fs = std::filesystem;
    std::vector<fs::path> folders{cluster.folder()};
    for (std::size_t node = 0; node < nodes; ++node) folders.push_back(fs::path(cluster.socket(node)).parent_path());
    for (const auto& folder : folders)
        fs::permissions(folder, fs::perms::others_read | fs::perms::others_exec, fs::perm_options::add);
}

Process start_rank(const Cluster& cluster, const JobPlan& plan, std::size_t nodes, std::size_t rank) {
    std::vector<std::string> arguments;
    if (plan.as_other_user) arguments = e2e::as_user(65534);
    const std::vector<std::string> rest{"gradsieve-gpu-rank",
                                        "--socket",
                                        cluster.socket(rank * nodes / plan.world),
                                        "--rank",
                                        std::to_string(rank),
                                        "--world",
                                        std::to_string(plan.world),
                                        "--memory",
                                        plan.memory,
                                        "--type",
                                        plan.type,
                                        "--require",
                                        plan.require,
                                        "--device",
                                        std::to_string(plan.device_of(rank, nodes)),
                                        "--elements",
                                        plan.elements,
                                        "--samples",
                                        std::to_string(plan.samples),
                                        "--moment",
                                        plan.has_moment ? "1" : "0",
                                        "--codec",
                                        plan.codec,
                                        "--steps",
                                        std::to_string(plan.steps),
                                        "--until",
                                        std::to_string(plan.until),
                                        "--sets",
                                        std::to_string(plan.sets),
                                        "--hold",
                                        std::to_string(rank + 1 == plan.world ? plan.hold : 0),
                                        "--bad",
                                        std::to_string(rank + 1 == plan.world ? plan.bad : 0),
                                        "--zero",
                                        plan.bad > 0 ? "1" : "0",
                                        "--hash",
                                        plan.wants_hash ? "1" : "0",
                                        "--state",
                                        plan.wants_state ? "1" : "0",
                                        "--job",
                                        plan.name};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return Process(arguments);
}

std::vector<json> collect(std::vector<Process>& ranks, const JobPlan& plan, Report& report) {
    std::vector<json> answers;
    for (auto& rank : ranks) {
        const auto code = rank.wait_for_exit(kLong);
        const auto& output = rank.output();
        const auto start = output.rfind("{\"event\"");
        auto answer = start == std::string::npos ? json() : json::parse(output.substr(start), nullptr, false);
        const bool is_good = code == 0 && answer.is_object() && answer.value("event", "") == "result";
        if (!is_good)
            report.expect(false, plan.name + ": rank ended with " + std::to_string(code.value_or(-1)) + ": " + output);
        if (is_good) answers.push_back(std::move(answer));
    }
    if (answers.size() < plan.world) answers.clear();
    return answers;
}

std::vector<json> run_job(const Cluster& cluster, std::size_t nodes, const JobPlan& plan, Report& report) {
    std::vector<Process> ranks;
    for (std::size_t rank = 0; rank < plan.world; ++rank) ranks.push_back(start_rank(cluster, plan, nodes, rank));
    return collect(ranks, plan, report);
}

std::string hash_of(const std::vector<json>& answers) {
    return answers.empty() ? "" : answers.front().value("hash", "") + answers.front().value("state", "");
}

json await_steps(const Cluster& cluster, std::size_t steps) {
    json job;
    const auto has_steps = [&](const json& status) {
        const auto jobs = status.value("jobs", json::array());
        if (jobs.empty()) return !status.value("ended_jobs", json::array()).empty();
        if (jobs[0]["groups"][0].value("steps_committed", std::size_t{0}) <= steps) return false;
        job = jobs[0];
        return true;
    };
    static_cast<void>(cluster.wait_for_status(0, has_steps, kLong));
    return job;
}

void check_against_host(const Cluster& cluster, std::size_t nodes, JobPlan plan, Report& report) {
    plan.memory = "host";  // under one name, since random numbers are drawn from it
    const auto host = run_job(cluster, nodes, plan, report);
    plan.memory = "device";
    plan.require = "cuda-ipc";  // a staged job would have the same averages
    const auto device = run_job(cluster, nodes, plan, report);
    report.expect(!host.empty() && hash_of(host) == hash_of(device),
                  fmt::format("{} with {} samples{}, {} ranks on {} nodes, {} GPUs: host {} device {}", plan.codec,
                              plan.samples, plan.has_moment ? " and a second moment" : "", plan.world, nodes,
                              plan.devices, hash_of(host), hash_of(device)));
}

}  // namespace gradsieve::gpu_check
