// State of tensors on a device outlives its job and its daemon. The daemon is killed in the middle of a run and comes
// back with what the service manager kept for it, or with less, or other GPUs than before; the averages at the end are,
// bit for bit, those of a run through host memory that nobody disturbed. The same with the state in host memory
// (gpu.state = "host").
#include "job_runs.hpp"

#include <fmt/format.h>

#include <signal.h>

#include <algorithm>
#include <fstream>

namespace gradsieve::gpu_check {
namespace {

using e2e::Cluster;
using e2e::Milliseconds;
using e2e::Process;
using nlohmann::json;

constexpr auto kUsualCodec = "variance(1.5) | pow2(bits=4) | auto";
constexpr auto kLong = Milliseconds(120'000);
constexpr int kKillStep = 6;
constexpr std::size_t kHoldStep = 13;  ///< a fast card would be through before anybody has looked
constexpr std::size_t kLastStep = 18;
constexpr int kSnapshotSteps = 5;
const std::string kHostState = std::string(kOpenSocket) + "[gpu]\nstate = \"host\"\n";
const std::string kSnapshots = fmt::format("[state]\nsnapshot_steps = {}\n", kSnapshotSteps);

/// With a tensor that GPUs share, or where that is not the point and a card is slow, without.
JobPlan long_plan(std::size_t devices, const std::string& elements, const std::string& codec = kUsualCodec,
                  bool has_samples = false) {
    JobPlan plan;
    plan.name = "kept";
    plan.codec = codec;
    plan.elements = elements;
    plan.world = 2;
    plan.devices = devices;
    plan.is_spread = true;
    plan.until = kLastStep;
    plan.samples = has_samples ? 2 : 1;
    plan.has_moment = has_samples;
    if (codec.find("skip=") != std::string::npos) plan.sets = 1;  // of other gradients nothing would be skipped
    return plan;
}

std::string last_hash_of(const std::vector<json>& answers) {
    return answers.empty() ? "" : answers.front().value("last_hash", "");
}
std::uint64_t first_of(const std::vector<json>& answers) {
    return answers.empty() ? 0 : answers.front().value("first", std::uint64_t{0});
}

/// What every run of these tensors has to end with, on however many GPUs: computed by the CPU's codec, undisturbed.
struct Expected {
    Expected(std::string tensors, Report& report, std::string other_codec = kUsualCodec, bool with_samples = false)
        : elements(std::move(tensors)), codec(std::move(other_codec)), has_samples(with_samples) {
        auto plan = this->plan(1);
        plan.memory = "host";
        const Cluster quiet(1, kOpenSocket);
        hash = last_hash_of(run_job(quiet, 1, plan, report));
        report.expect(!hash.empty(), "state: the undisturbed run ends");
    }
    [[nodiscard]] JobPlan plan(std::size_t devices) const { return long_plan(devices, elements, codec, has_samples); }
    std::string elements, codec;
    bool has_samples = false;  ///< micro-batches and a second moment
    std::string hash;
};

/// One node and a job on it that is disturbed in the middle.
class Disturbed {
public:
    Disturbed(std::string what, const std::string& configuration, bool has_manager, std::size_t devices,
              const Expected& expected, Report& report)
        : what_(std::move(what)),
          report_(report),
          expected_(expected),
          cluster(1, configuration, "127.0.0.1", has_manager) {
        auto plan = expected.plan(devices);
        plan.hold = kHoldStep;
        for (std::size_t rank = 0; rank < plan.world; ++rank) ranks.push_back(start_rank(cluster, plan, 1, rank));
        expect(wait_for("committed_step", kKillStep), "the job runs");
    }
    void expect(bool holds, const std::string& text) { report_.expect(holds, what_ + ": " + text); }
    /// Until a group of the job has come so far.
    [[nodiscard]] bool wait_for(const char* key, int step) const {
        return cluster.wait_for_status(
            0,
            [&](const json& status) {
                const auto& jobs = status.value("jobs", json::array());
                return !jobs.empty() && jobs[0]["groups"][0].value(key, 0) >= step;
            },
            kLong);
    }
    template <typename Condition>
    [[nodiscard]] bool wait_for_states(Condition condition) const {
        return cluster.wait_for_status(
            0, [&](const json& status) { return condition(status.value("states", json::object())); });
    }
    void kill_daemon() {
        cluster.kill_daemon(0);
        expect_told();
    }
    /// All ranks end with an error.
    void expect_told() {
        for (auto& rank : ranks) rank.say("go");
        for (auto& rank : ranks)
            expect(rank.wait_for_exit(Milliseconds(20'000)) == 3, "ranks are told of it: " + rank.output());
    }
    void restart_daemon() { cluster.restart_daemon(0); }
    /// The job's next run comes to the same end. Returns its first step.
    std::uint64_t run_again(std::size_t devices) {
        const auto answers = run_job(cluster, 1, expected_.plan(devices), report_);
        expect(!answers.empty() && last_hash_of(answers) == expected_.hash,
               fmt::format("last averages {}, {} undisturbed", last_hash_of(answers), expected_.hash));
        return first_of(answers);
    }
    void expect_goes_on(std::size_t devices) {
        const auto first = run_again(devices);
        expect(first > kKillStep, fmt::format("the job goes on where it was, at {}", first));
    }
    [[nodiscard]] json states() const { return cluster.status(0).value("states", json::object()); }

private:
    std::string what_;
    Report& report_;
    const Expected& expected_;

public:
    Cluster cluster;
    std::vector<Process> ranks;
};

void check_killed_daemon(const Expected& expected, Report& report, bool is_on_gpus, std::size_t devices) {
    Disturbed run(fmt::format("state on {}, daemon killed, {} GPUs", is_on_gpus ? "GPUs" : "the host", devices),
                  is_on_gpus ? kOpenSocket : kHostState, true, devices, expected, report);
    const auto parked = run.cluster.manager(0).parked();
    run.expect(parked.size() == (is_on_gpus ? 1 + devices : 1),
               fmt::format("{} descriptors are parked", parked.size()));
    run.kill_daemon();
    run.restart_daemon();
    const bool is_told = run.wait_for_states([&](const json& states) {
        const auto kept = states.value("kept", json::array());
        return kept.size() == 1 && kept[0]["gpus"].size() == (is_on_gpus ? devices : 0);
    });
    run.expect(is_told, "status tells what is kept: " + run.states().dump());
    run.expect_goes_on(devices);
    const bool is_empty = run.cluster.wait_for_status(0, [&](const json& status) {
        return status.contains("jobs") && status["jobs"].empty() && run.cluster.manager(0).parked().empty();
    });
    run.expect(is_empty, "nothing stays parked once all ranks have detached");
}

/// The job goes on from nothing: it says why, and comes to the same end all the same.
void check_begins_anew(Disturbed& run, std::size_t devices, const std::string& reason) {
    run.restart_daemon();
    const bool is_said = run.wait_for_states([&](const json& states) {
        return states.value("lost", json::array()).dump().find(reason) != std::string::npos;
    });
    run.expect(is_said, fmt::format("the reason, '{}', is told: {}", reason, run.states().dump()));
    const auto first = run.run_again(devices);
    run.expect(first == 1, fmt::format("it begins anew, not at {}", first));
}

void check_lost_descriptor(const Expected& expected, Report& report, std::size_t devices) {
    Disturbed run("state on GPUs, a descriptor lost", kOpenSocket, true, devices, expected, report);
    run.kill_daemon();
    run.cluster.manager(0).lose(run.cluster.manager(0).parked().back());
    check_begins_anew(run, devices, "was not handed over");
}

void check_other_memory(const Expected& expected, Report& report, std::size_t devices) {
    Disturbed run("state on GPUs, other memory under its name", kOpenSocket, true, devices, expected, report);
    run.kill_daemon();
    auto& manager = run.cluster.manager(0);
    manager.replace(manager.parked().back(), manager.descriptor(manager.parked().front()));
    check_begins_anew(run, devices, "kept state on GPU");
}

void check_killed_rank(const Expected& expected, Report& report, std::size_t devices) {
    Disturbed run("state on GPUs, rank killed", kOpenSocket, false, devices, expected, report);
    run.ranks[1].send_signal(SIGKILL);
    run.expect(run.ranks[0].wait_for_exit(Milliseconds(20'000)) == 3, "the other is told: " + run.ranks[0].output());
    const bool is_kept = run.wait_for_states([](const json& states) {
        const auto kept = states.value("kept", json::array());
        return kept.size() == 1 && !kept[0]["gpus"].empty() && kept[0]["gpus"][0].value("bytes", 0) > 0;
    });
    run.expect(is_kept, "its state is kept: " + run.states().dump());
    run.expect_goes_on(devices);
}

void check_other_gpus(const Expected& expected, Report& report, std::size_t before, std::size_t after) {
    Disturbed run(fmt::format("state on {} GPUs goes over to {}", before, after), kOpenSocket, true, before, expected,
                  report);
    run.kill_daemon();
    run.restart_daemon();
    run.expect_goes_on(after);
}

void check_snapshots(const Expected& expected, Report& report, std::size_t devices) {
    Disturbed run("state on GPUs, snapshots alone", kOpenSocket + kSnapshots, false, devices, expected, report);
    run.expect(run.wait_for("snapshot_step", kSnapshotSteps), "a snapshot is made");
    const bool is_told = run.wait_for_states([](const json& states) {
        return states.value("snapshot_steps", 0) == kSnapshotSteps && !states.value("parked", true);
    });
    run.expect(is_told, "status says what bounds the loss: " + run.states().dump());
    run.kill_daemon();
    run.restart_daemon();
    const auto first = run.run_again(devices);
    run.expect(first > kSnapshotSteps && first % kSnapshotSteps == 1,
               fmt::format("the job goes on from a snapshot, at {}", first));
}

/// A job that runs gets the memory that another one's state is kept in, and not more than the limit.
void check_room(const Expected& expected, Report& report) {
    Disturbed run("state on GPUs, room for another job", kOpenSocket, true, 1, expected, report);
    run.kill_daemon();
    run.restart_daemon();
    std::uint64_t bytes = 0;
    const bool is_kept = run.wait_for_states([&](const json& states) {
        const auto kept = states.value("kept", json::array());
        if (kept.size() != 1 || kept[0]["gpus"].size() != 1) return false;
        bytes = kept[0]["gpus"][0].value("bytes", std::uint64_t{0});
        return bytes > 0;
    });
    run.expect(is_kept && bytes % (std::uint64_t{2} << 20U) == 0, fmt::format("{} bytes are kept", bytes));
    run.cluster.kill_daemon(0);
    const auto limit = 2 * (bytes >> 20U) - 1;
    std::ofstream(run.cluster.config_file()) << kOpenSocket << "[gpu]\nmemory_limit_mib = " << limit << "\n";
    run.restart_daemon();
    auto plan = long_plan(1, expected.elements);
    plan.name = "other";
    const auto answers = run_job(run.cluster, 1, plan, report);
    run.expect(last_hash_of(answers) == expected.hash, "the other job runs");
    const bool is_said = run.wait_for_states([](const json& states) {
        return states.value("kept", json::array()).empty() &&
               states.value("lost", json::array()).dump().find("its GPU memory is needed for a job that runs") !=
                   std::string::npos;
    });
    run.expect(is_said, "it is told what was given up: " + run.states().dump());
    std::ofstream(run.cluster.config_file()) << kOpenSocket << "[gpu]\nmemory_limit_mib = 1\n";
    run.cluster.kill_daemon(0);
    run.restart_daemon();
    plan.world = 1;
    auto refused = start_rank(run.cluster, plan, 1, 0);
    const auto code = refused.wait_for_exit(kLong);
    run.expect(
        code == 3 && refused.output().find(fmt::format("state of {} MiB on GPU", bytes >> 20U)) != std::string::npos,
        "beyond the limit it is refused, with the figures: " + refused.output());
}

/// The store is emptied, as by a reboot; what a clean stop wrote is there.
void check_clean_stop(const Expected& expected, Report& report, std::size_t devices) {
    Disturbed run("state on GPUs, clean stop", std::string(kOpenSocket) + "[state]\nsnapshot_steps = 100000\n", true,
                  devices, expected, report);
    run.cluster.daemon(0).send_signal(SIGTERM);
    run.expect(run.cluster.daemon(0).wait_for_exit(kLong) == 0, "the daemon ends");
    run.expect_told();
    run.cluster.manager(0).forget();
    run.restart_daemon();
    run.expect_goes_on(devices);
}

/// One node's daemon is killed; the other one still has its state, and goes on from it only if both can.
void check_two_nodes(const std::string& elements, Report& report, std::size_t devices, bool is_lost,
                     const std::string& codec = kUsualCodec) {
    auto plan = long_plan(devices, elements, codec);
    plan.memory = "host";
    const Cluster quiet(2, kOpenSocket);
    const auto expected = last_hash_of(run_job(quiet, 2, plan, report));
    plan.memory = "device";
    plan.hold = kHoldStep;
    Cluster cluster(2, kOpenSocket, "127.0.0.1", true);
    const std::string what = is_lost ? "state on GPUs, lost on one of two nodes: " : "state on GPUs of two nodes: ";
    std::vector<Process> ranks;
    for (std::size_t rank = 0; rank < plan.world; ++rank) ranks.push_back(start_rank(cluster, plan, 2, rank));
    const auto has_come = [](const json& status) {
        const auto& jobs = status.value("jobs", json::array());
        return !jobs.empty() && jobs[0]["groups"][0].value("committed_step", 0) >= kKillStep;
    };
    report.expect(cluster.wait_for_status(1, has_come, kLong), what + "the job runs");
    cluster.kill_daemon(1);
    if (is_lost) cluster.manager(1).forget();
    cluster.restart_daemon(1);
    for (auto& rank : ranks) rank.say("go");
    for (auto& rank : ranks)
        report.expect(rank.wait_for_exit(Milliseconds(60'000)) == 3, what + "ranks are told: " + rank.output());
    plan.hold = 0;
    const auto answers = run_job(cluster, 2, plan, report);
    report.expect(!answers.empty() && last_hash_of(answers) == expected,
                  fmt::format("{}last averages {}, {} undisturbed", what, last_hash_of(answers), expected));
    const auto first = first_of(answers);
    report.expect(is_lost ? first == 1 : first > kKillStep, fmt::format("{}it goes on at step {}", what, first));
}

}  // namespace

void check_state_end_to_end(const Options& options, Report& report) {
    const auto devices = std::min<std::size_t>(2, device_count());
    const std::string large = options.is_small ? "33,70000,1100000" : "33,4101,70000,1100000,9000000";
    {
        const Cluster cluster(2, kHostState);
        int number = 0;
        for (const char* codec :
             {"all | sign", "variance(2) | pow2(bits=4) | auto", "topk(0.01) | pow2(bits=4) | auto",
              "lowrank(2, columns=square)", "delta | all | sign", "momentum(0.9) | topk(0.01) | pow2(bits=4) | auto"}) {
            JobPlan plan;
            plan.codec = codec;
            plan.elements = large;
            plan.devices = devices;
            plan.is_spread = true;
            plan.name = std::to_string(++number);
            check_against_host(cluster, 2, plan, report);
        }
    }
    const Expected shared(large, report);
    const Expected whole(options.is_small ? "33,70000,20000" : large, report);
    check_killed_daemon(whole, report, false, devices);
    check_killed_daemon(whole, report, true, 1);
    check_lost_descriptor(whole, report, devices);
    check_other_memory(whole, report, devices);
    check_killed_rank(whole, report, devices);
    check_snapshots(shared, report, devices);
    check_clean_stop(whole, report, devices);
    check_room(whole, report);
    // Its factor lies on the host, beside r on a GPU.
    const Expected factored("33,70000,20000", report, "lowrank(2, columns=square)");
    check_killed_daemon(factored, report, true, devices);
    check_snapshots(factored, report, 1);
    // What was sent and the average of all of it on GPUs, and on the host the number of the life that made them.
    const Expected followed("33,70000,20000", report, "delta | topk(0.01) | pow2(bits=4) | auto");
    check_killed_daemon(followed, report, true, devices);
    check_snapshots(followed, report, 1);
    check_two_nodes(followed.elements, report, devices, false, followed.codec);
    // On the host lies also what a budget has come to.
    const Expected steered("33,70000,20000", report, "gaussian_k(0.01) | f32 | auto; budget_bytes_per_step = 2000");
    check_killed_daemon(steered, report, true, devices);
    check_snapshots(steered, report, 1);
    check_two_nodes(steered.elements, report, devices, false, steered.codec);
    // And so does the payload that steps are skipped by.
    const Expected skipping("33,70000,20000", report, "similarity(skip=0.5, most=2) | all | natural");
    check_killed_daemon(skipping, report, true, devices);
    check_snapshots(skipping, report, 1);
    // Ranks that come back bind slices and second moments anew.
    const Expected sampled("33,70000,20000", report, kUsualCodec, true);
    check_killed_daemon(sampled, report, true, devices);
    check_killed_rank(sampled, report, devices);
    for (const bool is_lost : {false, true}) check_two_nodes(whole.elements, report, devices, is_lost);
    if (devices < 2) return report.skip("state on several GPUs, and over to others: this host has one");
    check_killed_daemon(shared, report, true, devices);
    check_other_gpus(shared, report, 1, 2);
    check_other_gpus(whole, report, 2, 1);
}

}  // namespace gradsieve::gpu_check
