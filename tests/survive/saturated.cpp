// Rounds over a link that is never idle: bytes that wait are no silence, and nobody may be taken for dead. As root.
#include "tests/survive/faults.hpp"
#include "tests/survive/interruption.hpp"
#include "tests/survive/namespaces.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <set>

namespace gradsieve::survive {
namespace {

using e2e::Milliseconds;

constexpr std::uint64_t kBitsPerS = 100'000'000;
constexpr std::uint64_t kBurstBytes = 16'384;  // less than a payload: all of it feels the limit
constexpr double kSaturated = 0.75;            // of the rate, in the mean over the run
constexpr Milliseconds kLook(1'000);
constexpr std::chrono::minutes kEndWithin(30);
/// 107 kB a round and node.
const std::vector<std::string> kOptions{"--codec",      "all | f32", "--scale", "190",
                                        "--timeout-ms", "60000",     "--job",   "saturated"};

}  // namespace

std::vector<FaultRow> saturated(const Amount& amount, Progress& progress) {
    FaultRow row{"none: a link of 100 Mbit/s that is kept busy",
                 0,
                 "no peer is named silent, closed or failed, and no step fails",
                 {},
                 {},
                 amount.rounds,
                 {},
                 {},
                 {},
                 {},
                 {},
                 ""};
    if (::geteuid() != 0) {
        row.note = "not done: needs root";
        return {row};
    }
    const Namespaces namespaces;
    namespaces.limit(kBitsPerS, kBurstBytes);
    e2e::Cluster cluster(2, "", "", false, e2e::Security::kPlain, 0, namespaces.places());
    for (const std::size_t node : {0U, 1U})
        if (!cluster.wait_for_status(node, [&](const auto& json) { return json["peers"][1 - node]["state"] == "up"; }))
            row.breaches.emplace_back("the nodes do not reach each other");
    std::size_t before[2];
    for (const std::size_t node : {0U, 1U}) {
        static_cast<void>(cluster.daemon(node).wait_for_line("\n", Milliseconds(0)));
        before[node] = cluster.daemon(node).output().size();
    }
    const auto sent_before = namespaces.sent_bytes(0);
    const auto begin = std::chrono::steady_clock::now();
    auto options = kOptions;
    options.insert(options.end(), {"--steps", std::to_string(amount.rounds)});
    auto ranks = cluster.ranks(2, options);
    std::set<std::string> digests;
    for (auto& rank : ranks) {
        std::optional<std::string> digest;
        while (!(digest = rank.wait_for_line("digest ", kLook))) {
            throw_if_interrupted();
            for (const std::size_t node : {0U, 1U})
                static_cast<void>(cluster.daemon(node).wait_for_line("\n", Milliseconds(0)));
            const auto mb = static_cast<double>(namespaces.sent_bytes(0) - sent_before) / 1e6;
            progress.say(fmt::format("saturated link: {:.0f} MB of about {:.0f}", mb,
                                     0.111 * static_cast<double>(amount.rounds)));
            if (rank.output().find("error ") != std::string::npos ||
                std::chrono::steady_clock::now() - begin > kEndWithin)
                break;
        }
        if (digests.empty()) {
            const auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
            const auto share = 8.0 * static_cast<double>(namespaces.sent_bytes(0) - sent_before) / took /
                               static_cast<double>(kBitsPerS);
            row.note = fmt::format("{:.0f} % of the rate in the mean, both ways, for {:.0f} s", 100 * share, took);
            if (share < kSaturated && amount.rounds >= 1'000)
                row.breaches.push_back("the link was not saturated: " + row.note);
        }
        digests.insert(digest.value_or("none"));
        if (rank.wait_for_exit() != 0) row.breaches.push_back("a rank ended otherwise than well: " + rank.output());
    }
    if (digests.size() != 1 || digests.count("none") > 0) row.breaches.emplace_back("digests differ");
    for (const std::size_t node : {0U, 1U}) {
        static_cast<void>(cluster.daemon(node).wait_for_line("\n", Milliseconds(0)));
        const auto said = cluster.daemon(node).output().substr(before[node]);
        if (said.find(" is silent") != std::string::npos || said.find(" is closed") != std::string::npos)
            row.breaches.push_back("a peer was named that was there: " + said);
    }
    if (row.breaches.empty()) row.steps_lost = 0;
    return {row};
}

}  // namespace gradsieve::survive
