// Whole jobs whose codec measures similarity, or skips steps: averages and what the status says of each tensor are, bit
// for bit and figure by figure, those of the same job in host memory; with one node on a card and one in host memory,
// and with ranks on two cards.
#include "job_runs.hpp"
#include "similarity_sections.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gradsieve::gpu_check {
namespace {

using e2e::Cluster;
using e2e::Milliseconds;
using e2e::Process;
using nlohmann::json;

constexpr std::size_t kHoldStep = 6;
constexpr auto kLong = Milliseconds(120'000);

struct Seen {
    std::string hash;
    std::vector<json> figures;  ///< of the tensors of the last node, once the step before the held one is committed
};

/// `memory_of` a rank.
template <typename MemoryOf>
Seen run(const Cluster& cluster, std::size_t nodes, JobPlan plan, const MemoryOf& memory_of, Report& report) {
    std::vector<Process> ranks;
    for (std::size_t rank = 0; rank < plan.world; ++rank) {
        plan.memory = memory_of(rank);
        ranks.push_back(start_rank(cluster, plan, nodes, rank));
    }
    Seen seen;
    const bool is_held = cluster.wait_for_status(
        nodes - 1,  // where the rank that waits is: nothing of its step is coded there
        [&](const json& status) {
            const auto& jobs = status.value("jobs", json::array());
            // A job before it under the same name may still be there: it has come further.
            const auto job = std::ranges::find_if(jobs, [&](const json& one) {
                return one.value("name", "") == plan.name &&
                       one["groups"][0].value("committed_step", std::size_t{0}) + 1 == kHoldStep;
            });
            if (job == jobs.end()) return false;
            for (const auto& tensor : (*job)["tensors"]) {
                json figures;
                for (const char* key :
                     {"similarity", "similarity_bits_differ", "reuse_share", "reused_steps", "reuse_saved_bytes"})
                    if (tensor.contains(key)) figures[key] = tensor[key];
                seen.figures.push_back(std::move(figures));
            }
            return true;
        },
        kLong);
    report.expect(is_held, plan.codec + ": the job comes to the step that is held back");
    ranks.back().say("go");
    seen.hash = hash_of(collect(ranks, plan, report));
    return seen;
}

void compare(const Seen& seen, const Seen& expected, const JobPlan& plan, const std::string& where, Report& report) {
    report.expect(!expected.hash.empty() && seen.hash == expected.hash,
                  fmt::format("{}, {}: {}, {} in host memory", plan.codec, where, seen.hash, expected.hash));
    report.expect(!expected.figures.empty() && seen.figures == expected.figures,
                  fmt::format("{}, {}: status {}, {} in host memory", plan.codec, where, json(seen.figures).dump(),
                              json(expected.figures).dump()));
}

}  // namespace

void check_similarity_end_to_end(Report& report) {
    const Cluster cluster(2, kOpenSocket);
    JobPlan plan;
    plan.elements = "33,4101,70000";
    plan.steps = 7;
    plan.hold = kHoldStep;
    plan.sets = 1;  // the same gradient in every step
    for (const char* codec :
         {"similarity | topk(0.01) | pow2(bits=4) | auto", "similarity | topk(0.02, scope=model) | pow2(bits=4)",
          "similarity(skip=0.5, most=2) | all | natural"}) {
        plan.codec = codec;
        plan.name = fmt::format("similarity-{}", plan.codec.size());
        const auto expected = run(
            cluster, 2, plan, [](std::size_t) { return "host"; }, report);
        const auto on_card = run(
            cluster, 2, plan, [](std::size_t) { return "device"; }, report);
        compare(on_card, expected, plan, "on a card", report);
        const auto mixed = run(
            cluster, 2, plan, [&](std::size_t rank) { return rank * 2 < plan.world ? "host" : "device"; }, report);
        compare(mixed, expected, plan, "on a card and in host memory", report);
        if (expected.figures.empty() || !expected.figures.back().contains("reused_steps")) continue;
        report.expect(expected.figures.back().value("reused_steps", 0) > 0, "steps are skipped");
        if (device_count() < 2) {
            report.skip("skipped steps on two GPUs: this host has one");
            continue;
        }
        plan.devices = 2;
        plan.is_spread = true;
        const auto spread = run(
            cluster, 2, plan, [](std::size_t) { return "device"; }, report);
        compare(spread, expected, plan, "on two cards", report);
    }
}

}  // namespace gradsieve::gpu_check
