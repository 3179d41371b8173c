#include "tests/survive/observed_run.hpp"
#include "tests/survive/interruption.hpp"

#include <poll.h>
#include <algorithm>
#include <csignal>

namespace gradsieve::survive {

namespace {

constexpr int kLookMs = 2;
constexpr Milliseconds kEndWithin(180'000);
constexpr Milliseconds kTidyWithin(10'000);
constexpr std::size_t kTail = 600;
const std::string kSharedMemory = "/dev/shm";

void drain(e2e::Process& process) { static_cast<void>(process.wait_for_line("\n", Milliseconds(0))); }
std::string tail(const std::string& text) { return text.size() < kTail ? text : text.substr(text.size() - kTail); }
std::string node_name(std::size_t node) { return std::string(1, static_cast<char>('a' + node)); }

}  // namespace

ObservedRun::ObservedRun(const RunSetting& setting)
    : setting_(setting),
      shared_memory_before_(names_in(kSharedMemory)),
      cluster_(kNodes, setting.configuration, "127.0.0.1", true, e2e::Security::kPlain, 0, setting.places),
      ranks_(kWorld) {
    for (std::size_t node = 0; node < kNodes; ++node) {
        const bool is_joined =
            cluster_.wait_for_status(node, [&](const auto& json) { return json["peers"][1 - node]["state"] == "up"; });
        if (!is_joined) trouble("node " + node_name(node) + " does not reach its peer");
        before_.push_back(holdings_of(cluster_.daemon(node).pid()));
    }
    for (std::size_t rank = 0; rank < kWorld; ++rank) start_rank(rank);
}

void ObservedRun::start_rank(std::size_t rank) {
    std::vector<std::string> arguments{e2e::resuming_rank_program(),
                                       "--socket",
                                       cluster_.socket(rank / 2),
                                       "--rank",
                                       std::to_string(rank),
                                       "--world",
                                       std::to_string(kWorld),
                                       "--steps",
                                       std::to_string(setting_.steps),
                                       "--compute-ms",
                                       std::to_string(setting_.compute_ms),
                                       "--codec",
                                       setting_.codec,
                                       "--deadline-ms",
                                       std::to_string(setting_.deadline.count()),
                                       "--masses",
                                       "1"};
    if (rank == 0) arguments.insert(arguments.end(), {"--save-at", std::to_string(setting_.steps)});
    ranks_[rank].process = std::make_unique<e2e::Process>(std::move(arguments));
    ranks_[rank].parsed = 0;
    ledger_.finished.erase(rank);
}

void ObservedRun::kill_rank(std::size_t rank) {
    ranks_[rank].process->send_signal(SIGKILL);
    if (!ranks_[rank].process->wait_for_exit()) trouble("rank " + std::to_string(rank) + " did not die");
    pump();
}

void ObservedRun::pump() {
    throw_if_interrupted();
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
        auto& [process, parsed] = ranks_[rank];
        drain(*process);
        const auto now = std::chrono::steady_clock::now();
        const auto& output = process->output();
        for (auto end = output.find('\n', parsed); end != std::string::npos; end = output.find('\n', parsed)) {
            ledger_.take(rank, output.substr(parsed, end - parsed), now);
            parsed = end + 1;
        }
    }
    for (std::size_t node = 0; node < kNodes; ++node) drain(cluster_.daemon(node));
}

bool ObservedRun::pump_until(const std::function<bool()>& condition, Milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (true) {
        pump();
        if (condition()) return true;
        if (std::chrono::steady_clock::now() >= deadline) return false;
        ::poll(nullptr, 0, kLookMs);
    }
}

void ObservedRun::pump_for(std::chrono::microseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    for (auto now = until - time; now < until; now = std::chrono::steady_clock::now()) {
        pump();
        if (until - now > std::chrono::milliseconds(2 * kLookMs)) ::poll(nullptr, 0, kLookMs);
    }
}

bool ObservedRun::wait_for_step(std::size_t rank, std::uint64_t step, Milliseconds patience) {
    const bool is_there = pump_until([&] { return ledger_.last_step(rank) >= step; }, patience);
    if (!is_there) trouble("rank " + std::to_string(rank) + " did not come to step " + std::to_string(step));
    return is_there;
}

std::optional<Instant> ObservedRun::wait_for_word(std::size_t node, const std::string& text, std::size_t from,
                                                  Milliseconds patience) {
    const auto is_said = [&] { return cluster_.daemon(node).output().find(text, from) != std::string::npos; };
    if (!pump_until(is_said, patience)) return std::nullopt;
    return std::chrono::steady_clock::now();
}

std::string ObservedRun::daemon_output(std::size_t node) {
    drain(cluster_.daemon(node));
    return cluster_.daemon(node).output();
}

bool ObservedRun::calls_peer_up(std::size_t node) {
    const auto output = daemon_output(node);
    const auto words = node_name(1 - node) + " is ";
    const auto last = output.rfind(words);
    return last != std::string::npos && output.compare(last + words.size(), 2, "up") == 0;
}

std::uint64_t ObservedRun::newest_step() const {
    std::uint64_t newest = 0;
    for (std::size_t rank = 0; rank < kWorld; ++rank) newest = std::max(newest, ledger_.last_step(rank));
    return newest;
}

void ObservedRun::trouble(const std::string& what) {
    std::string text = what;
    for (std::size_t rank = 0; rank < kWorld; ++rank)
        if (ranks_[rank].process)
            text += "\n  rank " + std::to_string(rank) + ": " + tail(ranks_[rank].process->output());
    for (std::size_t node = 0; node < kNodes; ++node)
        text += "\n  daemon " + node_name(node) + ": " + tail(cluster_.daemon(node).output());
    troubles.push_back(text);
}

void ObservedRun::look_at_folder(std::size_t node) {
    std::set<std::string> allowed{"gradsieved.sock", "status"};
    for (const auto& name : names_in(cluster_.state_folder(node)))
        if (name.ends_with(".pinned")) allowed.insert(name);  // what a rank asked for
    for (auto& line : strangers(cluster_.state_folder(node), allowed)) residue.push_back(std::move(line));
}

void ObservedRun::note_kept() {
    for (std::size_t node = 0; node < kNodes; ++node)
        for (const auto& file : pinned_in(cluster_.state_folder(node))) {
            kept[node_name(node) + "/" + file.file] = file.digest;
            const auto number = file.file.substr(file.file.find('-') + 1, 1);
            residuals[groups().at(number == "0" ? 0 : 1)] += file.sum / kNodes;  // L / world is one half on each
        }
    if (kept.size() != kNodes * groups().size()) trouble("the last step is not on every node's disk");
    for (std::size_t node = 0; node < kNodes; ++node) {
        const auto released =
            e2e::run({E2E_TOOL, "state", "release", "survivor", "--all-steps", "--socket", cluster_.socket(node)});
        if (released.code != 0) troubles.push_back("state release: " + released.output);
    }
}

void ObservedRun::note_residue() {
    for (std::size_t node = 0; node < kNodes; ++node) {
        const auto name = "node " + node_name(node);
        if (!cluster_.wait_for_status(
                node, [](const auto& json) { return json["jobs"].empty() && json["daemon"]["memory_bytes"] == 0; }))
            residue.push_back(name + ": a job or its memory");
        for (const auto& parked : cluster_.manager(node).parked()) residue.push_back(name + ": parked " + parked);
        Holdings after;
        const bool is_tidy = pump_until(
            [&] {
                after = holdings_of(cluster_.daemon(node).pid());
                return after.descriptors <= before_[node].descriptors &&
                       after.memory_mappings <= before_[node].memory_mappings;
            },
            kTidyWithin);
        if (!is_tidy)
            residue.push_back(name + ": " + std::to_string(after.descriptors) + " descriptors and " +
                              std::to_string(after.memory_mappings) + " mapped memfds, before the job " +
                              std::to_string(before_[node].descriptors) + " and " +
                              std::to_string(before_[node].memory_mappings));
    }
    for (std::size_t node = 0; node < kNodes; ++node) cluster_.kill_daemon(node);
    for (std::size_t node = 0; node < kNodes; ++node) look_at_folder(node);
    for (const auto& name : names_in(kSharedMemory))
        if (shared_memory_before_.count(name) == 0) residue.push_back("file " + kSharedMemory + "/" + name);
    for (auto& line : processes_with(cluster_.folder())) residue.push_back(std::move(line));
}

void ObservedRun::finish() {
    if (!pump_until([&] { return ledger_.finished.size() == kWorld; }, kEndWithin)) {
        trouble("the run did not come to its end");
        return;
    }
    note_kept();
    for (auto& rank : ranks_) rank.process->say("go");
    for (auto& rank : ranks_)
        if (rank.process->wait_for_exit() != 0) trouble("a rank did not end with 0");
    pump();
    for (const auto& error : ledger_.errors) troubles.push_back(error);
    note_residue();
}

void judge_unfailed(FaultRow& row, ObservedRun& run) {
    const auto& ledger = run.ledger();
    for (const auto& trouble : run.troubles) row.breaches.push_back(trouble);
    for (const auto& again : ledger.again)
        row.breaches.push_back("rank " + std::to_string(again.rank) + " began anew: " + again.text);
    for (const auto& conflict : ledger.conflicts) row.breaches.push_back(conflict);
    for (const auto& left : run.residue) row.breaches.push_back("left behind: " + left);
    const auto lost = ledger.unread(run.setting().steps).size() +
                      static_cast<std::size_t>(std::ranges::count_if(ledger.averages, [](const auto& entry) {
                          return !entry.second.readers.empty() && entry.second.readers.size() != kWorld;
                      }));
    if (lost > 0) row.breaches.push_back(std::to_string(lost) + " averages did not reach every rank");
    row.steps = row.steps.value_or(0) + groups().size() * run.setting().steps;
    row.steps_lost = row.steps_lost.value_or(0) + lost;
    row.residue = row.residue.value_or(0) + run.residue.size();
}

}  // namespace gradsieve::survive
