// Whole jobs whose local ranks lie on several GPUs, which share every tensor: the averages equal, bit for bit, those of
// the same job through host memory; status says what each GPU holds and how it reaches the others; a killed rank harms
// nobody. Where the GPUs do not reach each other's memory, the same is staged.
#include "base/id.hpp"
#include "codec/cuda/peer_access.hpp"
#include "job_runs.hpp"

#include <fmt/format.h>

#include <signal.h>

#include <algorithm>

namespace gradsieve::gpu_check {
namespace {

using e2e::Cluster;
using e2e::Milliseconds;
using nlohmann::json;

JobPlan spread_plan(std::size_t devices, std::size_t world) {
    JobPlan plan;
    plan.world = world;
    plan.devices = devices;
    plan.is_spread = true;
    return plan;
}

/// Tensors of one chunk, which lie on one GPU each, and of several, which GPUs share.
void check_same_as_host(const Options& options, std::size_t nodes, const JobPlan& like, const std::string& elements,
                        Report& report) {
    const Cluster cluster(nodes, kOpenSocket);
    // The first five are what --few takes.
    const std::vector<std::string> codecs = {"all | f32",
                                             "variance(1) | pow2(bits=4, scope=tensor)",
                                             "topk(0.01) | pow2(bits=4) | auto",
                                             "lowrank(2, columns=square)",
                                             "delta | topk(0.01) | pow2(bits=4) | auto",
                                             "topk(0.02, scope=model) | pow2(bits=4, scope=tensor)",
                                             "all | sign",
                                             "sketch(0.01)",
                                             "variance(2) | pow2(bits=4) | auto",
                                             "topk(0.02, gate=1) | f32"};
    for (std::size_t number = 0; number < (options.is_few ? 6 : codecs.size()); ++number) {
        JobPlan plan = like;
        plan.codec = codecs[number];
        plan.elements = elements;
        plan.samples = 1 + number % 2;
        plan.name = std::to_string(number);
        check_against_host(cluster, nodes, plan, report);
    }
}

/// How a daemon's GPU should say that it reaches the others' memory; empty where pairs of them differ.
std::string expected_peers(std::size_t devices) {
    std::vector<int> ordinals;
    for (std::size_t device = 0; device < devices; ++device) ordinals.push_back(static_cast<int>(device));
    const auto access = codec::cuda::PeerAccess::open(ordinals);
    const auto direct =
        std::ranges::count_if(ordinals, [&access](int device) { return access.is_ok() && access->is_direct(device); });
    if (direct == 0) return "staged";
    return static_cast<std::size_t>(direct) == devices ? "direct" : "";
}

/// While a job runs on all GPUs.
void check_status(Report& report, std::size_t devices, const json& status) {
    const auto gpus = status.value("gpus", json::array());
    const auto expected = expected_peers(devices);
    report.expect(gpus.size() == devices, fmt::format("status lists {} GPUs: {}", devices, gpus.dump()));
    for (const auto& gpu : gpus) {
        const auto peers = gpu.value("peers", json()).is_string() ? gpu["peers"].get<std::string>() : "none";
        report.expect(peers == expected || (expected.empty() && (peers == "direct" || peers == "staged")),
                      fmt::format("status says how GPUs reach each other, \"{}\": {}", expected, gpu.dump()));
        report.expect(gpu.value("buffers", 0) == 1 && gpu.value("state_bytes", 0) > 0,
                      "status says what each GPU holds: " + gpu.dump());
    }
    if (!gpus.empty() && gpus[0].value("peers", json()).is_string())
        report.figure(fmt::format("{} GPUs, peers: {}", devices, gpus[0]["peers"].get<std::string>()));
    const auto& tensors = status["jobs"][0]["tensors"];
    const auto place = tensors.empty() ? "" : tensors[0].value("place", "");
    report.expect(static_cast<std::size_t>(std::ranges::count(place, ',')) + 1 == devices,
                  "a tensor's place names every GPU: " + place);
}

void check_killed_rank(Report& report, std::size_t devices, const std::string& elements) {
    Cluster cluster(1, kOpenSocket);
    JobPlan plan = spread_plan(devices, devices);
    plan.name = "killed";
    plan.codec = "topk(0.01) | pow2 | auto";
    plan.elements = elements;
    plan.steps = 100'000;
    std::vector<e2e::Process> ranks;
    for (std::size_t rank = 0; rank < plan.world; ++rank) ranks.push_back(start_rank(cluster, plan, 1, rank));
    const bool runs = !await_steps(cluster, 1).is_null();
    report.expect(runs, "killed: the job runs");
    if (runs) check_status(report, devices, cluster.status(0));
    ranks.back().send_signal(SIGKILL);
    const auto code = ranks.front().wait_for_exit(Milliseconds(10'000));
    report.expect(code == 3 && ranks.front().output().find(fmt::format("rank {}", devices - 1)) != std::string::npos,
                  "killed: the other ranks are told who died: " + ranks.front().output());
    plan.name = "after";
    plan.steps = 3;
    report.expect(!run_job(cluster, 1, plan, report).empty(), "killed: the daemon serves the next job");
}

}  // namespace

void check_gpus_end_to_end(const Options& options, Report& report) {
    const auto devices = device_count();
    if (devices < 2) return report.skip("jobs on several GPUs: this host has one");
    const std::string elements = options.is_small ? "33,70000,1100000" : "33,4101,70000,1100000,9000000";
    check_same_as_host(options, 1, spread_plan(devices, devices), elements, report);
    check_same_as_host(options, 2, spread_plan(2, 4), elements, report);
    // A chunk for each GPU, so that each has state.
    check_killed_rank(report, devices, std::to_string((devices - 1) * kChunkElements + 200'000));
}

}  // namespace gradsieve::gpu_check
