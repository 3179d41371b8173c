#include "cli/open_metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace gradsieve::cli {

namespace {

using Labels = std::vector<std::pair<std::string_view, std::string>>;

/// Those that Prometheus' older text format has too: node_exporter's textfile collector reads that, and refuses a whole
/// file for a type it does not know.
enum class Type { kGauge, kCounter };

/// One family: its samples lie together, as the format wants it.
class Family {
public:
    /// A name ends in its unit, if it has one.
    Family(std::string name, Type type, std::string_view unit, std::string_view help)
        : name_(std::move(name)), type_(type) {
        head_ = fmt::format("# TYPE {} {}\n", name_, type == Type::kCounter ? "counter" : "gauge");
        if (!unit.empty()) head_ += fmt::format("# UNIT {} {}\n", name_, unit);
        head_ += fmt::format("# HELP {} {}\n", name_, help);
    }
    Family& add(const Labels& labels, double value) { return add_text(labels, fmt::format("{}", value)); }
    Family& add(const Labels& labels, std::uint64_t value) { return add_text(labels, fmt::format("{}", value)); }
    Family& add(const Labels& labels, const std::optional<double>& value) {
        return value ? add(labels, *value) : *this;
    }
    [[nodiscard]] std::string text() const { return samples_.empty() ? "" : head_ + samples_; }

private:
    static std::string escaped(std::string_view text) {
        std::string safe;
        for (const char character : text) {
            if (character == '\\' || character == '"') safe += '\\';
            if (character == '\n') {
                safe += "\\n";
            } else {
                safe += character;
            }
        }
        return safe;
    }
    /// Labels that were there before are left out: a reader would refuse all of the text for them.
    Family& add_text(const Labels& labels, const std::string& value) {
        std::string series;
        for (std::size_t at = 0; at < labels.size(); ++at)
            series += fmt::format("{}{}=\"{}\"", at == 0 ? "{" : ",", labels[at].first, escaped(labels[at].second));
        if (!labels.empty()) series += '}';
        if (!seen_.insert(series).second) return *this;
        const auto* suffix = type_ == Type::kCounter ? "_total" : "";
        samples_ += name_ + suffix + series + ' ' + value + '\n';
        return *this;
    }

    std::string name_;
    Type type_;
    std::string head_;
    std::string samples_;
    std::set<std::string> seen_;  ///< labels of samples
};

Family gauge(const char* name, const char* help) { return {name, Type::kGauge, "", help}; }
Family seconds(const char* name, const char* help) { return {name, Type::kGauge, "seconds", help}; }
Family bytes(const char* name, const char* help) { return {name, Type::kGauge, "bytes", help}; }
Family counter(const char* name, const char* help, const char* unit = "") { return {name, Type::kCounter, unit, help}; }

std::uint64_t number(bool is_true) { return is_true ? 1 : 0; }

std::string health_text(const HealthView& health) {
    auto up = gauge("gradsieve_up", "1 while the daemon lives and answers.");
    up.add({}, number(health.state == "live"));
    auto state = gauge("gradsieve_health", "1 for how the daemon is, 0 for the others.");
    for (const char* name : {"live", "hung", "dead", "stopped", "never-ran", "unreadable"})
        state.add({{"state", name}}, number(health.state == name));
    return up.text() + state.text();
}

std::string daemon_text(const StatusView& status, const HealthView& health) {
    const auto& daemon = status.daemon;
    std::uint64_t errors = 0;
    for (const auto& error : daemon.errors) errors += error.count;
    std::uint64_t kept_bytes = 0;
    for (const auto& kept : status.kept) kept_bytes += kept.bytes + kept.gpu_bytes;
    std::string text;
    const auto put = [&text](const Family& family) { text += family.text(); };
    put(gauge("gradsieve_build_info", "The daemon's version, node and instruction set.")
            .add({{"version", daemon.version}, {"node", daemon.node}, {"cpu_form", daemon.cpu_form}},
                 std::uint64_t{1}));
    put(seconds("gradsieve_heartbeat_age_seconds", "Since the daemon last renewed its status page.")
            .add({}, health.heartbeat_age_s));
    put(seconds("gradsieve_uptime_seconds", "Since the daemon started.").add({}, daemon.uptime_s));
    put(counter("gradsieve_cpu_seconds", "Processor time of all its threads.", "seconds").add({}, daemon.cpu_s));
    put(bytes("gradsieve_memory_bytes", "Slabs, results and state of all jobs.").add({}, daemon.memory_bytes));
    put(bytes("gradsieve_memory_limit_bytes", "Most of these that it may take.").add({}, daemon.memory_limit_bytes));
    put(counter("gradsieve_errors", "Errors that it reported.").add({}, errors));
    put(counter("gradsieve_keys_refused", "Connections under keys of no peer.").add({}, status.security.keys_refused));
    put(counter("gradsieve_handshakes_failed", "Connections that spoke another security, or to another key.")
            .add({}, status.security.handshakes_failed));
    put(gauge("gradsieve_kept_states", "Jobs that ended early, whose state waits for their next run.")
            .add({}, std::uint64_t{status.kept.size()}));
    put(bytes("gradsieve_kept_state_bytes", "Memory of these, on host and GPUs.").add({}, kept_bytes));
    return text;
}

std::string peers_text(const std::vector<PeerView>& peers) {
    auto up = gauge("gradsieve_peer_up", "1 while the peer's daemon is heard.");
    auto silent = seconds("gradsieve_peer_silent_seconds", "Since a whole frame came from the peer.");
    auto sent = counter("gradsieve_peer_sent_bytes", "To the peer.", "bytes");
    auto received = counter("gradsieve_peer_received_bytes", "From the peer.", "bytes");
    auto refused = counter("gradsieve_peer_frames_refused", "Frames from the peer that were no good.");
    auto queued = bytes("gradsieve_peer_queued_bytes", "Waiting to be sent to the peer.");
    for (const auto& peer : peers) {
        if (peer.is_self) continue;
        const Labels labels = {{"peer", peer.name}};
        up.add(labels, number(peer.state == "up"));
        silent.add(labels, peer.silent_s);
        sent.add(labels, peer.bytes_sent);
        received.add(labels, peer.bytes_received);
        refused.add(labels, peer.frames_refused);
        queued.add(labels, peer.queued_bytes);
    }
    return up.text() + silent.text() + sent.text() + received.text() + refused.text() + queued.text();
}

std::string gpus_text(const std::vector<GpuView>& gpus) {
    auto context = gauge("gradsieve_gpu_context", "1 while the daemon holds a context on the GPU.");
    auto state = bytes("gradsieve_gpu_state_bytes", "Residuals and variances on the GPU.");
    auto workspace = bytes("gradsieve_gpu_workspace_bytes", "Scratch memory on the GPU.");
    auto misses = counter("gradsieve_gpu_threshold_misses", "Steps of top-k that needed a second pass.");
    for (const auto& gpu : gpus) {
        const Labels labels = {{"gpu", gpu.uuid}};
        context.add(labels, number(gpu.has_context));
        state.add(labels, gpu.state_bytes);
        workspace.add(labels, gpu.workspace_bytes);
        misses.add(labels, gpu.threshold_misses);
    }
    return context.text() + state.text() + workspace.text() + misses.text();
}

Labels labels_of(const JobView& job) { return {{"job_name", job.name}, {"run", job.run_id}}; }

std::string job_times_text(const std::vector<JobView>& jobs) {
    auto step = seconds("gradsieve_job_step_seconds",
                        "From a step's first local hand-in to its commit, of the last 256 steps.");
    auto phase = seconds("gradsieve_job_phase_seconds", "Median of a part of the step.");
    auto waiting =
        seconds("gradsieve_job_waiting_seconds", "How long the oldest step that is not complete has waited; 0 = none.");
    const auto in_seconds = [](const std::optional<double>& milliseconds) {
        return milliseconds ? std::optional(*milliseconds / 1000) : std::nullopt;
    };
    for (const auto& job : jobs) {
        const auto with = [&](std::string_view key, const char* value) {
            auto labels = labels_of(job);
            labels.emplace_back(key, value);
            return labels;
        };
        step.add(with("statistic", "median"), in_seconds(job.step_ms.median));
        step.add(with("statistic", "p90"), in_seconds(job.step_ms.p90));
        phase.add(with("phase", "encode"), in_seconds(job.step_ms.encode));
        phase.add(with("phase", "exchange"), in_seconds(job.step_ms.exchange));
        phase.add(with("phase", "decode"), in_seconds(job.step_ms.decode));
        double longest = 0;
        for (const auto& wait : job.waiting) longest = std::max(longest, wait.for_s);
        waiting.add(labels_of(job), longest);
    }
    return step.text() + phase.text() + waiting.text();
}

std::string budgets_text(const std::vector<JobView>& jobs) {
    auto density =
        gauge("gradsieve_group_density_factor", "What a budget makes of what the codec as written sends, a factor.");
    auto used = gauge("gradsieve_group_budget_used", "What a step costs, over the group's budget.");
    auto coded = seconds("gradsieve_group_coded_seconds", "Coding and sending a step, were nothing to overlap.");
    auto plain =
        seconds("gradsieve_group_plain_seconds", "Sending it as fp32 at the best speed that the link has shown.");
    const auto in_seconds = [](const std::optional<double>& milliseconds) {
        return milliseconds ? std::optional(*milliseconds / 1000) : std::nullopt;
    };
    for (const auto& job : jobs)
        for (const auto& group : job.budget.groups) {
            auto labels = labels_of(job);
            labels.emplace_back("group", group.name);
            density.add(labels, group.density);
            used.add(labels, group.cost && group.limit > 0 ? std::optional(*group.cost / group.limit) : std::nullopt);
            coded.add(labels, in_seconds(group.coded_ms));
            plain.add(labels, in_seconds(group.plain_ms));
        }
    return density.text() + used.text() + coded.text() + plain.text();
}

std::string step_asides_text(const std::vector<JobView>& jobs) {
    auto aside = gauge("gradsieve_job_tensors_aside", "Tensors that go plain: the link is faster than their codec.");
    auto saved = seconds("gradsieve_job_step_aside_saved_seconds", "What that, or coding them, saves of a step.");
    for (const auto& job : jobs) {
        if (job.step_aside.text.empty()) continue;
        aside.add(labels_of(job), job.step_aside.aside);
        const auto& saved_ms = job.step_aside.saved_ms;
        saved.add(labels_of(job), saved_ms ? std::optional(*saved_ms / 1000) : std::nullopt);
    }
    return aside.text() + saved.text();
}

std::string groups_text(const std::vector<JobView>& jobs) {
    auto committed = gauge("gradsieve_group_committed_step", "Newest step that is complete.");
    auto steps = counter("gradsieve_group_steps_committed", "Steps that came to an average.");
    auto aborted = counter("gradsieve_group_steps_aborted", "Steps that came to an error.");
    for (const auto& job : jobs)
        for (const auto& group : job.groups) {
            auto labels = labels_of(job);
            labels.emplace_back("group", group.name);
            committed.add(labels, group.committed_step);
            steps.add(labels, group.steps_committed);
            aborted.add(labels, group.steps_aborted);
        }
    return committed.text() + steps.text() + aborted.text();
}

std::string jobs_text(const std::vector<JobView>& jobs) {
    auto info = gauge("gradsieve_job_info", "A job that runs, its codec and phase.");
    auto ranks = gauge("gradsieve_job_ranks", "Training processes that it is made for.");
    auto missing = gauge("gradsieve_job_missing_ranks", "Those that are not there.");
    auto sent = counter("gradsieve_job_sent_bytes", "By this node for the job, headers and retries included.", "bytes");
    auto plain = counter("gradsieve_job_allreduce_bytes", "What a ring all-reduce of fp32 would have sent.", "bytes");
    auto compared = counter("gradsieve_job_digests_compared", "Averages compared between nodes.");
    auto different = counter("gradsieve_job_digests_different", "Those that differed: none may.");
    auto refused = counter("gradsieve_job_frames_refused", "Frames of the job that were no good.");
    auto memory = bytes("gradsieve_job_memory_bytes", "Its slabs, results and state.");
    for (const auto& job : jobs) {
        const auto labels = labels_of(job);
        auto facts = labels;
        facts.emplace_back("codec", job.codec);
        facts.emplace_back("phase", job.phase);
        info.add(facts, std::uint64_t{1});
        ranks.add(labels, job.world_size);
        missing.add(labels, std::uint64_t{job.missing_ranks.size()});
        sent.add(labels, job.bytes_sent);
        plain.add(labels, job.allreduce_bytes);
        compared.add(labels, job.digests_compared);
        different.add(labels, job.digests_different);
        refused.add(labels, job.frames_refused);
        memory.add(labels, job.memory_bytes);
    }
    return info.text() + ranks.text() + missing.text() + sent.text() + plain.text() + compared.text() +
           different.text() + refused.text() + memory.text() + job_times_text(jobs) + groups_text(jobs) +
           budgets_text(jobs) + step_asides_text(jobs);
}

}  // namespace

std::string open_metrics_text(const StatusView& status, const HealthView& health) {
    std::string text = health_text(health);
    if (status.format != 0)
        text +=
            daemon_text(status, health) + peers_text(status.peers) + gpus_text(status.gpus) + jobs_text(status.jobs);
    return text + "# EOF\n";
}

}  // namespace gradsieve::cli
