// What a trainer that keeps its GPU busy loses to the daemon beside it: its kernels and steps alone, with the daemon
// under time slicing, and under MPS with the daemon's passes limited in several ways; daemon and trainer under
// different user ids where this runs as root. The modes take turns, so that the card's clock and heat are the same for
// all. Prints figures; what has to hold is that all ranks get the same averages and compute what the host computes.
#include "gpu_check.hpp"
#include "job_runs.hpp"
#include "mps_control.hpp"

#include "codec/cuda/device.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>

namespace gradsieve::gpu_check {
namespace {

using e2e::Cluster;
using e2e::Milliseconds;
using e2e::Process;
using nlohmann::json;

constexpr auto kPatience = Milliseconds(60'000);
/// Beyond the ids of people and below those that systemd gives out.
constexpr unsigned kDaemonUser = 60'001;
constexpr unsigned kTrainerUser = 60'002;

struct Load {
    std::size_t elements = 25'600'000;
    std::size_t kernels = 100;  ///< a step
    std::size_t working_set = std::size_t{32} << 20U;
    std::size_t steps = 12;
    std::size_t turns = 3;
    std::size_t rounds = 1;  ///< of arithmetic in a kernel
    std::string codec = "topk(0.01) | pow2(bits=4) | auto";
    unsigned daemon_user = 0;  ///< 0: whoever runs this
    unsigned trainer_user = 0;
};
struct Layout {
    std::string text;
    std::size_t nodes = 1;
    bool has_own_gpus = false;  ///< each node; else all are on the first, and only rank 0 computes
};
struct Mode {
    std::string name;
    bool hands_in = true;
    unsigned multiprocessors = 0;                           ///< gpu.max_multiprocessors
    std::map<std::string, std::string> daemon_variables{};  ///< environment
};
/// What rank 0 of a run printed, or why there is nothing.
struct Outcome {
    json figures;
    std::string failure;
};

const std::vector<Mode>& plain_modes() {
    static const std::vector<Mode> kModes{{.name = "alone", .hands_in = false}, {.name = "time slicing"}};
    return kModes;
}
const std::vector<Mode>& mps_modes() {
    static const std::vector<Mode> kModes{
        {.name = "alone, MPS", .hands_in = false},
        {.name = "MPS"},
        {.name = "MPS, max_multiprocessors 16", .multiprocessors = 16},
        {.name = "MPS, max_multiprocessors 32", .multiprocessors = 32},
        {.name = "MPS, max_multiprocessors 66", .multiprocessors = 66},
        {.name = "MPS, daemon has 25 % of threads", .daemon_variables = {{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25"}}},
        {.name = "MPS, daemon below normal priority", .daemon_variables = {{"CUDA_MPS_CLIENT_PRIORITY", "1"}}}};
    return kModes;
}

Process start_trainer(const Load& load, std::vector<std::string> arguments) {
    std::vector<std::string> all;
    if (load.trainer_user != 0) all = e2e::as_user(load.trainer_user);
    all.emplace_back("gradsieve-gpu-trainer");
    all.insert(all.end(), arguments.begin(), arguments.end());
    return Process(all);
}
Outcome outcome_of(Process& trainer) {
    const auto code = trainer.wait_for_exit(kPatience);
    const auto& output = trainer.output();
    const auto start = output.rfind("{\"event\":\"result\"");
    auto figures = start == std::string::npos ? json() : json::parse(output.substr(start), nullptr, false);
    if (code == 0 && figures.is_object()) return {std::move(figures), ""};
    const auto how = code ? fmt::format("ended with {}", *code) : fmt::format("still ran after {}", kPatience.count());
    return {{}, fmt::format("a trainer {}: {}", how, output)};
}

Process start_rank(const Load& load, const Layout& layout, const Cluster* cluster, std::size_t rank) {
    const bool computes = rank == 0 || layout.has_own_gpus;
    std::vector<std::string> arguments{"--device",      std::to_string(layout.has_own_gpus ? rank : 0),
                                       "--elements",    std::to_string(load.elements),
                                       "--kernels",     std::to_string(computes ? load.kernels : 0),
                                       "--working-set", std::to_string(computes ? load.working_set : 1),
                                       "--steps",       std::to_string(load.steps),
                                       "--rounds",      std::to_string(load.rounds)};
    if (cluster != nullptr)
        arguments.insert(arguments.end(), {"--socket", cluster->socket(rank), "--rank", std::to_string(rank), "--world",
                                           std::to_string(layout.nodes), "--codec", load.codec});
    return start_trainer(load, arguments);
}

Outcome run_beside_daemons(const Load& load, const Layout& layout, const Mode& mode) {
    std::vector<std::unique_ptr<ChildVariable>> variables;
    variables.reserve(mode.daemon_variables.size());
    for (const auto& [name, value] : mode.daemon_variables)
        variables.push_back(std::make_unique<ChildVariable>(name, value));
    auto config = std::string(kOpenSocket);
    if (mode.multiprocessors != 0) config += fmt::format("[gpu]\nmax_multiprocessors = {}\n", mode.multiprocessors);
    Cluster cluster(layout.nodes, config, "127.0.0.1", false, e2e::Security::kPlain, load.daemon_user);
    variables.clear();  // the trainer has none of them
    open_to_others(cluster, layout.nodes);
    std::vector<Process> ranks;
    for (std::size_t rank = 0; rank < layout.nodes; ++rank) ranks.push_back(start_rank(load, layout, &cluster, rank));
    std::vector<Outcome> outcomes;
    outcomes.reserve(ranks.size());
    for (auto& rank : ranks) outcomes.push_back(outcome_of(rank));
    // In good order: a client that is killed may take the whole of MPS with it.
    const bool has_stopped = cluster.stop_daemons();
    for (const auto& outcome : outcomes)
        if (!outcome.failure.empty()) return outcome;
    if (!has_stopped) return {{}, "a daemon did not stop"};
    return outcomes.front();
}
Outcome run_mode(const Load& load, const Layout& layout, const Mode& mode) {
    try {
        if (mode.hands_in) return run_beside_daemons(load, layout, mode);
        auto trainer = start_rank(load, layout, nullptr, 0);
        return outcome_of(trainer);
    } catch (const std::exception& error) {
        return {{}, error.what()};
    }
}

/// Of one mode over all turns.
struct Series {
    std::map<std::string, std::vector<double>> values{};

    void add(const json& figures, double alone_step_ms) {
        for (const auto& [name, value] : figures.items())
            if (value.is_number()) values[name].push_back(value.get<double>());
        const double step = figures.value("step_ms", 0.0);
        values["slowed"].push_back(alone_step_ms > 0 ? 100 * (step / alone_step_ms - 1) : 0);
    }
    [[nodiscard]] double at(const std::string& name, double share) const {
        auto sorted = values.at(name);
        std::ranges::sort(sorted);
        return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
    }
    [[nodiscard]] std::string text(const std::string& mode, bool hands_in) const {
        const auto middle = [this](const char* name) { return at(name, 0.5); };
        auto line = fmt::format(
            "busy {:<34} step {:8.3f} ms ({:.3f} to {:.3f}), slowed by {:5.2f} % ({:.2f} to {:.2f}), kernel {:.4f} ms "
            "(p90 {:.4f}, longest {:.3f})",
            mode, middle("step_ms"), at("step_ms", 0), at("step_ms", 1), middle("slowed"), at("slowed", 0),
            at("slowed", 1), middle("kernel_ms"), middle("kernel_p90_ms"), middle("kernel_longest_ms"));
        if (hands_in)
            line += fmt::format(", hand-in to hand-back {:.3f} ms (p90 {:.3f})", middle("latency_ms"),
                                middle("latency_p90_ms"));
        return line;
    }
};

class Measurement {
public:
    Measurement(const Load& load, const Layout& layout, Report& report)
        : load_(load), layout_(layout), report_(report) {}

    void take(bool has_mps) {
        if (!has_mps) no_mps_ = "MPS: only a card has it, and only root starts it for several users";
        for (std::size_t turn = 0; turn < load_.turns && !has_failed_; ++turn) {
            for (const auto& mode : plain_modes()) run(mode);
            if (no_mps_.empty() && !has_failed_) take_mps();
        }
        print();
    }

private:
    void run(const Mode& mode) {
        if (has_failed_) return;
        const auto outcome = run_mode(load_, layout_, mode);
        has_failed_ = !outcome.failure.empty();
        report_.expect(!has_failed_, fmt::format("busy trainer, {}, {}: {}", layout_.text, mode.name, outcome.failure));
        if (!has_failed_) add(mode, outcome.figures);
    }
    void take_mps() {
        const MpsControl control;
        if (!control.why_not().empty()) return static_cast<void>(no_mps_ = "MPS: " + control.why_not());
        const ChildVariable pipes("CUDA_MPS_PIPE_DIRECTORY", control.pipe_folder());
        for (const auto& mode : mps_modes()) {
            const auto outcome = run_mode(load_, layout_, mode);
            if (outcome.failure.empty()) {
                add(mode, outcome.figures);
                continue;
            }
            const auto text = fmt::format("{}: {}; MPS wrote: {}", mode.name, outcome.failure, control.log_tail());
            // Without a daemon of ours it is MPS that does not work here; with one it may be us.
            no_mps_ = text;
            report_.expect(!mode.hands_in, fmt::format("busy trainer, {}, {}", layout_.text, text));
            return;
        }
    }
    void add(const Mode& mode, const json& figures) {
        if (mode.name == plain_modes().front().name) alone_step_ms_ = figures.value("step_ms", 0.0);
        series_[mode.name].add(figures, alone_step_ms_);
    }
    void print() const {
        report_.figure(
            fmt::format("\n{}: {} elements, {}, steps of {} kernels; users {} (daemons) and {} (trainers); {} turns, "
                        "median (least to "
                        "most); slowed: against alone in the same turn",
                        layout_.text, load_.elements, load_.codec, load_.kernels, load_.daemon_user, load_.trainer_user,
                        load_.turns));
        for (const auto* modes : {&plain_modes(), &mps_modes()})
            for (const auto& mode : *modes)
                if (series_.contains(mode.name)) report_.figure(series_.at(mode.name).text(mode.name, mode.hands_in));
        if (!no_mps_.empty()) report_.not_measured(no_mps_);
    }

    const Load& load_;
    const Layout& layout_;
    Report& report_;
    std::map<std::string, Series> series_;
    double alone_step_ms_ = 0;  ///< of this turn
    bool has_failed_ = false;
    std::string no_mps_;  ///< why it is not measured, or no further
};

std::vector<Layout> layouts(std::size_t devices, bool is_few) {
    if (devices > 1) return {{"2 daemons and 2 busy trainers, each on its own GPU", 2, true}};
    std::vector<Layout> all{{"1 daemon and 1 busy trainer on the GPU", 1, false}};
    if (!is_few) all.push_back({"2 daemons and 1 busy trainer on the one GPU", 2, false});
    return all;
}

bool can_run_as(unsigned user) {
    auto arguments = e2e::as_user(user);
    arguments.insert(arguments.end(), {"gradsieved", "--version"});
    return e2e::run(arguments).code == 0;
}

Load load_of(const Options& options, bool is_emulated, Report& report) {
    Load load;
    if (options.is_small) {
        load.elements = 70'000;
        load.kernels = 3;
        load.working_set = 4'096;
        load.steps = 4;
        load.turns = 1;
    }
    if (options.is_few) load.turns = 1;
    if (is_emulated) return load;  // its memory is open to the same user alone
    if (::geteuid() == 0 && can_run_as(kDaemonUser) && can_run_as(kTrainerUser)) {
        load.daemon_user = kDaemonUser;
        load.trainer_user = kTrainerUser;
    } else {
        report.not_measured("different user ids: needs root, setpriv, and programs that every user may run");
    }
    return load;
}

}  // namespace

void measure_busy_trainer(const Options& options, Report& report) {
    const auto devices = codec::cuda::list_devices();
    if (!devices.is_ok()) return report.not_measured(devices.status().to_string());
    const bool is_emulated = devices->front().name == "emulated card";
    auto load = load_of(options, is_emulated, report);
    if (!is_emulated && MpsControl::is_one_there())
        return report.not_measured(
            "an MPS control daemon is there already, and nothing could be compared with time slicing: quit it first");
    auto sizing = start_trainer(load, {"--find-rounds", "1", "--kernel-us", is_emulated ? "100" : "1000",
                                       "--working-set", std::to_string(load.working_set), "--elements", "1"});
    const auto found = outcome_of(sizing);
    report.expect(found.failure.empty(), "busy trainer, sizing a kernel: " + found.failure);
    if (!found.failure.empty()) return;
    load.rounds = found.figures.value("rounds", std::size_t{1});
    for (const auto& layout : layouts(devices->size(), options.is_few))
        Measurement(load, layout, report).take(!is_emulated && ::geteuid() == 0);
}

}  // namespace gradsieve::gpu_check
