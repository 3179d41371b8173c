// The hall where the rooms meet: accepts sessions, moves submissions, frames and finished codec work to the jobs they
// belong to, and publishes the status page. Never blocks and never touches the elements of large tensors. One thread
// calls `run_once` and `wait`; `run_once` takes the time as an argument, so tests drive it by hand.
#pragma once

#include "base/clock.hpp"
#include "daemon/codec_pool.hpp"
#include "daemon/config.hpp"
#include "daemon/gpu_pool.hpp"
#include "daemon/hosted_job.hpp"
#include "daemon/network_thread.hpp"
#include "daemon/service.hpp"
#include "daemon/session.hpp"
#include "daemon/status_document.hpp"
#include "daemon/wake.hpp"
#include "shm/doorbell.hpp"
#include "shm/local_socket.hpp"
#include "shm/status_page.hpp"

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gradsieve::daemon {

class Conductor {
public:
    /// `config` may be replaced by `apply_limits` and `set_nodes`; the others outlive the conductor. `network` is null
    /// on a single node.
    /// `kept`: descriptors of states that an earlier daemon left. `snapshots`: null if none are made or read.
    Conductor(Config config, shm::LocalListener& listener, shm::Doorbell& doorbell, WakeFlag& wake, CodecPool& pool,
              GpuPool& gpus, std::unique_ptr<NetworkThread> network, shm::StatusPageWriter& status_page, Log& log,
              std::vector<HandedDescriptor> kept = {}, Snapshotter* snapshots = nullptr);
    ~Conductor();

    /// Takes everything at hand one step further. True if anything happened.
    bool run_once(TimePoint now);
    /// Sleeps until something is at hand or `timeout` has passed.
    void wait(Duration timeout);

    /// No session and no submission from here on; open jobs end with a text that says why.
    void begin_stop(TimePoint now);
    /// Stopping and everything said: clients have been told, frames are on their way.
    [[nodiscard]] bool is_drained() const;
    /// Writes what is committed of every state, if snapshots are wanted; after the last turn. Waits for the disk.
    void save_states();
    /// Takes over the values that may change while jobs run.
    void apply_limits(const Config& fresh);
    /// Takes over another node list and the network that goes with it; only without jobs.
    void set_nodes(const Config& fresh, std::unique_ptr<NetworkThread> network);
    /// Not empty: a GPU is lost to this process, its jobs have been told, and only a new process can use it again.
    [[nodiscard]] const std::string& gpu_failure() const noexcept { return gpu_failure_; }
    [[nodiscard]] bool has_jobs() const noexcept { return !jobs_.empty(); }

    /// Moves with every run: what the watchdog and the peers' heartbeats look at. Any thread.
    [[nodiscard]] std::uint64_t tick() const noexcept { return tick_.load(std::memory_order_relaxed); }

    [[nodiscard]] const Config& config() const noexcept { return config_; }
    [[nodiscard]] const NetworkThread* network() const noexcept { return network_.get(); }

private:
    void watch(int fd, std::uint64_t tag);
    void on_ready(std::uint64_t tag, TimePoint now);

    bool accept_sessions(TimePoint now);
    void on_socket_ready(Session& session, TimePoint now);
    void on_bind_message(Session& session, shm::LocalMessage message, TimePoint now);
    // conductor_state.cpp
    void on_state_message(Session& session, shm::LocalMessage message, TimePoint now);
    /// Nothing: the answer comes later, or with the attach.
    [[nodiscard]] std::optional<shm::StateReply> answer_state_request(Session& session,
                                                                      const shm::StateRequest& request,
                                                                      shm::LocalMessage& message, TimePoint now);
    [[nodiscard]] shm::StateReply read_pinned(Session& session, const shm::StateRequest& request, UniqueFd& ret_file);
    [[nodiscard]] shm::StateReply release_pinned(const Session& session, const shm::StateRequest& request);
    [[nodiscard]] shm::StateReply choose_step(const Session& session, const shm::StateRequest& request);
    [[nodiscard]] Status take_in(const Session& session, const shm::StateRequest& request, shm::LocalMessage& message);
    [[nodiscard]] Status check_state_owner(const Session& session, const exchange::JobKey& key) const;
    void reply_to(std::uint64_t session_id, const shm::StateReply& reply);
    void on_taken_in(const SnapshotTask& task);
    // conductor_trace.cpp
    void on_trace_message(Session& session, const shm::LocalMessage& message, TimePoint now);
    void reply_with_trace(std::uint64_t session_id, const shm::TraceReply& reply);
    void drain_sent_frames();
    // conductor_sessions.cpp
    [[nodiscard]] Result<HostedJob::Attachment> attach(Session& session, const shm::AttachRequest& request,
                                                       TimePoint now);
    [[nodiscard]] Status check_second_run(const shm::AttachRequest& request, TimePoint now) const;
    [[nodiscard]] Status check_kept_owner(const Session& session, const exchange::JobKey& key) const;
    /// The last life of a job makes room for the next: its state is up to be taken.
    [[nodiscard]] Status end_life(HostedJob& job, TimePoint now);
    bool drain_network(TimePoint now);
    bool drain_codec(TimePoint now);
    bool drain_gpus(TimePoint now);
    void look_after_gpu(const GpuWorker& worker, TimePoint now);
    [[nodiscard]] HostedJob* owner_of(std::uint64_t job_hash, const HostedTensor* tensor);
    bool drain_snapshots(TimePoint now);
    [[nodiscard]] Status save_group(shm::StateSegment& state, const DeviceParts& parts, std::uint32_t group,
                                    Step step) const;
    bool drain_submissions(TimePoint now);
    bool drain_session(Session& session, TimePoint now);
    [[nodiscard]] static Result<bool> take_submission(Session& session, shm::Submission& ret_submission);
    /// A hand-in waits for its GPU.
    [[nodiscard]] bool is_polling() const;
    void run_jobs(TimePoint now);
    void ring_clients();
    void remove_gone(TimePoint now);
    void retire(HostedJob& job, TimePoint now);
    void share_out_sent_bytes();
    [[nodiscard]] StatusFacts status_facts() const;
    void publish_status(TimePoint now);
    /// Looks for work a little longer before it sleeps, where that takes no core from anybody. True if there is some.
    [[nodiscard]] bool spin_for_work() const;
    [[nodiscard]] bool has_work() const;
    void note_error(const std::string& text, TimePoint now);

    // constant after construction
    shm::LocalListener& listener_;
    shm::Doorbell& doorbell_;
    WakeFlag& wake_;
    CodecPool& pool_;
    GpuPool& gpus_;
    shm::StatusPageWriter& status_page_;
    Log& log_;
    UniqueFd epoll_;
    // owned by the conductor thread
    Config config_;
    std::unique_ptr<NetworkThread> network_;
    codec::EncodeWorkspace workspace_;
    MemoryBudget budget_;
    KeptStates kept_states_;
    Snapshotter* snapshots_;
    std::map<std::uint64_t, std::unique_ptr<HostedJob>> jobs_;    // by job hash
    std::vector<std::unique_ptr<HostedJob>> leaving_jobs_;        // ended, but a task or a session still holds them
    std::map<std::uint64_t, std::unique_ptr<Session>> sessions_;  // by session id
    std::vector<PeerView> peers_;
    std::deque<EndedJob> ended_jobs_;
    std::deque<DistinctError> errors_;
    transport::Inbox inbox_;
    std::uint64_t next_session_id_ = 1;
    std::uint64_t sent_bytes_shared_ = 0;
    TimePoint started_{};
    TimePoint status_due_{};
    TimePoint timers_due_{};
    bool is_stopping_ = false;
    std::string gpu_failure_;

    std::atomic<std::uint64_t> tick_{0};
};

}  // namespace gradsieve::daemon
