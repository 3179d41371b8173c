// Batches of kills, each a whole run: its averages, the state that it keeps in the end and what is left behind are
// compared with an undisturbed run's.
#include "tests/survive/faults.hpp"
#include "tests/survive/observed_run.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <csignal>
#include <random>

namespace gradsieve::survive {
namespace {

constexpr std::uint64_t kKillsOfRun = 20;
constexpr std::uint64_t kStepsOfKill = 45;  // most of them pass while what was killed comes back
constexpr std::uint64_t kLastSteps = 60;    // after the last kill
constexpr Milliseconds kNamedWithin(5'000);
constexpr double kMassMax = 1e-6;  // rounding of float32 residuals, of the mass that was handed in
const char* const kCodecs[] = {"topk(0.02) | pow2(bits=4) | auto", "variance(alpha=1.5) | pow2(bits=4) | auto",
                               "momentum(0.9) | topk(0.02) | pow2(bits=4) | auto"};
const std::string kResidualsAlone = kCodecs[0];

/// What all runs come to.
struct Sum {
    FaultRow rank{"kill -9 of a training process",
                  0,
                  "every other rank, on every node, gets an error that names it within a second",
                  {},
                  1'000,
                  {},
                  {},
                  {},
                  {},
                  {},
                  {},
                  ""};
    FaultRow daemon{"kill -9 of a daemon",
                    0,
                    "its training processes get `unavailable` within the deadline of the call that they are in",
                    {},
                    static_cast<double>(RunSetting().deadline.count()),
                    {},
                    {},
                    {},
                    {},
                    {},
                    {},
                    ""};
    FaultRow peer{
        "kill -9 of a daemon, seen by its peer", 0, "named within 0.2 s", {}, 200, {}, {}, {}, {}, {}, {}, ""};
    FaultRow all{"all of these kills",
                 0,
                 "the averages and, after the last step, the kept state of an undisturbed run, bit for bit; nothing "
                 "left but socket and "
                 "status page; no call beyond its deadline",
                 {},
                 {},
                 0,
                 0,
                 0.0,
                 0,
                 0,
                 {},
                 ""};
    std::uint64_t together = 0;  ///< kills of several processes at once
    std::uint64_t soon = 0;      ///< while the one before was still being mended
    std::uint64_t partly_read = 0;
};

class KilledRun {
public:
    KilledRun(const RunSetting& setting, std::uint64_t seed, Sum& sum)
        : random_(static_cast<std::mt19937::result_type>(seed)), run_(setting), setting_(setting), sum_(sum) {}

    void kill(std::uint64_t kills) {
        std::uint64_t done = 0;
        while (done < kills && run_.troubles.empty()) {
            const bool is_soon = done > 0 && random_() % 3 == 0;
            if (!is_soon && !wait_for_recovery()) return;
            if (run_.newest_step() + kLastSteps > setting_.steps) return;
            run_.pump_for(std::chrono::microseconds(is_soon ? random_() % 200'000 : random_() % 6'000));
            done += strike(1 + random_() % 7, is_soon);
        }
    }
    ObservedRun& run() { return run_; }

private:
    /// Nodes are at most a step apart: two steps after the newest one the job runs again on all of them.
    bool wait_for_recovery() {
        run_.pump_until([] { return true; }, Milliseconds(0));
        return run_.wait_for_step(random_() % kWorld, run_.newest_step() + 2 + random_() % 8);
    }
    /// Kills what the bits of `victims` say: daemon a, daemon b, a rank. How many that was.
    std::uint64_t strike(std::uint64_t victims, bool is_soon) {
        const auto rank = random_() % kWorld;
        const auto count = static_cast<std::uint64_t>(std::popcount(victims));
        const std::size_t logged[] = {run_.daemon_output(0).size(), run_.daemon_output(1).size()};
        const auto said = run_.ledger().again.size();
        const bool is_up[] = {run_.calls_peer_up(1), run_.calls_peer_up(0)};  // as the other one calls it
        const auto at = std::chrono::steady_clock::now();
        for (std::size_t node = 0; node < kNodes; ++node)
            if ((victims >> node & 1U) != 0) run_.cluster().daemon(node).send_signal(SIGKILL);
        if ((victims & 4U) != 0) run_.kill_rank(rank);
        if (count == 1 && !is_soon) {
            if ((victims & 4U) != 0) {
                await_rank_named(rank, said, at);
            } else {
                const std::size_t node = victims == 1 ? 0 : 1;
                if (is_up[node]) await_daemon_named(node, logged[1 - node], at);
                await_daemon_told(node, said, at);
            }
        }
        for (std::size_t node = 0; node < kNodes; ++node)
            if ((victims >> node & 1U) != 0) revive_daemon(node);
        if ((victims & 4U) != 0) run_.start_rank(rank);
        sum_.rank.injected += (victims & 4U) != 0 ? 1 : 0;
        sum_.daemon.injected += count - ((victims & 4U) != 0 ? 1 : 0);
        sum_.together += count > 1 ? count : 0;
        sum_.soon += is_soon ? count : 0;
        return count;
    }
    void revive_daemon(std::size_t node) {
        run_.cluster().kill_daemon(node);  // dead already: waits until it is gone
        run_.look_at_folder(node);
        run_.cluster().restart_daemon(node);
    }
    /// Whether all of `ranks` have said "again" since, with `words` in what the first of them was told; how long it
    /// took.
    std::optional<double> told(const std::set<std::size_t>& ranks, std::size_t said, const std::string& words,
                               Instant at) {
        std::map<std::size_t, RunLedger::Again> first;
        const bool are_told = run_.pump_until(
            [&] {
                for (auto place = said; place < run_.ledger().again.size(); ++place)
                    if (const auto& again = run_.ledger().again[place]; ranks.count(again.rank) > 0)
                        first.emplace(again.rank, again);
                return first.size() == ranks.size();
            },
            setting_.deadline);
        double longest = 0;
        for (const auto& [rank, again] : first) {
            longest = std::max(longest, std::chrono::duration<double, std::milli>(again.at - at).count());
            if (again.text.find(words) == std::string::npos)
                sum_.all.breaches.push_back(
                    fmt::format("rank {} was told '{}', which lacks '{}'", rank, again.text, words));
        }
        if (!are_told) return std::nullopt;
        return longest;
    }
    void await_rank_named(std::size_t rank, std::size_t said, Instant at) {
        std::set<std::size_t> others;
        for (std::size_t other = 0; other < kWorld; ++other)
            if (other != rank) others.insert(other);
        if (const auto took = told(others, said, "rank " + std::to_string(rank), at))
            sum_.rank.detection_ms.push_back(*took);
        else
            sum_.rank.breaches.push_back("a dead rank was not told to all");
    }
    /// One that is called closed still, since not all connections stand again, is not named anew.
    void await_daemon_named(std::size_t node, std::size_t logged, Instant at) {
        const auto name = std::string(1, static_cast<char>('a' + node));
        ++sum_.peer.injected;
        if (const auto named = run_.wait_for_word(1 - node, name + " is closed", logged, kNamedWithin))
            sum_.peer.detection_ms.push_back(std::chrono::duration<double, std::milli>(*named - at).count());
        else
            sum_.peer.breaches.push_back("a dead daemon was not named in 5 s");
    }
    void await_daemon_told(std::size_t node, std::size_t said, Instant at) {
        if (const auto took = told({2 * node, 2 * node + 1}, said, "unavailable", at))
            sum_.daemon.detection_ms.push_back(*took);
        else
            sum_.daemon.breaches.push_back("a dead daemon's ranks were not told within their deadline");
    }

    std::mt19937 random_;
    ObservedRun run_;
    RunSetting setting_;
    Sum& sum_;
};

void compare(ObservedRun& run, ObservedRun& reference, const RunSetting& setting, Sum& sum, const std::string& name) {
    auto& all = sum.all;
    const auto& ledger = run.ledger();
    for (const auto& trouble : run.troubles) all.breaches.push_back(name + ": " + trouble);
    if (!run.troubles.empty()) return;  // what it came to is not known
    *all.steps += groups().size() * setting.steps;
    for (const auto& [group, step] : ledger.unread(setting.steps)) {
        ++*all.steps_lost;
        all.breaches.push_back(fmt::format("{}: no rank got the average of step {}, group '{}'", name, step, group));
    }
    for (const auto& [step, average] : ledger.averages) {
        if (average.readers.size() < kWorld) ++sum.partly_read;
        if (average.digest.empty() || average.digest == reference.ledger().averages.at(step).digest) continue;
        ++*all.steps_lost;
        all.breaches.push_back(fmt::format("{}: other bits in step {}", name, step.second));
    }
    for (const auto& conflict : ledger.conflicts) all.breaches.push_back(name + ": " + conflict);
    if (run.kept != reference.kept) all.breaches.push_back(name + ": the state after the last step differs");
    if (setting.codec == kResidualsAlone) {
        const auto lost = ledger.lost_mass(setting.steps, kWorld, run.residuals);
        if (!(lost <= kMassMax))
            all.breaches.push_back(fmt::format("{}: {:.1e} of the gradients' mass is nowhere", name, lost));
        all.mass_lost = std::max(*all.mass_lost, lost);
    }
    *all.waits_overdue += ledger.overdue.size();
    for (const auto& overdue : ledger.overdue) all.breaches.push_back(name + ": beyond its deadline: " + overdue);
    *all.residue += run.residue.size();
    for (const auto& left : run.residue) all.breaches.push_back(name + ": left behind: " + left);
}

}  // namespace

std::vector<FaultRow> kills(const Amount& amount, Progress& progress) {
    Sum sum;
    const auto of_run = std::min(kKillsOfRun, std::max<std::uint64_t>(amount.kills, 1));
    RunSetting setting;
    setting.configuration = "[network]\nheartbeat_ms = 100\nsilent_ms = 2000\n";
    setting.steps = of_run * kStepsOfKill + kLastSteps;
    std::map<std::string, std::unique_ptr<ObservedRun>> references;
    const auto done = [&] { return sum.rank.injected + sum.daemon.injected; };
    std::uint64_t batches = 0;
    for (; done() < amount.kills && sum.all.breaches.size() < 20; ++batches) {
        setting.codec = kCodecs[batches % std::size(kCodecs)];
        auto& reference = references[setting.codec];
        progress.say(fmt::format("kills: {} of {}, run {}, {}", done(), amount.kills, batches + 1, setting.codec));
        if (!reference) {
            reference = std::make_unique<ObservedRun>(setting);
            reference->finish();
            for (const auto& trouble : reference->troubles) sum.all.breaches.push_back("undisturbed: " + trouble);
            if (!reference->troubles.empty()) break;
        }
        const auto seed = amount.seed + batches;
        KilledRun killed(setting, seed, sum);
        killed.kill(std::min(of_run, amount.kills - done()));
        killed.run().finish();
        compare(killed.run(), *reference, setting, sum, fmt::format("run of seed {}", seed));
    }
    for (auto* row : {&sum.rank, &sum.daemon, &sum.peer}) row->judge_detection();
    sum.all.injected = done();
    sum.all.note = fmt::format(
        "{} runs; {} processes killed together with others, {} while the kill before was still being mended; {} "
        "averages "
        "reached some ranks alone, since the others died or lost their daemon in between",
        batches, sum.together, sum.soon, sum.partly_read);
    return {sum.rank, sum.daemon, sum.peer, sum.all};
}

}  // namespace gradsieve::survive
