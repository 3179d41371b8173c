// Frozen processes. Several runs side by side: each is asleep most of the time.
#include "tests/survive/faults.hpp"
#include "tests/survive/interruption.hpp"
#include "tests/survive/observed_run.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <csignal>
#include <exception>
#include <mutex>
#include <random>
#include <thread>

namespace gradsieve::survive {
namespace {

constexpr std::uint64_t kSideBySide = 5;
constexpr std::uint64_t kFreezesOfOneRank = 5;  // so many freezes of daemons for each
constexpr std::uint64_t kStepsOfFreeze = 16;
constexpr std::uint64_t kLastSteps = 40;
constexpr double kNamedMs = 4'000;
constexpr Milliseconds kGiveUp(20'000);
constexpr unsigned kComputeMs = 20;
constexpr Milliseconds kDeadline(60'000);  // below it a call waits for who is silent

FaultRow frozen_daemon_row() {
    return {"SIGSTOP of a daemon, SIGCONT later",
            0,
            "named within 4 s, failed only after `peer_timeout_s`; it rejoins the round",
            {},
            kNamedMs,
            0,
            0,
            {},
            {},
            {},
            {},
            ""};
}
FaultRow frozen_rank_row() {
    return {"SIGSTOP of a training process, SIGCONT later",
            0,
            "late, not lost: waited for and shown in status; no step fails",
            {},
            kNamedMs,
            0,
            0,
            {},
            {},
            {},
            {},
            ""};
}

class FrozenRun {
public:
    FrozenRun(const RunSetting& setting, std::uint64_t seed)
        : random_(static_cast<std::mt19937::result_type>(seed)), run_(setting) {}

    void freeze_daemon() {
        if (!wait_for_a_moment()) return;
        const auto node = random_() % kNodes;
        const auto name = std::string(1, static_cast<char>('a' + node));
        const auto from = run_.daemon_output(1 - node).size();
        const auto at = std::chrono::steady_clock::now();
        run_.cluster().daemon(node).send_signal(SIGSTOP);
        ++daemons.injected;
        if (const auto named = run_.wait_for_word(1 - node, name + " is silent", from, kGiveUp))
            daemons.detection_ms.push_back(std::chrono::duration<double, std::milli>(*named - at).count());
        else
            daemons.breaches.push_back("a frozen daemon was not named in 20 s");
        run_.pump_for(std::chrono::milliseconds(random_() % 500));
        run_.cluster().daemon(node).send_signal(SIGCONT);
        if (!run_.wait_for_word(1 - node, name + " is up", from, kGiveUp))
            daemons.breaches.push_back("it did not come back in 20 s");
    }
    void freeze_rank() {
        if (!wait_for_a_moment()) return;
        const auto rank = random_() % kWorld;
        const auto at = std::chrono::steady_clock::now();
        run_.signal_rank(rank, SIGSTOP);
        ++ranks.injected;
        const auto is_late = [&](const auto& json) {
            if (json["jobs"].empty()) return false;
            for (const auto& wait : json["jobs"][0]["waiting"])
                for (const auto& late : wait["ranks"])
                    if (late == rank) return true;
            return false;
        };
        const bool is_shown = run_.cluster().wait_for_status(rank / 2, is_late, kGiveUp);
        if (is_shown)
            ranks.detection_ms.push_back(
                std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - at).count());
        else
            ranks.breaches.push_back("status does not show a late rank");
        run_.pump_for(std::chrono::milliseconds(random_() % 500));
        run_.signal_rank(rank, SIGCONT);
    }
    ObservedRun& run() { return run_; }
    FaultRow daemons = frozen_daemon_row();
    FaultRow ranks = frozen_rank_row();

private:
    /// One at which the job steps; false if it does not.
    bool wait_for_a_moment() {
        if (!run_.wait_for_step(random_() % kWorld, run_.newest_step() + 1 + random_() % 8)) return false;
        run_.pump_for(std::chrono::microseconds(random_() % (1'000 * kComputeMs)));
        return true;
    }

    std::mt19937 random_;
    ObservedRun run_;
};

void add(FaultRow& row, const FaultRow& part) {
    row.injected += part.injected;
    row.detection_ms.insert(row.detection_ms.end(), part.detection_ms.begin(), part.detection_ms.end());
    row.breaches.insert(row.breaches.end(), part.breaches.begin(), part.breaches.end());
}

}  // namespace

std::vector<FaultRow> freezes(const Amount& amount, Progress& progress) {
    auto daemons = frozen_daemon_row();
    auto ranks = frozen_rank_row();
    std::uint64_t done = 0;
    std::mutex lock;  // guards the four above
    const auto lanes = std::min(kSideBySide, std::max<std::uint64_t>(amount.freezes, 1));
    const auto live = [&](std::uint64_t lane) {
        const auto count = amount.freezes / lanes + (lane < amount.freezes % lanes ? 1 : 0);
        RunSetting setting;
        setting.codec = "topk(0.02) | pow2(bits=4) | auto";
        setting.compute_ms = kComputeMs;
        setting.deadline = kDeadline;
        setting.steps = (count + (count + kFreezesOfOneRank - 1) / kFreezesOfOneRank) * kStepsOfFreeze + kLastSteps;
        FrozenRun frozen(setting, amount.seed + lane);
        for (std::uint64_t freeze = 0; freeze < count && frozen.run().troubles.empty(); ++freeze) {
            frozen.freeze_daemon();
            if (freeze % kFreezesOfOneRank == 0) frozen.freeze_rank();
            const std::lock_guard guard(lock);
            progress.say(fmt::format("freezes: {} of {}, {} runs side by side", ++done, amount.freezes, lanes));
        }
        frozen.run().finish();
        const std::lock_guard guard(lock);
        add(daemons, frozen.daemons);
        add(ranks, frozen.ranks);
        judge_unfailed(daemons, frozen.run());
    };
    std::vector<std::thread> threads;
    for (std::uint64_t lane = 0; lane < lanes; ++lane)
        threads.emplace_back([&, lane] {
            try {
                live(lane);
            } catch (const std::exception& error) {
                const std::lock_guard guard(lock);
                daemons.breaches.emplace_back(error.what());
            }
        });
    for (auto& thread : threads) thread.join();
    throw_if_interrupted();
    for (auto* row : {&daemons, &ranks}) row->judge_detection();
    ranks.steps_lost = daemons.steps_lost;
    ranks.steps = daemons.steps;
    return {daemons, ranks};
}

}  // namespace gradsieve::survive
