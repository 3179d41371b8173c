// Long runs of every stage on two daemons that live through all of them: the digests of all ranks, and what the daemons
// hold.
#include "tests/survive/faults.hpp"
#include "tests/survive/interruption.hpp"
#include "tests/survive/residue.hpp"

#include "tests/e2e/cluster.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <set>

namespace gradsieve::survive {
namespace {

using e2e::Milliseconds;

constexpr std::size_t kRanks = 2;
constexpr Milliseconds kLook(1'000);
/// Memory of a daemon may grow by so much over all rounds: the allocator's arenas, not a share for each round.
constexpr std::uint64_t kGrowthMaxBytes = 8U << 20U;
/// Mappings of the allocator and of threads' stacks, likewise.
constexpr std::uint64_t kMappingsMore = 32;
constexpr Milliseconds kTidyWithin(10'000);
/// Together they hold every stage of the table; `rounds` says so if one is missing.
const char* const kCodecs[] = {"all | f32",
                               "all | f16",
                               "all | bf16",
                               "all | pow2(bits=4)",
                               "all | sign",
                               "all | sign(scale=two_mean)",
                               "all | sign(scale=none)",
                               "all | dither(levels=7)",
                               "all | exponential_dither(levels=7)",
                               "all | ternary",
                               "all | minmax(bits=4)",
                               "all | natural | entropy",
                               "all | rounding",
                               "variance(alpha=1.5) | pow2(bits=4) | auto",
                               "variance(alpha=1, mode=faithful) | f32 | rice",
                               "variance_hybrid(8) | sign(scale=tau) | bitmap",
                               "topk(0.01) | pow2(bits=4) | auto",
                               "topk(0.05, scope=model) | bf16 | raw32",
                               "topk(0.01) | dither(levels=7) | elias_fano",
                               "threshold(100) | f32 | rice",
                               "block_topk(0.05) | pow2(bits=4) | auto",
                               "gaussian_k(0.05) | pow2(bits=4) | auto",
                               "sidco(0.05) | pow2(bits=4) | auto",
                               "randk(0.1) | f32",
                               "bernoulli(0.1) | f32",
                               "biased_random(0.01, 0.2) | f32 | auto",
                               "adaptive_random(0.05) | pow2(bits=4) | auto",
                               "momentum(0.9) | topk(0.01) | pow2(bits=4) | auto",
                               "similarity | topk(0.01) | pow2(bits=4) | auto",
                               "similarity(skip=0.5) | all | dither(levels=7)",
                               "compensate(beta=0.9) | topk(0.01) | pow2(bits=4) | auto",
                               "accumulate(4) | all | bf16",
                               "warmup(5000) | topk(0.01) | pow2(bits=4) | auto",
                               "delta | topk(0.01) | pow2(bits=4) | auto",
                               "rotate | all | sign",
                               "topk(0.05) | integer(100) | rice",
                               "lowrank(1)",
                               "sketch(0.01)",
                               "topk(0.01) | pow2(bits=4) | auto; budget_bytes_per_step = 3000"};

/// Stages of the tool's table that no codec above names.
std::vector<std::string> missing_stages() {
    const auto table = nlohmann::json::parse(e2e::run({E2E_TOOL, "codecs", "--json"}).output, nullptr, false);
    std::vector<std::string> missing;
    if (!table.is_array() || table.empty()) return {"`gradsieve codecs --json` has no stages"};
    for (const auto& row : table) {
        const auto name = row["name"].get<std::string>();
        const bool is_there = std::ranges::any_of(kCodecs, [&](const std::string codec) {
            for (auto at = codec.find(name); at != std::string::npos; at = codec.find(name, at + 1)) {
                const auto next = codec.find_first_of(" (", at);
                if ((at == 0 || codec[at - 1] == ' ') &&
                    (next == std::string::npos ? codec.size() : next) == at + name.size())
                    return true;
            }
            return false;
        });
        if (!is_there) missing.push_back("stage '" + name + "' is in none of the codecs");
    }
    return missing;
}

/// What both daemons hold, once that is no more than `before` in descriptors and memfds, or when it has been waited for
/// long.
std::vector<Holdings> settled(e2e::Cluster& cluster, const std::vector<Holdings>& before) {
    const auto deadline = std::chrono::steady_clock::now() + kTidyWithin;
    std::vector<Holdings> found;
    do {
        found.clear();
        for (const std::size_t node : {0U, 1U}) found.push_back(holdings_of(cluster.daemon(node).pid()));
    } while (std::chrono::steady_clock::now() < deadline &&
             (found[0].descriptors > before[0].descriptors || found[1].descriptors > before[1].descriptors ||
              found[0].memory_mappings > before[0].memory_mappings ||
              found[1].memory_mappings > before[1].memory_mappings));
    return found;
}

FaultRow run_codec(e2e::Cluster& cluster, const std::string& codec, const Amount& amount, Progress& progress,
                   const std::string& place) {
    FaultRow row{codec, amount.rounds, "equal digests on all nodes", {}, {}, amount.rounds, 0, {}, {}, {}, {}, ""};
    const char* steps_alike = codec.find("skip") == std::string::npos ? "1" : "5";  // or there is nothing to skip
    auto ranks = cluster.ranks(kRanks, {"--codec", codec, "--steps", std::to_string(amount.rounds), "--job", "rounds",
                                        "--run", place, "--samples", "2", "--times", "1", "--steady", steps_alike});
    std::set<std::string> digests;
    for (auto& rank : ranks) {
        std::optional<std::string> digest;
        const auto begin = std::chrono::steady_clock::now();
        while (!(digest = rank.wait_for_line("digest ", kLook))) {
            throw_if_interrupted();
            for (const std::size_t node : {0U, 1U})
                static_cast<void>(cluster.daemon(node).wait_for_line("\n", Milliseconds(0)));
            progress.say(fmt::format("rounds: {} of {} codecs, {}", place, std::size(kCodecs), codec));
            if (rank.output().find("error ") != std::string::npos ||
                std::chrono::steady_clock::now() - begin > std::chrono::minutes(20))
                break;
        }
        digests.insert(digest.value_or("none"));
        if (rank.wait_for_exit() != 0) row.breaches.push_back("a rank ended otherwise than well: " + rank.output());
        if (&rank == ranks.data())
            row.note = "median step " + rank.output().substr(rank.output().find("median-us ") + 10, 8);
    }
    row.note = row.note.substr(0, row.note.find('\n')) + " us";
    if (digests.size() != 1 || *digests.begin() == "none") row.breaches.push_back("digests differ");
    if (!row.breaches.empty()) row.steps_lost.reset();
    return row;
}

/// Of the two daemons, between before the first job and after the last; resident memory since after the first one.
void judge_soak(FaultRow& soak, const std::vector<Holdings>& before, const std::vector<Holdings>& first,
                const std::vector<Holdings>& last) {
    const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1U << 20U); };
    for (const std::size_t node : {0U, 1U}) {
        const auto name = std::string(1, static_cast<char>('a' + node));
        soak.note += fmt::format(
            "{}node {}: {} descriptors before, {} after; {} mapped memfds, {}; {} mappings, {}; {:.1f} MiB resident "
            "after the first job, {:.1f} after the last",
            soak.note.empty() ? "" : "; ", name, before[node].descriptors, last[node].descriptors,
            before[node].memory_mappings, last[node].memory_mappings, before[node].mappings, last[node].mappings,
            mib(first[node].resident_bytes), mib(last[node].resident_bytes));
        if (last[node].descriptors > before[node].descriptors)
            soak.breaches.push_back("node " + name + ": descriptors grow");
        if (last[node].memory_mappings > before[node].memory_mappings)
            soak.breaches.push_back("node " + name + ": mapped memfds grow");
        if (last[node].mappings > first[node].mappings + kMappingsMore)
            soak.breaches.push_back("node " + name + ": mappings grow");
        if (last[node].resident_bytes > first[node].resident_bytes + kGrowthMaxBytes)
            soak.breaches.push_back("node " + name + ": memory grows");
    }
}

}  // namespace

std::vector<FaultRow> rounds(const Amount& amount, Progress& progress) {
    std::vector<FaultRow> rows;
    e2e::Cluster cluster(2);
    static_cast<void>(cluster.wait_for_status(0, [](const auto& json) { return json["peers"][1]["state"] == "up"; }));
    static_cast<void>(cluster.wait_for_status(1, [](const auto& json) { return json["peers"][0]["state"] == "up"; }));
    const std::vector<Holdings> before{holdings_of(cluster.daemon(0).pid()), holdings_of(cluster.daemon(1).pid())};
    std::vector<Holdings> first;
    FaultRow soak{"none: the rounds of all codecs, one job after the other, on the same two daemons",
                  0,
                  "no descriptor and no mapped memfd more than before; after the first job no more than 8 MiB of "
                  "resident memory on top",
                  {},
                  {},
                  0,
                  {},
                  {},
                  {},
                  0,
                  missing_stages(),
                  ""};
    for (std::size_t place = 0; place < std::size(kCodecs); ++place) {
        rows.push_back(run_codec(cluster, kCodecs[place], amount, progress, std::to_string(place + 1)));
        *soak.steps += amount.rounds;
        if (place == 0) first = settled(cluster, before);
    }
    judge_soak(soak, before, first, settled(cluster, before));
    soak.residue = soak.breaches.size();
    rows.push_back(soak);
    return rows;
}

}  // namespace gradsieve::survive
