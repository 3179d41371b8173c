// Two nodes in network namespaces, and routes that drop what goes between them. Of one thread, as root.
#include "tests/survive/faults.hpp"
#include "tests/survive/namespaces.hpp"
#include "tests/survive/observed_run.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <random>

namespace gradsieve::survive {
namespace {

constexpr double kNamedMs = 4'000;
constexpr double kHeartbeatMs = 1'000;  // the default
constexpr Milliseconds kGiveUp(30'000);
constexpr std::chrono::seconds kCalm(2);
constexpr std::uint64_t kFreezesOfOne = 10;  // so many freezes for each blackhole
constexpr std::uint64_t kStepsOfOne = 150;   // they go on while it is waited for calm
constexpr std::uint64_t kLastSteps = 40;
constexpr unsigned kComputeMs = 20;
constexpr Milliseconds kDeadline(60'000);  // below it a call waits for who is silent

class BlackholedRun {
public:
    BlackholedRun(const Namespaces& namespaces, const RunSetting& setting, std::uint64_t seed)
        : namespaces_(namespaces), random_(static_cast<std::mt19937::result_type>(seed)), run_(setting) {}

    /// Silent or, where the deaf node's side ended the connection, closed: either names it.
    /// Drops what the nodes of `senders` send, until each node has named the other. The times go to the node's row in
    /// `rows`.
    void blackhole(const std::vector<std::size_t>& senders, const std::vector<FaultRow*>& rows) {
        if (!wait_for_a_moment()) return;
        const std::size_t logged[] = {run_.daemon_output(0).size(), run_.daemon_output(1).size()};
        const auto at = std::chrono::steady_clock::now();
        for (const auto node : senders) namespaces_.blackhole(node, true);
        std::vector<bool> is_named(kNodes, false);
        const auto look = [&] {
            for (std::size_t node = 0; node < kNodes; ++node) {
                const auto& output = run_.cluster().daemon(node).output();
                const auto is_said = [&](const char* state) {
                    return output.find(other(node) + " is " + state, logged[node]) != std::string::npos;
                };
                if (is_named[node] || !(is_said("silent") || is_said("closed"))) continue;
                is_named[node] = true;
                rows[node]->detection_ms.push_back(
                    std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - at).count());
            }
            return is_named[0] && is_named[1];
        };
        if (!run_.pump_until(look, kGiveUp)) rows[0]->breaches.push_back("a node did not name the other in 30 s");
        for (const auto node : senders) namespaces_.blackhole(node, false);
        for (std::size_t node = 0; node < kNodes; ++node)
            if (!run_.wait_for_word(node, other(node) + " is up", logged[node], kGiveUp))
                rows[0]->breaches.push_back("a peer did not come back in 30 s");
    }
    ObservedRun& run() { return run_; }

private:
    /// At which the job steps, both nodes call each other up, and neither has said anything for a while: connections of
    /// before the last route's change still end after it.
    bool wait_for_a_moment() {
        const auto calm_since = [&] { return run_.daemon_output(0).size() + run_.daemon_output(1).size(); };
        const auto are_up = [&] { return run_.calls_peer_up(0) && run_.calls_peer_up(1); };
        for (std::size_t said = 0; said != calm_since();) {
            if (!run_.pump_until(are_up, kGiveUp)) return false;
            said = calm_since();
            run_.pump_for(kCalm);
        }
        return run_.wait_for_step(random_() % kWorld, run_.newest_step() + 1 + random_() % 8);
    }
    static std::string other(std::size_t node) { return std::string(1, static_cast<char>('b' - node)); }

    const Namespaces& namespaces_;
    std::mt19937 random_;
    ObservedRun run_;
};

}  // namespace

std::vector<FaultRow> blackholes(const Amount& amount, Progress& progress) {
    FaultRow both{"blackhole routes both ways between two nodes, taken away later",
                  0,
                  "each names the other within 4 s, failed only after `peer_timeout_s`; the round goes on",
                  {},
                  kNamedMs,
                  0,
                  0,
                  {},
                  {},
                  {},
                  {},
                  ""};
    FaultRow deaf{"blackhole route one way, seen by the node that hears nothing",
                  0,
                  "the same",
                  {},
                  kNamedMs,
                  {},
                  {},
                  {},
                  {},
                  {},
                  {},
                  ""};
    FaultRow mute{"blackhole route one way, seen by the node that is not heard",
                  0,
                  "named within 4 s of the other's last heartbeat that came through, which may be one heartbeat (1 s) "
                  "after the fault",
                  {},
                  kNamedMs + kHeartbeatMs,
                  {},
                  {},
                  {},
                  {},
                  {},
                  {},
                  ""};
    if (::geteuid() != 0) {
        for (auto* row : {&both, &deaf, &mute}) row->note = "not done: needs root";
        return {both, deaf, mute};
    }
    const auto count = std::max<std::uint64_t>(amount.freezes / kFreezesOfOne, 1);
    const Namespaces namespaces;
    RunSetting setting;
    setting.codec = "topk(0.02) | pow2(bits=4) | auto";
    setting.compute_ms = kComputeMs;
    setting.deadline = kDeadline;
    setting.steps = 2 * count * kStepsOfOne + kLastSteps;
    setting.places = namespaces.places();
    BlackholedRun holed(namespaces, setting, amount.seed);
    for (std::uint64_t hole = 0; hole < count && holed.run().troubles.empty(); ++hole) {
        progress.say(fmt::format("blackhole routes: {} of {}", 2 * hole, 2 * count));
        holed.blackhole({0, 1}, {&both, &both});
        ++both.injected;
        const auto sender = hole % kNodes;
        holed.blackhole({sender}, sender == 0 ? std::vector{&mute, &deaf} : std::vector{&deaf, &mute});
        ++deaf.injected;
        ++mute.injected;
    }
    holed.run().finish();
    judge_unfailed(both, holed.run());
    for (auto* row : {&both, &deaf, &mute}) row->judge_detection();
    return {both, deaf, mute};
}

}  // namespace gradsieve::survive
