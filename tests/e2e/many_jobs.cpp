#include "tests/e2e/many_jobs.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace gradsieve::e2e {
namespace {

using Strings = std::vector<std::string>;

struct Kind {
    const char* name;
    const char* codec;
    const char* samples;
};
/// One for each way through the codecs; two draw random numbers, which must not depend on who else is there.
constexpr Kind kHealthy[] = {{"topk", "topk(0.05) | pow2(bits=4) | auto", "1"},
                             {"variance", "variance(alpha=1.5) | pow2(bits=4) | auto", "2"},
                             {"dither", "all | dither(levels=7)", "1"},
                             {"randk", "randk(0.1) | f32", "1"}};
constexpr const char* kOthers[] = {"killed", "nan", "scribbler", "hog"};
constexpr Milliseconds kEndWithin(120'000);
constexpr std::uint64_t kEndless = 1'000'000'000;

Strings options_of(const std::string& name, const std::string& run, std::uint64_t steps) {
    return {"--job",        name,
            "--run",        run,
            "--steps",      std::to_string(steps),
            "--timeout-ms", std::to_string(kManyJobsDeadline.count()),
            "--scale",      "60",
            "--times",      "1"};
}
Strings with(Strings options, const Strings& more) {
    options.insert(options.end(), more.begin(), more.end());
    return options;
}

std::string end_of(Process& rank) {
    const auto code = rank.wait_for_exit(kEndWithin);
    if (code == 0) return "0";
    return (code ? std::to_string(*code) : std::string("still running")) + ": " + rank.output();
}

HealthyJob finish(std::vector<Process>& ranks) {
    HealthyJob job;
    for (auto& rank : ranks) {
        job.digests.push_back(rank.wait_for_line("digest ", kEndWithin).value_or("none"));
        const auto median_us = rank.wait_for_line("median-us ").value_or("0");
        if (job.digests.size() == 1) job.median_us = std::strtod(median_us.c_str(), nullptr);
        const auto longest_us = rank.wait_for_line("longest-us ").value_or("0");
        job.longest_us = std::max(job.longest_us, std::strtod(longest_us.c_str(), nullptr));
        job.ends.push_back(end_of(rank));
    }
    return job;
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}
/// What follows `prefix` in the lines that begin with it.
Strings lines_of(const std::string& output, const std::string& prefix) {
    Strings found;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with(prefix)) found.push_back(line.substr(prefix.size()));
    return found;
}

/// Reads what the daemons log: thousands of lines, which a pipe does not hold.
class LogReader {
public:
    explicit LogReader(Cluster& cluster) {
        thread_ = std::thread([this, &cluster] {
            while (!is_over_.load(std::memory_order_relaxed))
                for (const std::size_t node : {0U, 1U})
                    static_cast<void>(
                        cluster.daemon(node).wait_for_line("a line that is never logged", Milliseconds(10)));
        });
    }
    ~LogReader() {
        is_over_.store(true, std::memory_order_relaxed);
        thread_.join();
    }
    LogReader(const LogReader&) = delete;
    LogReader& operator=(const LogReader&) = delete;

private:
    std::atomic<bool> is_over_{false};
    std::thread thread_;
};

/// A job of two ranks, one of which dies in the middle of a step; again and again, in a thread of its own.
class DyingJob {
public:
    DyingJob(const Cluster& cluster, const std::string& run, std::uint64_t kill_at)
        : cluster_(cluster), run_(run), kill_at_(std::to_string(kill_at)) {
        thread_ = std::thread([this] {
            do live();
            while (!is_over_.load(std::memory_order_relaxed));
        });
    }
    ~DyingJob() {
        if (thread_.joinable()) stop();
    }
    DyingJob(const DyingJob&) = delete;
    DyingJob& operator=(const DyingJob&) = delete;
    void stop() {
        is_over_.store(true, std::memory_order_relaxed);
        thread_.join();
    }
    /// After `stop`.
    [[nodiscard]] const Strings& orphans() const { return orphans_; }
    [[nodiscard]] std::size_t kills() const { return kills_; }

private:
    void live() {
        const auto options = options_of("killed", run_ + "-" + std::to_string(orphans_.size()), kEndless);
        auto orphan = cluster_.rank(0, with(options, {"--rank", "0", "--world", "2"}));
        auto doomed = cluster_.rank(1, with(options, {"--rank", "1", "--world", "2", "--kill-at", kill_at_}));
        orphans_.push_back(orphan.wait_for_line("error ", kEndWithin).value_or("nothing: " + orphan.output()));
        if (doomed.wait_for_exit() == 128 + SIGKILL) ++kills_;
    }

    const Cluster& cluster_;
    std::string run_, kill_at_;
    std::atomic<bool> is_over_{false};
    Strings orphans_;
    std::size_t kills_ = 0;
    std::thread thread_;
};

Process hostile(const Cluster& cluster, std::size_t node, const std::string& mode) {
    return Process({E2E_HOSTILE_RANK, "--mode", mode, "--socket", cluster.socket(node), "--seed", "20261129"});
}

/// The four that misbehave.
class Misbehaving {
public:
    Misbehaving(const Cluster& cluster, const std::string& run, std::uint64_t kill_at)
        : scribbler_(hostile(cluster, 0, "scribble")),
          hog_(hostile(cluster, 1, "exhaust")),
          nan_(cluster.ranks(
              2, with(options_of("nan", run, kEndless), {"--nan-every", "3", "--go-on", "1", "--check", "0"}))),
          dying_(cluster, run, kill_at) {
        for (auto* process : {&scribbler_, &hog_, &nan_[0], &nan_[1]})
            if (!process->wait_for_line("started")) throw std::runtime_error("not started: " + process->output());
    }
    /// Once each has done its worst at least once.
    Faults stop() {
        Faults faults;
        static_cast<void>(nan_[0].wait_for_line("failed step ", kEndWithin));
        for (auto* process : {&scribbler_, &hog_}) {
            static_cast<void>(process->wait_for_line("round ", kEndWithin));
            process->say("");
            faults.hostile_ends.push_back(end_of(*process));
        }
        dying_.stop();
        faults.kills = dying_.kills();
        faults.orphans = dying_.orphans();
        faults.scribbles = lines_of(scribbler_.output(), "round ");
        faults.exhausts = lines_of(hog_.output(), "round ");
        faults.failed_steps = count(nan_[0].output(), "failed step ");
        for (auto& rank : nan_) {
            faults.is_nan_alive.push_back(!rank.wait_for_exit(Milliseconds(0)).has_value());
            for (auto& error : lines_of(rank.output(), "error ")) faults.nan_errors.push_back(std::move(error));
        }
        return faults;
    }

private:
    Process scribbler_, hog_;
    std::vector<Process> nan_;
    DyingJob dying_;
};

}  // namespace

std::string many_jobs_configuration() { return "[daemon]\nmemory_limit_mib = 96\n"; }

ManyJobs run_many_jobs(Cluster& cluster, bool has_faults, std::uint64_t steps, const std::string& run,
                       std::uint64_t kill_at) {
    const LogReader reader(cluster);
    std::map<std::string, std::vector<Process>> healthy;
    for (const auto& kind : kHealthy)
        healthy.emplace(kind.name,
                        cluster.ranks(2, with(options_of(kind.name, run, steps),
                                              {"--codec", kind.codec, "--samples", kind.samples, "--hold-at", "2"})));
    std::vector<std::vector<Process>> others;
    std::optional<Misbehaving> misbehaving;
    // All eight are there before the first of these steps that counts.
    for (auto& [name, ranks] : healthy)
        for (auto& rank : ranks)
            if (!rank.wait_for_line("holding")) throw std::runtime_error(name + " does not hold: " + rank.output());
    if (has_faults)
        misbehaving.emplace(cluster, run, kill_at);
    else
        for (const auto* name : kOthers)
            for (auto& rank : others.emplace_back(cluster.ranks(2, options_of(name, run, kEndless))))
                if (!rank.wait_for_line("started")) throw std::runtime_error("not started: " + rank.output());
    for (auto& [name, ranks] : healthy)
        for (auto& rank : ranks) rank.say("");
    ManyJobs seen;
    for (auto& [name, ranks] : healthy) seen.healthy[name] = finish(ranks);
    if (misbehaving) seen.faults = misbehaving->stop();
    return seen;
}

}  // namespace gradsieve::e2e
