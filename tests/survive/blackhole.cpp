// Two nodes in network namespaces, and routes that drop what goes between them. Of one thread, as root.
#include "tests/survive/faults.hpp"
#include "tests/survive/observed_run.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <filesystem>
#include <random>
#include <stdexcept>

namespace gradsieve::survive {
namespace {

constexpr double kNamedMs = 4'000;
constexpr Milliseconds kGiveUp(30'000);
constexpr std::uint64_t kFreezesOfOne = 10;  // so many freezes for each blackhole
constexpr std::uint64_t kStepsOfOne = 16;
constexpr std::uint64_t kLastSteps = 40;
constexpr unsigned kComputeMs = 20;
const std::string kPrefix = "gradsieve-survive-";
const std::string kDevice = "gsv0";  // in each namespace

void ip(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "ip");
    const auto ran = e2e::run(arguments);
    if (ran.code == 0) return;
    std::string line;
    for (const auto& argument : arguments) line += argument + " ";
    throw std::runtime_error(line + "ended with " + std::to_string(ran.code) + ": " + ran.output);
}

/// Namespaces with a veth between them; gone with the object. Those of runs that were killed go with the next one.
class Namespaces {
public:
    Namespaces() {
        remove_stale();
        for (const auto& name : names_) ip({"netns", "add", name});
        ip({"link", "add", kDevice, "netns", names_[0], "type", "veth", "peer", "name", kDevice, "netns", names_[1]});
        for (std::size_t node = 0; node < kNodes; ++node) {
            ip({"-n", names_[node], "address", "add", address(node) + "/24", "dev", kDevice});
            ip({"-n", names_[node], "link", "set", "lo", "up"});
            ip({"-n", names_[node], "link", "set", kDevice, "up"});
        }
    }
    ~Namespaces() {
        for (const auto& name : names_) static_cast<void>(e2e::run({"ip", "netns", "delete", name}));
    }
    Namespaces(const Namespaces&) = delete;
    Namespaces& operator=(const Namespaces&) = delete;

    [[nodiscard]] static std::string address(std::size_t node) { return "10.79.0." + std::to_string(node + 1); }
    [[nodiscard]] std::vector<e2e::Place> places() const {
        std::vector<e2e::Place> found;
        for (std::size_t node = 0; node < kNodes; ++node)
            found.push_back({address(node), {"ip", "netns", "exec", names_[node]}});
        return found;
    }
    /// What `node` sends to the other is dropped, or no longer.
    void blackhole(std::size_t node, bool is_on) const {
        ip({"-n", names_[node], "route", is_on ? "add" : "delete", "blackhole", address(1 - node) + "/32"});
    }

private:
    static void remove_stale() {
        for (const auto& name : names_in("/run/netns"))
            if (name.starts_with(kPrefix) && !std::filesystem::exists("/proc/" + name.substr(name.rfind('-') + 1)))
                ip({"netns", "delete", name});
    }
    std::vector<std::string> names_{kPrefix + "a-" + std::to_string(::getpid()),
                                    kPrefix + "b-" + std::to_string(::getpid())};
};

}  // namespace

std::vector<FaultRow> blackholes(const Amount& amount, Progress& progress) {
    FaultRow row{"blackhole route between two nodes, taken away later",
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
    if (::geteuid() != 0) {
        row.note = "not done: needs root";
        return {row};
    }
    const auto count = std::max<std::uint64_t>(amount.freezes / kFreezesOfOne, 1);
    const Namespaces namespaces;
    RunSetting setting;
    setting.codec = "topk(0.02) | pow2(bits=4) | auto";
    setting.compute_ms = kComputeMs;
    setting.steps = count * kStepsOfOne + kLastSteps;
    setting.places = namespaces.places();
    std::mt19937 random(static_cast<std::mt19937::result_type>(amount.seed));
    ObservedRun run(setting);
    for (; row.injected < count && run.troubles.empty(); ++row.injected) {
        progress.say(fmt::format("blackhole routes: {} of {}", row.injected, count));
        if (!run.wait_for_step(random() % kWorld, run.newest_step() + 1 + random() % 8)) break;
        const std::size_t logged[] = {run.daemon_output(0).size(), run.daemon_output(1).size()};
        const auto at = std::chrono::steady_clock::now();
        const bool is_both = random() % 2 == 0;  // or one direction alone
        const auto first = random() % kNodes;
        namespaces.blackhole(first, true);
        if (is_both) namespaces.blackhole(1 - first, true);
        for (std::size_t node = 0; node < kNodes; ++node) {
            const auto other = std::string(1, static_cast<char>('b' - node));
            if (const auto named = run.wait_for_word(node, other + " is silent", logged[node], kGiveUp))
                row.detection_ms.push_back(std::chrono::duration<double, std::milli>(*named - at).count());
            else
                row.breaches.push_back("node " + other + " was not named in 30 s");
        }
        namespaces.blackhole(first, false);
        if (is_both) namespaces.blackhole(1 - first, false);
        for (std::size_t node = 0; node < kNodes; ++node)
            if (!run.wait_for_word(node, std::string(1, static_cast<char>('b' - node)) + " is up", logged[node],
                                   kGiveUp))
                row.breaches.push_back("a peer did not come back in 30 s");
    }
    run.finish();
    judge_unfailed(row, run);
    row.judge_detection();
    return {row};
}

}  // namespace gradsieve::survive
