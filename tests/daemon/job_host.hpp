// One daemon's surroundings of a job without a daemon around them: what its conductor would do, a turn at a time. Tests
// only.
#pragma once

#include "tests/daemon/daemon_testing.hpp"
#include "tests/daemon/pipe_network.hpp"

#include <random>

namespace gradsieve::daemon::test {

/// Standard normal numbers.
inline std::vector<float> noise(std::size_t elements, std::mt19937& random) {
    std::vector<float> values(elements);
    for (auto& value : values) value = std::normal_distribution<float>()(random);
    return values;
}

/// Everything that a job uses of one daemon, and the turns that a conductor would make.
class Host {
private:  // what the job uses to its end
    shm::Doorbell doorbell_;
    WakeFlag wake_;
    GpuPool gpus_;

public:
    explicit Host(PipeNetwork* network = nullptr, PeerIndex self = 0)
        : doorbell_(shm::Doorbell::make().value()), wake_(doorbell_.fd()), gpus_(wake_), pool_(1, wake_) {
        budget.limit_bytes = ByteCount{64} << 20U;
        if (network == nullptr) return;
        config.nodes = {{"a", "192.0.2.1"}, {"b", "192.0.2.2"}};
        config.self = self;
        network_ = std::make_unique<NetworkThread>(network->make_endpoint(self), wake_, log.log());
    }
    ~Host() { gpus_.stop(); }  // before the ranks' memory goes
    [[nodiscard]] JobSurroundings surroundings() {
        JobSurroundings all{&config, &pool_, &gpus_, network_.get(), &workspace_, &budget, &log.log(), 17};
        all.reply_trace = [this](std::uint64_t session, const shm::TraceReply& reply) {
            traces.emplace_back(session, reply);
        };
        return all;
    }
    Status make_job(const shm::AttachRequest& request) {
        auto made = HostedJob::make(request, surroundings(), now());
        if (!made.is_ok()) return made.error();
        job = std::move(*made);
        return {};
    }
    /// The rank has a job from here on; the test fails if it is refused.
    MemoryRank& attach(const shm::AttachRequest& request, pid_t pid = 4711) {
        if (!job) {
            EXPECT_TRUE(make_job(request).is_ok());
        }
        auto& rank = *ranks.emplace_back(std::make_unique<MemoryRank>(request, pid));
        const auto status = rank.attach(*job, now());
        EXPECT_TRUE(status.is_ok()) << status.to_string();
        return rank;
    }
    void turn() {
        for (auto& rank : ranks) {
            shm::Submission submission;
            while (rank->client && !rank->session.is_gone && rank->session.memory->try_pop(submission).value())
                job->on_submission(rank->session, submission, now());
        }
        if (takes_from_pool) take_from_pool();
        drain_gpus();
        if (network_) {
            transport::Inbox inbox;
            network_->take_inbox(inbox);
            network_->on_tick(1);
            while (const auto sent = network_->take_sent()) job->on_frame_sent(sent->mark.number, sent->at);
            for (const auto& event : inbox.events) job->on_peer_event(event, now());
            for (const auto& frame : inbox.frames) job->on_frame(frame, now());
        }
        job->run(now());
    }
    [[nodiscard]] static TimePoint now() { return SteadyClock().now(); }

    Config config;
    LogLines log;
    MemoryBudget budget;
    std::vector<std::unique_ptr<MemoryRank>> ranks;  // outlive the job's pointers to their sessions
    std::unique_ptr<HostedJob> job;
    std::size_t tasks_from_pool = 0;
    bool takes_from_pool = true;  ///< off: what codec threads have done is not known to the job
    std::vector<std::pair<std::uint64_t, shm::TraceReply>> traces;  ///< answers, with whom they are for

private:
    void take_from_pool() {
        for (auto& task : pool_.take_done()) {
            ++tasks_from_pool;
            job->on_task_done(std::move(task), now());
        }
    }
    void drain_gpus() {
        for (const auto& worker : gpus_.workers())
            for (auto& task : worker->take_done()) {
                if (task.codec) job->on_task_done(std::move(task.codec), now());
                if (task.copy) job->on_copy_done(std::move(task.copy), now());
                if (task.state_read) job->on_state_read(std::move(task.state_read), now());
                if (!task.bind) continue;
                const auto asked = std::ranges::find_if(
                    ranks, [&](const auto& rank) { return rank->session.id == task.bind->session_id; });
                ASSERT_NE(asked, ranks.end());
                job->on_bind_done((*asked)->session, std::move(task.bind), now());
            }
    }

    CodecPool pool_;
    codec::EncodeWorkspace workspace_;
    std::unique_ptr<NetworkThread> network_;
};

inline std::vector<shm::TensorEntry> two_tensors() {
    return {{.name = "w", .shape = {2, 3}}, {.name = "b", .shape = {2}}};
}
/// Turns until the rank's client has the completion.
inline bool wait_for(const std::vector<Host*>& hosts, MemoryRank& rank, shm::CompletionKind kind, Step step) {
    return wait_until([&] {
        for (auto* host : hosts) host->turn();
        return rank.client->has(kind, step);
    });
}
inline std::string text_of(const shm::Completion* completion) {
    return completion == nullptr ? "none"
                                 : std::string(status_code_name(completion->code)) + ": " + completion->text.data();
}

}  // namespace gradsieve::daemon::test
