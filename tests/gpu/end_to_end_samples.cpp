// Whole jobs whose ranks hand in several micro-batches and second moments from a card: averages and what the nodes keep
// are, bit for bit, those of the same jobs through host memory; on one GPU and several, in half types, from memory that
// is staged, and where one node has a card and the other none.
#include "job_runs.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gradsieve::gpu_check {
namespace {

using e2e::Cluster;
using e2e::Process;

struct Handed {
    std::size_t samples;
    bool has_moment;
};
constexpr Handed kHanded[] = {{1, true}, {3, false}, {4, true}};

JobPlan plan_of(const char* codec, const Handed& handed, int number) {
    JobPlan plan;
    plan.codec = codec;
    plan.elements = "33,4101,70000";
    plan.samples = handed.samples;
    plan.has_moment = handed.has_moment;
    plan.wants_state = true;
    plan.name = fmt::format("samples-{}", number);
    return plan;
}

void check_same_as_host(const Options& options, Report& report, std::size_t nodes, std::size_t devices,
                        bool is_spread) {
    const Cluster cluster(nodes, kOpenSocket);
    int number = 0;
    for (const char* codec : {"variance(1.5) | pow2(bits=4) | auto", "variance_hybrid(0.5)", "topk(0.02, gate=1) | f32",
                              "accumulate(2) | topk(0.02, scope=model, gate=1) | sign | auto"})
        for (const auto& handed : kHanded) {
            auto plan = plan_of(codec, handed, ++number);
            if (options.is_few && number % 4 != 0) continue;  // 4, 8, 12: each way to hand in with another codec
            plan.devices = devices;
            plan.is_spread = is_spread;
            if (is_spread) plan.elements += ",1100000";  // which GPUs share
            check_against_host(cluster, nodes, plan, report);
        }
}

/// Other memory than the host's: half types are rounded before, and are so on the host as well.
void check_memories(Report& report) {
    const Cluster cluster(2, kOpenSocket);
    int number = 0;
    for (const char* type : {"f32", "bf16"})
        for (const auto& handed : kHanded) {
            auto plan = plan_of("variance(1.5) | pow2(bits=4) | auto", handed, ++number);
            plan.type = type;
            std::vector<std::string> hashes;
            for (const char* memory : {"host", "device", "staged"}) {
                plan.memory = memory;
                hashes.push_back(hash_of(run_job(cluster, 2, plan, report)));
            }
            report.expect(!hashes[0].empty() && hashes[0] == hashes[1] && hashes[0] == hashes[2],
                          fmt::format("{} with {} samples{}: host {} device {} staged {}", type, plan.samples,
                                      plan.has_moment ? " and a second moment" : "", hashes[0], hashes[1], hashes[2]));
        }
}

/// The first node's ranks on a card, the other's in host memory; and, refused, ranks of one node that differ.
void check_mixed(Report& report) {
    const Cluster cluster(2, kOpenSocket);
    auto plan = plan_of("variance(1.5) | pow2(bits=4) | auto", {2, true}, 1);
    plan.memory = "host";
    const auto expected = hash_of(run_job(cluster, 2, plan, report));
    std::vector<Process> ranks;
    for (std::size_t rank = 0; rank < plan.world; ++rank) {
        plan.memory = rank * 2 < plan.world ? "device" : "host";
        ranks.push_back(start_rank(cluster, plan, 2, rank));
    }
    const auto found = hash_of(collect(ranks, plan, report));
    report.expect(!expected.empty() && found == expected,
                  fmt::format("samples on a card and in host memory: {}, {} in host memory", found, expected));

    const Cluster single(1, kOpenSocket);
    plan.world = 2;
    plan.name = "differing";
    plan.memory = "device";
    const auto first = start_rank(single, plan, 1, 0);
    const bool is_there = single.wait_for_status(
        0, [](const nlohmann::json& status) { return status.contains("jobs") && !status["jobs"].empty(); });
    report.expect(is_there, "the first rank is there");
    plan.memory = "host";
    auto second = start_rank(single, plan, 1, 1);
    const auto code = second.wait_for_exit(e2e::Milliseconds(120'000));
    const bool is_named = second.output().find("allowed is one place for all ranks of a node") != std::string::npos;
    report.expect(code == 3 && is_named, "ranks of one node in different places are refused: " + second.output());
}

}  // namespace

void check_samples_end_to_end(const Options& options, Report& report) {
    check_memories(report);
    check_mixed(report);
    check_same_as_host(options, report, 2, 1, false);
    if (device_count() < 2) return report.skip("samples on GPUs that share tensors: this host has one");
    check_same_as_host(options, report, 1, 2, true);
}

}  // namespace gradsieve::gpu_check
