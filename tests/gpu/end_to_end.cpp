// Real daemons and training processes whose gradients lie on the card: what they get back equals, bit for bit, what the
// same job gets through host memory and the CPU's codec; across user ids, several ranks and GPUs, and after a rank is
// killed in the middle of a step. Then the time from hand-in to hand-back.
#include "codec/cuda/device.hpp"
#include "gpu_check.hpp"
#include "job_runs.hpp"
#include "similarity_sections.hpp"

#include <fmt/format.h>

#include <signal.h>
#include <unistd.h>

namespace gradsieve::gpu_check {
namespace {

using e2e::Cluster;
using e2e::Milliseconds;
using e2e::Process;
using nlohmann::json;

void check_same_as_host(const Options& options, Report& report, std::size_t nodes, std::size_t devices,
                        bool as_other_user) {
    const Cluster cluster(nodes, kOpenSocket);
    open_to_others(cluster, nodes);
    unsigned number = 0;
    for (const char* codec : {"all | f32", "all | bf16", "all | sign", "variance(2) | pow2(bits=4) | auto",
                              "topk(0.01) | pow2(bits=4) | auto", "topk(0.02, gate=1) | f32", "variance_hybrid(0.5)",
                              "lowrank(2, columns=square)", "delta | topk(0.01) | pow2(bits=4) | auto", "sketch(0.01)",
                              "topk(0.02, scope=model) | pow2(bits=4) | auto"})
        for (const std::size_t samples : {std::size_t{1}, std::size_t{2}}) {
            ++number;
            // One number of gradients for each codec, and one codec in four with a tensor of two chunks.
            if (options.is_few && samples != 1U + (number + 1) / 2 % 2) continue;
            JobPlan plan;
            plan.codec = codec;
            plan.elements = options.is_few && number % 8 > 2 ? "33,4101,70000" : "33,4101,70000,1100000";
            plan.samples = samples;
            plan.devices = devices;
            plan.as_other_user = as_other_user;
            plan.name = std::to_string(number);
            check_against_host(cluster, nodes, plan, report);
        }
}

/// One node's ranks on a card, the other's in host memory: every rank gets what all get in host memory.
void check_mixed(Report& report) {
    const Cluster cluster(2, kOpenSocket);
    JobPlan plan;
    plan.elements = "33,4101,70000,600000";
    int number = 0;
    for (const char* codec : {"topk(0.01) | pow2(bits=4) | auto", "lowrank(2, columns=square)",
                              "accumulate(2) | topk(0.02, scope=model, gate=1) | sign | auto",
                              "momentum | compensate(lowpass=0.5) | accumulate(2) | lowrank(3, columns=100)",
                              "momentum | delta | block_topk(0.01) | pow2(bits=4) | auto",
                              "topk(0.01) | pow2(bits=4) | auto; budget_bytes_per_step = 20000",
                              "momentum | compensate(lowpass=0.5) | accumulate(2) | sketch(0.02)"}) {
        plan.codec = codec;
        plan.name = fmt::format("mixed-{}", ++number);
        plan.memory = "host";
        const auto expected = hash_of(run_job(cluster, 2, plan, report));
        std::vector<Process> ranks;
        for (std::size_t rank = 0; rank < plan.world; ++rank) {
            plan.memory = rank * 2 < plan.world ? "device" : "host";
            ranks.push_back(start_rank(cluster, plan, 2, rank));
        }
        for (const auto& answer : collect(ranks, plan, report)) {
            const auto found = hash_of({answer});
            report.expect(
                !expected.empty() && found == expected,
                fmt::format("{} on a card and in host memory: {}, {} in host memory", codec, found, expected));
        }
    }
}

/// A node that sends nothing in a step keeps its state, on the card as in host memory.
void check_not_finite(Report& report, std::size_t devices) {
    const Cluster cluster(2, kOpenSocket);
    JobPlan plan;
    plan.name = "zero";
    plan.codec = "momentum | delta | topk(0.01) | pow2(bits=4) | auto";
    plan.elements = "33,70000";
    plan.world = 4;
    plan.bad = 2;
    plan.devices = devices;
    plan.is_spread = true;
    check_against_host(cluster, 2, plan, report);
}

/// Many tensors in batches that follow each other: two under way, the last one alone.
void check_batches(Report& report) {
    const Cluster cluster(2, std::string(kOpenSocket) + "[gpu]\nbatch_elements = 5000\n");
    int number = 0;
    for (const char* elements : {"4101,4101,33,900,4000,70000,1,4101,2000", "4101,1"}) {
        JobPlan plan;
        plan.codec = "topk(0.01) | pow2(bits=4) | auto";
        plan.elements = elements;
        plan.name = std::to_string(++number);
        check_against_host(cluster, 2, plan, report);
    }
}

/// Under the sharded plan the host codes every tensor: one on a device is staged, without a word of the program's.
void check_host_only(Report& report) {
    const Cluster cluster(2, std::string(kOpenSocket) + "[codec]\nplan = \"sharded\"\n");
    JobPlan plan;
    plan.codec = "topk(0.01) | pow2(bits=4) | auto";
    plan.elements = "33,4101,70000,1100000";
    std::vector<std::string> hashes;
    for (const char* memory : {"host", "device"}) {
        plan.memory = memory;
        plan.name = fmt::format("{}-sharded", memory);
        hashes.push_back(hash_of(run_job(cluster, 2, plan, report)));
    }
    report.expect(!hashes[0].empty() && hashes[0] == hashes[1],
                  fmt::format("the sharded plan: host {} device {}", hashes[0], hashes[1]));
}

/// Device memory that cannot be shared: through host memory with the same bits, said in the status, refused on demand.
void check_staged(Report& report) {
    const Cluster cluster(2, kOpenSocket);
    JobPlan plan;
    plan.codec = "topk(0.01) | pow2(bits=4) | auto";
    plan.elements = "33,4101,70000,600000";
    for (const char* type : {"f32", "bf16"})
        for (const std::size_t samples : {std::size_t{1}, std::size_t{3}}) {
            plan.type = type;
            plan.samples = samples;
            std::vector<std::string> hashes;
            for (const char* memory : {"host", "device", "staged"}) {
                plan.memory = memory;
                plan.name = fmt::format("{}-{}-{}", memory, type, samples);
                hashes.push_back(hash_of(run_job(cluster, 2, plan, report)));
            }
            report.expect(!hashes[0].empty() && hashes[0] == hashes[1] && hashes[0] == hashes[2],
                          fmt::format("staged, {} with {} samples: host {} device {} staged {}", type, samples,
                                      hashes[0], hashes[1], hashes[2]));
        }
    plan.type = "f32";
    plan.samples = 1;
    plan.codec = "topk(0.01) | pow2(bits=4) | auto";
    plan.memory = "staged";
    plan.name = "required";
    plan.world = 1;
    plan.require = "cuda-ipc";
    auto refused = start_rank(cluster, plan, 1, 0);
    const auto code = refused.wait_for_exit(Milliseconds(120'000));
    report.expect(code == 3 && refused.output().find("which require = ") != std::string::npos,
                  "staged: require refuses it: " + refused.output());
    plan.name = "shown";
    plan.require.clear();
    plan.steps = 100'000;
    const auto shown = start_rank(cluster, plan, 1, 0);
    const bool is_shown = cluster.wait_for_status(0, [](const json& status) {
        const auto& jobs = status.value("jobs", json::array());
        return !jobs.empty() && !jobs[0]["tensors"].empty() && jobs[0]["tensors"][0].value("place", "") == "staged";
    });
    report.expect(is_shown, "staged: the status shows it");
}

void check_killed_rank(const Options& options, const char* codec, Report& report) {
    Cluster cluster(1, kOpenSocket);
    JobPlan plan;
    plan.name = "killed";
    plan.codec = codec;
    plan.elements = options.is_small ? "200000,4101" : "20000000,4101";
    plan.world = 2;
    plan.steps = 100'000;
    auto first = start_rank(cluster, plan, 1, 0);
    auto second = start_rank(cluster, plan, 1, 1);
    report.expect(!await_steps(cluster, 3).is_null(), "killed: the job runs");
    second.send_signal(SIGKILL);
    const auto code = first.wait_for_exit(Milliseconds(10'000));
    report.expect(code == 3 && first.output().find("rank 1") != std::string::npos,
                  "killed: the other rank is told who died: " + first.output());
    plan.name = "after";
    plan.steps = 3;
    report.expect(!run_job(cluster, 1, plan, report).empty(), "killed: the daemon serves the next job");
}

/// Only an emulated card breaks on request: at a kernel that ranks, which start few, never come to.
void check_lost_gpu(Report& report) {
    const auto devices = codec::cuda::list_devices();
    if (!devices.is_ok() || devices->front().name != "emulated card")
        return report.skip("a GPU that is lost: only an emulated card breaks on request");
    ::setenv("GRADSIEVE_EMULATED_FAULT", "200", 1);
    Cluster cluster(1, kOpenSocket);
    ::unsetenv("GRADSIEVE_EMULATED_FAULT");
    JobPlan plan;
    plan.name = "lost";
    plan.codec = "topk(0.01) | pow2 | auto";
    plan.elements = "4101";
    plan.world = 2;
    plan.steps = 100'000;
    std::vector<Process> ranks;
    for (std::size_t rank = 0; rank < plan.world; ++rank) ranks.push_back(start_rank(cluster, plan, 1, rank));
    for (auto& rank : ranks) {
        const auto code = rank.wait_for_exit(Milliseconds(120'000));
        const bool is_named = rank.output().find("cudaErrorLaunchFailure") != std::string::npos;
        report.expect(code == 3 && is_named, "lost GPU: every rank is told the cause: " + rank.output());
    }
    const auto code = cluster.daemon(0).wait_for_exit(Milliseconds(120'000));
    report.expect(code == 5, fmt::format("lost GPU: the daemon ends with status 5, not {}", code.value_or(-1)));
    cluster.restart_daemon(0);
    plan.name = "found";
    plan.steps = 3;
    report.expect(!run_job(cluster, 1, plan, report).empty(), "lost GPU: a new daemon uses it again");
}

/// "encode 0.41, exchange 1.02, decode 0.30 ms" of a step behind so many, by the daemon's own clock.
std::string parts_of_step(const Cluster& cluster, std::size_t steps) {
    auto job = await_steps(cluster, steps);
    if (job.is_null()) return "no status";
    const auto& times = job["step_ms"];
    return fmt::format("encode {}, exchange {}, decode {}", times["encode"].dump(), times["exchange"].dump(),
                       times["decode"].dump());
}

/// With several nodes, their traffic in plain text or encrypted.
void measure(const Options& options, Report& report, std::size_t nodes, const JobPlan& plan,
             e2e::Security security = e2e::Security::kPlain) {
    const Cluster cluster(nodes, kOpenSocket, "127.0.0.1", false, security);
    std::vector<Process> ranks;
    for (std::size_t rank = 0; rank < plan.world; ++rank) ranks.push_back(start_rank(cluster, plan, nodes, rank));
    // Small jobs are over too soon.
    const auto parts = options.is_small ? "" : "; one step: " + parts_of_step(cluster, plan.steps / 5);
    const auto answers = collect(ranks, plan, report);
    if (answers.empty()) return;
    const auto& answer = answers.front();
    report.figure(
        fmt::format("{:<36} {:>9} elements, {} nodes, {} ranks, {} GPUs{}: {:8.3f} ms (p10 {:.3f}, p90 {:.3f}){}",
                    plan.codec, plan.elements, nodes, plan.world, plan.devices,
                    nodes < 2                           ? ""
                    : security == e2e::Security::kCurve ? ", CURVE"
                                                        : ", plain text",
                    answer.value("median_ms", 0.0), answer.value("p10_ms", 0.0), answer.value("p90_ms", 0.0), parts));
}

}  // namespace

void check_end_to_end(const Options& options, Report& report) {
    const auto devices = device_count();
    check_staged(report);
    check_host_only(report);
    check_batches(report);
    check_mixed(report);
    check_not_finite(report, std::min<std::size_t>(2, devices));
    check_similarity_end_to_end(report);
    if (!options.is_small) check_same_as_host(options, report, 1, 1, false);
    check_same_as_host(options, report, 2, 1, false);
    if (::geteuid() == 0)
        check_same_as_host(options, report, 1, 1, true);
    else
        report.skip("ranks of another user than the daemon's: needs root");
    if (devices > 1)
        check_same_as_host(options, report, 2, 2, false);
    else
        report.skip("nodes on two GPUs: this host has one");
    for (const char* codec : {"topk(0.01) | pow2 | auto", "topk(0.01, scope=model) | pow2 | auto"})
        check_killed_rank(options, codec, report);
    check_lost_gpu(report);
}

void measure_end_to_end(const Options& options, Report& report) {
    const auto devices = std::min<std::size_t>(2, device_count());
    JobPlan plan;
    plan.name = "speed";
    plan.world = 2;
    plan.steps = options.is_few ? 30 : 100;
    plan.wants_hash = false;
    for (const char* codec : {"variance(1.6) | pow2(bits=4) | auto", "topk(0.01) | pow2(bits=4) | auto", "all | f32"}) {
        plan.codec = codec;
        plan.elements = options.is_small ? "20000" : "103000000";
        plan.devices = 1;
        measure(options, report, 1, plan);
        plan.devices = devices;  // for two nodes a GPU each, if there are two
        measure(options, report, 2, plan);
        measure(options, report, 2, plan, e2e::Security::kCurve);
        plan.is_spread = true;
        if (devices > 1) measure(options, report, 1, plan);  // its two ranks share both GPUs
        plan.is_spread = false;
    }
    plan.codec = "topk(0.01) | pow2(bits=4) | auto";
    plan.elements = "4";
    plan.devices = 1;
    measure(options, report, 1, plan);
}

}  // namespace gradsieve::gpu_check
