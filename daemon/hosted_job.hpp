// One job on this node: carries out what the job's state machine asks for, with the sessions, the codec and the network
// at hand. All arithmetic is the codec's, all decisions are the machine's. Conductor thread only.
#pragma once

#include "base/clock.hpp"
#include "daemon/budget_steering.hpp"
#include "daemon/codec_choice.hpp"
#include "daemon/codec_pool.hpp"
#include "daemon/config.hpp"
#include "daemon/gpu_pool.hpp"
#include "daemon/hosted_group.hpp"
#include "daemon/hosted_scope.hpp"
#include "daemon/hosted_tensor.hpp"
#include "daemon/job_trace.hpp"
#include "daemon/kept_states.hpp"
#include "daemon/log.hpp"
#include "daemon/network_thread.hpp"
#include "daemon/plain_choice.hpp"
#include "daemon/session.hpp"
#include "daemon/snapshotter.hpp"
#include "exchange/job_machine.hpp"
#include "exchange/link_meter.hpp"
#include "shm/device_message.hpp"
#include "shm/message.hpp"
#include "shm/session_memory.hpp"
#include "shm/state_message.hpp"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace gradsieve::daemon {

/// Bytes of all jobs against `memory_limit_mib`.
struct MemoryBudget {
    ByteCount used_bytes = 0;
    ByteCount limit_bytes = 0;
    /// Errors: kResourceExhausted with the figures; nothing is taken then.
    [[nodiscard]] Status take(ByteCount bytes, std::string_view what);
    void give_back(ByteCount bytes) noexcept { used_bytes -= bytes; }
    /// Gives up something that is only kept; false if there is nothing.
    std::function<bool()> make_room = nullptr;
};

/// What a job uses of the daemon; all of it outlives the job.
struct JobSurroundings {
    const Config* config = nullptr;
    CodecPool* pool = nullptr;
    GpuPool* gpus = nullptr;
    NetworkThread* network = nullptr;             ///< null on a single node
    codec::EncodeWorkspace* workspace = nullptr;  ///< for work done on the conductor
    MemoryBudget* budget = nullptr;
    Log* log = nullptr;
    std::uint64_t epoch_seed = 0;
    KeptStates* kept = nullptr;        ///< null: state ends with the job
    std::uint32_t owner = 0;           ///< uid of who asks for the job
    Snapshotter* snapshots = nullptr;  ///< null: none are made or read
    /// Steps that this session's program names to go on from, and those that were chosen for the job's next start.
    std::vector<shm::StateRequest> wishes = {};
    ResumeChoice choice = {};
    /// To whoever asked for something that took a while; a caller that is gone is no error.
    std::function<void(std::uint64_t session_id, const shm::StateReply&)> reply = nullptr;
    std::function<void(std::uint64_t session_id, const shm::TraceReply&)> reply_trace = nullptr;
};

class HostedJob {
public:
    /// Lays out tensors, state and results for the first rank's `request`. Errors: kInvalidArgument (codec text),
    /// kResourceExhausted (memory, with figures).
    [[nodiscard]] static Result<std::unique_ptr<HostedJob>> make(const shm::AttachRequest& request,
                                                                 const JobSurroundings& surroundings, TimePoint now);
    ~HostedJob();
    HostedJob(const HostedJob&) = delete;
    HostedJob& operator=(const HostedJob&) = delete;

    struct Attachment {
        shm::AttachReply reply;
        std::vector<int> descriptors;  ///< still owned by session and job
    };
    /// Errors: kAlreadyExists, kMismatch, kPermissionDenied, kResourceExhausted, kFailedPrecondition.
    [[nodiscard]] Result<Attachment> attach(Session& session, const shm::AttachRequest& request, TimePoint now);

    void on_submission(Session& session, const shm::Submission& submission, TimePoint now);
    void on_session_gone(Session& session, const std::string& text, TimePoint now);
    void on_task_done(std::unique_ptr<CodecTask> task, TimePoint now);
    /// Device memory of the session's tensors. Answers on the session's socket, at once or when a GPU's worker is done.
    void on_bind_request(Session& session, const shm::BindRequest& request, std::vector<UniqueFd> descriptors);
    /// A broadcast's values have been read or written.
    void on_copy_done(std::unique_ptr<GpuCopyTask> task, TimePoint now);
    void on_bind_done(Session& session, std::unique_ptr<GpuBindTask> task, TimePoint now);
    /// A piece of a snapshot has come off the GPUs.
    void on_state_read(std::unique_ptr<GpuStateReadTask> task, TimePoint now);
    void on_frame(const transport::InFrame& frame, TimePoint now);
    void on_peer_event(const transport::PeerEvent& event, TimePoint now);
    void on_time(TimePoint now);
    void on_daemon_stopping(TimePoint now);
    /// A GPU is lost to this process: the job ends if its ranks' gradients lie there.
    void on_gpu_lost(const GpuWorker& worker, const std::string& text, TimePoint now);
    /// Carries out actions until none is left; then lets gathered records leave.
    void run(TimePoint now);

    [[nodiscard]] bool is_ended() const noexcept { return is_ended_; }
    /// Nothing reads the sessions' slabs and nothing will: sessions that are gone may be forgotten.
    [[nodiscard]] bool can_forget_sessions() const noexcept {
        return tasks_out_ == 0 && (is_ended_ || members_.empty());
    }
    void forget(Session& session);
    /// All local ranks have detached; only last acknowledgements are awaited.
    [[nodiscard]] bool is_leaving(TimePoint now) const { return machine_.snapshot(now).phase == "leaving"; }
    [[nodiscard]] TimePoint ended_at() const noexcept { return ended_at_; }
    /// Results and their share of the budget, and the state if nobody asked to give it up; only when removable.
    void release_memory();
    /// The state goes to those that are kept, or ends if all ranks detached or nothing was committed. No task is out.
    void give_up_state(TimePoint now);
    void on_snapshot_done(const std::shared_ptr<SnapshotTask>& task, TimePoint now);
    /// A snapshot of a committed step is wanted on every node; answered through JobSurroundings::reply, also at once.
    void on_save_request(std::uint64_t session_id, const shm::StateRequest& request, TimePoint now);
    /// The next steps are recorded; answered through JobSurroundings::reply_trace, also at once.
    void on_trace_request(std::uint64_t session_id, const shm::TraceRequest& request, TimePoint now);
    /// That session is gone.
    void drop_trace(std::uint64_t session_id);
    /// The transport has taken a marked frame.
    void on_frame_sent(std::uint64_t number, TimePoint at);
    [[nodiscard]] uid_t owner() const noexcept { return owner_; }
    /// What is to be written at a clean stop; null if there is nothing.
    [[nodiscard]] shm::StateSegment* state() noexcept { return state_ ? &*state_ : nullptr; }
    /// What of it lies on GPUs.
    [[nodiscard]] const DeviceParts& state_parts() const noexcept { return parts_; }
    [[nodiscard]] bool is_removable() const noexcept { return can_forget_sessions() && sessions_.empty(); }

    // -- for status --
    [[nodiscard]] const exchange::JobKey& key() const noexcept { return machine_.key(); }
    [[nodiscard]] exchange::JobSnapshot snapshot(TimePoint now) const { return machine_.snapshot(now); }
    [[nodiscard]] const std::vector<HostedTensor>& tensors() const noexcept { return tensors_; }
    [[nodiscard]] const std::vector<GroupTotals>& groups() const noexcept { return groups_; }
    [[nodiscard]] const std::map<Rank, Session*>& sessions() const noexcept { return sessions_; }
    [[nodiscard]] const std::deque<StepTimes>& step_times() const noexcept { return step_times_; }
    [[nodiscard]] const CodecChoice& choice() const noexcept { return choice_; }
    [[nodiscard]] const BudgetSteering& steering() const noexcept { return steering_; }
    [[nodiscard]] const PlainChoice& plain() const noexcept { return plain_; }
    [[nodiscard]] const Status& end_status() const noexcept { return end_status_; }
    [[nodiscard]] ByteCount memory_bytes() const noexcept { return memory_bytes_ + state_bytes_; }
    /// Why kept state was not gone on from; empty if nothing was lost.
    [[nodiscard]] const std::string& state_text() const noexcept { return state_text_; }
    [[nodiscard]] std::uint32_t world_size() const noexcept { return spec_.world_size; }
    [[nodiscard]] double allreduce_bytes() const noexcept { return allreduce_bytes_; }
    [[nodiscard]] double sent_bytes() const noexcept { return sent_bytes_; }
    /// Set once the job is in the list of ended jobs: it takes no further part in sharing out.
    [[nodiscard]] bool is_retired() const noexcept { return is_retired_; }
    void set_retired() noexcept { is_retired_ = true; }
    /// This job's part of what the transport sent; see docs/status-document.md.
    void add_sent_bytes(double bytes) noexcept { sent_bytes_ += bytes; }
    [[nodiscard]] double payload_bytes_since_last_share() noexcept {
        return std::exchange(payload_bytes_unshared_, 0.0);
    }

private:
    HostedJob(const shm::AttachRequest& request, const JobSurroundings& surroundings, exchange::JobSpec spec,
              CodecChoice choice);
    [[nodiscard]] Status lay_out(std::span<const shm::TensorEntry> sorted);
    /// What codecs that measure similarity, and those that skip, take of the budget.
    [[nodiscard]] Status take_signatures();
    // hosted_job_state.cpp
    [[nodiscard]] shm::StateTable state_table() const;
    [[nodiscard]] Status lay_out_state();
    void take_up_state(const shm::StateTable& wanted);
    void park(const std::string& name, int fd);
    // hosted_job_snapshots.cpp
    void offer_snapshots(const shm::StateTable& wanted);
    void save_snapshot(exchange::GroupNumber group);
    void start_save(exchange::GroupNumber group, Step step, bool is_pinned);
    [[nodiscard]] bool is_interval(Step step) const;
    [[nodiscard]] bool is_held(const HostedTensor& tensor) const;
    void encode_deferred(TimePoint now);
    void load_snapshot(exchange::GroupNumber group, const FoundSnapshot& found);
    void on_loaded(const std::shared_ptr<SnapshotTask>& task, TimePoint now);
    void set_loaded_words(const SnapshotTask& task, bool on_devices);
    void finish_loaded(exchange::GroupNumber group);
    void give_read(std::unique_ptr<GpuStateReadTask> task);
    void announce_start(const exchange::StartJob& action);
    void take_over_generations();
    // hosted_job_pinned.cpp
    [[nodiscard]] Status check_wishes(const Session& session, Rank rank) const;
    [[nodiscard]] Status take_wishes(const std::vector<shm::StateRequest>& wishes);
    [[nodiscard]] Result<std::vector<Step>> wanted_steps(const std::vector<shm::StateRequest>& wishes) const;
    void offer_pinned(const shm::StateTable& wanted);
    void give_up_abandoned(const exchange::StartJob& start);
    void advance_pins(exchange::GroupNumber group, TimePoint now);
    /// Nothing: it is under way.
    [[nodiscard]] std::optional<exchange::SnapshotOutcome> start_pin(exchange::GroupNumber group, Step step);
    void on_pinned(const SnapshotTask& task, TimePoint now);
    [[nodiscard]] std::shared_ptr<SnapshotTask> make_pin_task(SnapshotTask::Kind kind, exchange::GroupNumber group,
                                                              Step step) const;
    [[nodiscard]] PinnedLimits pinned_limits() const;
    // hosted_job_state.cpp
    [[nodiscard]] bool can_keep_state() const;
    /// What is said of a job that all ranks have left.
    [[nodiscard]] std::string left_text() const;
    void note_lost_state(const std::string& text);
    [[nodiscard]] Status begin_from(const exchange::StartJob& start);
    void invalidate(HostedTensor& tensor, std::size_t index);
    void finish_generation(HostedTensor& tensor, std::size_t index, Step step, double scale);
    void forget_state();
    // hosted_job_trace.cpp
    [[nodiscard]] TraceExtent trace_extent() const;
    [[nodiscard]] Status missed_steps(TimePoint now) const;
    void trace_task(const CodecTask& task);
    void advance_trace(TimePoint now);
    void end_trace(const Status& status);
    void forget_trace();
    // hosted_job.cpp
    [[nodiscard]] Status check_request(const Session& session, const shm::AttachRequest& request) const;

    void carry_out(exchange::Action& action, TimePoint now);
    void carry_out_all(TimePoint now);
    void act(exchange::SendFrame& action, TimePoint now);
    void act(exchange::StartJob& action, TimePoint now);
    void act(exchange::EncodeTensor& action, TimePoint now);
    void act(exchange::DecodeTensor& action, TimePoint now);
    void act(exchange::DeliverResult& action, TimePoint now);
    void act(exchange::CommitStep& action, TimePoint now);
    void act(exchange::AbortStep& action, TimePoint now);
    void act(exchange::ReadBroadcast& action, TimePoint now);
    void act(exchange::DeliverBroadcast& action, TimePoint now);
    void act(exchange::DeliverCheck& action, TimePoint now);
    void act(exchange::SaveSnapshot& action, TimePoint now);
    void act(exchange::SnapshotKept& action, TimePoint now);
    void act(exchange::DeliverSnapshot& action, TimePoint now);
    void act(exchange::EndJob& action, TimePoint now);

    [[nodiscard]] Result<std::unique_ptr<CodecTask>> make_encode_task(HostedTensor& tensor, Step step);
    void dispatch(std::unique_ptr<CodecTask> task, TimePoint now);
    // hosted_job_scope.cpp
    [[nodiscard]] Status lay_out_scopes();
    [[nodiscard]] HostedScope& scope_of(const HostedTensor& tensor);
    [[nodiscard]] static bool is_draining(const HostedTensor& tensor);
    void encode_member(HostedTensor& tensor, Step step, TimePoint now);
    void give_phase(HostedScope& scope, std::vector<std::unique_ptr<CodecTask>> tasks, TimePoint now);
    void on_phase_done(std::unique_ptr<CodecTask> task, TimePoint now);
    void advance(HostedScope& scope, TimePoint now);
    void end_scopes(exchange::GroupNumber group, Step step, TimePoint now);
    void answer_ended(HostedScope& scope, TimePoint now);
    void check_hand_ins(HostedScope& scope, TimePoint now);
    // hosted_job_phases.cpp
    [[nodiscard]] Status lay_out_phases();
    // hosted_job_shards.cpp
    [[nodiscard]] Status lay_out_shards();
    void fold_shards();
    static void clear_stale(HostedTensor& tensor, std::size_t generation);
    // hosted_job_gpu.cpp
    [[nodiscard]] Status check_places(std::span<const shm::TensorEntry> sorted) const;
    [[nodiscard]] Status check_binding(const Session& session, const shm::BindRequest& request,
                                       std::size_t descriptor_count) const;
    void bind(Session& session, const shm::BindRequest& request, std::vector<UniqueFd> descriptors);
    void answer_bind(Session& session, const shm::BindReply& reply);
    void unbind(Session& session, std::span<const std::uint32_t> tensor_indices);
    void release(std::vector<std::unique_ptr<GpuBuffer>> buffers);
    void add_gpu_buffers(CodecTask& task) const;
    [[nodiscard]] Status check_bound(const HostedTensor& tensor, std::span<Session* const> sessions) const;
    void read_device_broadcast(const exchange::ReadBroadcast& action, TimePoint now);
    void deliver_device_broadcast(const exchange::DeliverBroadcast& action);
    void give_copy(HostedTensor& tensor, std::unique_ptr<GpuCopyTask> task);
    // hosted_job_device_state.cpp
    [[nodiscard]] shm::StatePlacement wanted_placement() const;
    [[nodiscard]] Status take_gpu_memory(std::span<const GpuClaim> claims);
    bool make_gpu_room(std::span<const GpuClaim> claims);
    [[nodiscard]] Status bring_state(GpuBindTask& task);
    void add_contents(GpuStateSetup& inout_setup) const;
    [[nodiscard]] bool retries(std::unique_ptr<GpuBindTask>& inout_task, const Session& session, TimePoint now);
    void retry_bind(TimePoint now);
    [[nodiscard]] Status take_over_state(GpuBindTask& task);
    [[nodiscard]] Status take_over_parts(GpuStateSetup& setup);
    void forget_parts();
    void on_state_failed(const GpuStateSetup& setup, const Status& status);
    void place_state(HostedTensor& tensor) const;
    void place_host_state(HostedTensor& tensor) const;
    void release_gpu_state();
    // hosted_job_gpu_set.cpp
    void hold_bind(Session& session, const shm::BindRequest& request, std::vector<UniqueFd> descriptors);
    void settle_held_binds();
    void fix_gpus();
    [[nodiscard]] Result<std::size_t> gpu_place_of(std::span<const std::byte, 16> uuid) const;
    void fill_not_a_number(HostedTensor& tensor, const exchange::DeliverResult& action);

    /// Something goes by how fast the link is.
    [[nodiscard]] bool measures_link() const;
    void steer(const GroupTotals& group, const exchange::CommitStep& action);
    void on_encode_done(CodecTask& task, TimePoint now);
    static void note_gradient(HostedTensor& tensor, CodecTask& task);
    void on_decode_done(CodecTask& task, TimePoint now);
    void submit_average(Session& session, const shm::Submission& submission, TimePoint now);
    void complete(Session& session, const shm::Completion& completion);
    /// What `index` in a completion is about: a tensor, a group (named by its first tensor), or nothing.
    struct About {
        std::optional<exchange::TensorNumber> tensor{};
        std::optional<exchange::GroupNumber> group{};
    };
    struct HeldCompletion {
        shm::CompletionKind kind{};
        About about;
        Step step = 0;
        Status status;
        std::uint64_t value = 0;
    };
    void say_held();
    void close_hand_ins(const HostedTensor& tensor);
    void complete_all(shm::CompletionKind kind, const About& about, Step step, const Status& status,
                      std::uint64_t value = 0);

    // constant after construction
    JobSurroundings surroundings_;
    exchange::JobSpec spec_;
    CodecChoice choice_;
    std::uint64_t random_seed_ = 0;     ///< of unbiased rounding, on this node
    std::uint64_t selection_seed_ = 0;  ///< of random selectors, on all nodes
    uid_t owner_ = 0;
    bool has_owner_ = false;
    // conductor thread
    exchange::JobMachine machine_;
    std::optional<shm::StateSegment> state_;
    ByteCount state_bytes_ = 0;
    bool was_taken_up_ = false;  ///< `state_` is an earlier life's
    exchange::KeptState offer_;
    std::map<std::pair<exchange::GroupNumber, Step>, FoundSnapshot> snapshots_;  ///< that the job may go on from
    std::map<exchange::GroupNumber, std::shared_ptr<SnapshotTask>> saving_;      ///< one at a time of each group
    /// Pinned ones that the job goes on from only if they are named.
    std::map<std::pair<exchange::GroupNumber, Step>, FoundSnapshot> named_;
    std::vector<Step> wanted_by_ranks_;                              ///< by group; 0 = nothing named
    std::map<exchange::GroupNumber, std::uint64_t> wanted_digests_;  ///< where one is named with the step
    std::map<exchange::GroupNumber, std::set<Step>> pins_;           ///< wanted, and not answered for yet
    std::map<std::pair<exchange::GroupNumber, Step>, exchange::SnapshotOutcome> pinned_;  ///< made in this life
    struct SaveWaiter {
        std::uint64_t session_id = 0;
        std::uint64_t number = 0;
        std::set<exchange::GroupNumber> groups;  ///< not answered for yet
        std::map<exchange::GroupNumber, Step> steps;
        std::vector<shm::SnapshotPart> parts;
    };
    std::vector<SaveWaiter> save_waiters_;
    std::vector<exchange::EncodeTensor> deferred_;     ///< wait until what they would overwrite is copied
    std::optional<exchange::StartJob> pending_start_;  ///< ranks are told when the snapshots are loaded
    std::size_t loads_out_ = 0;
    /// Loaded, but not on the GPUs yet: nothing of these groups counts as committed before it is.
    std::map<exchange::GroupNumber, std::shared_ptr<SnapshotTask>> loaded_;
    std::string state_text_;
    GpuWorker* gpu_ = nullptr;  ///< of all GPUs that the local ranks' memory lies on; null: not known yet
    /// First requests of local ranks to bind, until all have sent theirs: only then is known which GPUs share the work.
    struct HeldBind {
        Session* session = nullptr;
        codec::cuda::DeviceInfo device;
        shm::BindRequest request;
        std::vector<UniqueFd> descriptors;
    };
    std::map<Rank, HeldBind> held_binds_;
    DeviceParts parts_;                              ///< of `state_`, as its placement says
    PartMemory gpu_memory_;                          ///< those parts, once a binding brought them
    bool has_state_ = false, is_state_out_ = false;  ///< device tensors have their state; a binding brings it
    std::unique_ptr<GpuBindTask> retried_;           ///< waits for memory that was given up for it
    TimePoint retry_at_{}, room_until_{};
    std::optional<codec::cuda::SharedHostMemory> host_state_;  ///< `state_` as GPUs see it
    bool has_host_state_ = false;  ///< state of device tensors lies in `state_`, constant after lay_out_state
    std::optional<shm::ResultArea> results_;
    std::vector<std::unique_ptr<HostedScope>> scopes_;
    std::vector<HostedTensor> tensors_;
    std::vector<GroupTotals> groups_;
    BudgetSteering steering_;
    PlainChoice plain_;
    exchange::LinkMeter meter_;  ///< while measures_link()
    std::map<Rank, Session*> sessions_;
    std::vector<exchange::Member> members_;
    std::map<PeerIndex, float> factors_;
    std::size_t tasks_out_ = 0, gpu_decodes_out_ = 0;
    std::vector<HeldCompletion> held_;
    ByteCount memory_bytes_ = 0;
    codec::PayloadPool payloads_;  // workers take from it, the network thread gives back
    std::deque<StepTimes> step_times_;
    SteadyClock trace_clock_;
    std::unique_ptr<JobTrace> trace_;  ///< null, mostly
    ByteCount trace_bytes_ = 0;        ///< its part of memory_bytes_
    double allreduce_bytes_ = 0, sent_bytes_ = 0, payload_bytes_unshared_ = 0;
    bool is_ended_ = false, is_retired_ = false;
    TimePoint ended_at_{};
    Status end_status_;
    std::optional<Step> left_open_;  ///< a step that lacked an average when the last rank detached
};

}  // namespace gradsieve::daemon
