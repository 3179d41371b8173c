// One job on this node: carries out what the job's state machine asks for, with the sessions, the codec and the network
// at hand. All arithmetic is the codec's, all decisions are the machine's. Conductor thread only.
#pragma once

#include "base/clock.hpp"
#include "daemon/codec_choice.hpp"
#include "daemon/codec_pool.hpp"
#include "daemon/config.hpp"
#include "daemon/gpu_pool.hpp"
#include "daemon/hosted_tensor.hpp"
#include "daemon/log.hpp"
#include "daemon/network_thread.hpp"
#include "daemon/session.hpp"
#include "exchange/job_machine.hpp"
#include "shm/device_message.hpp"
#include "shm/message.hpp"
#include "shm/session_memory.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
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
};

struct StepTimes {
    double total_ms = 0, encode_ms = 0, decode_ms = 0;
};
struct GroupTotals {
    std::string name{};
    std::vector<exchange::TensorNumber> tensors{};
    ElementCount elements = 0;
    Step committed = 0;
    std::uint64_t steps_committed = 0, steps_aborted = 0;
    std::optional<TimePoint> opened{};  ///< the open step's first local hand-in
    StepTimes open_times{};
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
    void on_bind_done(Session& session, GpuWorker& worker, std::unique_ptr<GpuBindTask> task);
    void on_frame(const transport::InFrame& frame, TimePoint now);
    void on_peer_event(const transport::PeerEvent& event, TimePoint now);
    void on_time(TimePoint now) { machine_.on_time(now); }
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
    /// State, results and their share of the budget; only when removable.
    void release_memory();
    [[nodiscard]] bool is_removable() const noexcept { return can_forget_sessions() && sessions_.empty(); }

    // -- for status --
    [[nodiscard]] const exchange::JobKey& key() const noexcept { return machine_.key(); }
    [[nodiscard]] exchange::JobSnapshot snapshot(TimePoint now) const { return machine_.snapshot(now); }
    [[nodiscard]] const std::vector<HostedTensor>& tensors() const noexcept { return tensors_; }
    [[nodiscard]] const std::vector<GroupTotals>& groups() const noexcept { return groups_; }
    [[nodiscard]] const std::map<Rank, Session*>& sessions() const noexcept { return sessions_; }
    [[nodiscard]] const std::deque<StepTimes>& step_times() const noexcept { return step_times_; }
    [[nodiscard]] const CodecChoice& choice() const noexcept { return choice_; }
    [[nodiscard]] const Status& end_status() const noexcept { return end_status_; }
    [[nodiscard]] ByteCount memory_bytes() const noexcept { return memory_bytes_; }
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
    [[nodiscard]] Status lay_out_state();
    [[nodiscard]] Status check_request(const Session& session, const shm::AttachRequest& request) const;

    void carry_out(exchange::Action& action, TimePoint now);
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
    void act(exchange::EndJob& action, TimePoint now);

    [[nodiscard]] Result<std::unique_ptr<CodecTask>> make_encode_task(HostedTensor& tensor, Step step);
    void dispatch(std::unique_ptr<CodecTask> task, TimePoint now);
    // hosted_job_gpu.cpp
    [[nodiscard]] Status check_places(std::span<const shm::TensorEntry> sorted) const;
    [[nodiscard]] Status check_binding(const Session& session, const shm::BindRequest& request,
                                       std::size_t descriptor_count) const;
    void answer_bind(Session& session, const shm::BindReply& reply);
    void unbind(Session& session, std::span<const std::uint32_t> tensor_indices);
    static void place_state(HostedTensor& tensor, float*& inout_next);
    void release(std::vector<std::unique_ptr<GpuBuffer>> buffers);
    void release_gpu_state();
    void add_gpu_buffers(CodecTask& task) const;
    [[nodiscard]] Status check_bound(const HostedTensor& tensor, std::span<Session* const> sessions) const;
    void read_device_broadcast(const exchange::ReadBroadcast& action, TimePoint now);
    void deliver_device_broadcast(const exchange::DeliverBroadcast& action);
    void give_copy(HostedTensor& tensor, std::unique_ptr<GpuCopyTask> task);
    void fill_not_a_number(HostedTensor& tensor, const exchange::DeliverResult& action);

    void on_encode_done(CodecTask& task, TimePoint now);
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
    uid_t owner_ = 0;
    bool has_owner_ = false;
    // conductor thread
    exchange::JobMachine machine_;
    std::optional<shm::Segment> state_;
    GpuWorker* gpu_ = nullptr;  ///< of all local ranks' device memory; null: none was bound yet
    std::vector<std::pair<GpuWorker*, codec::cuda::DeviceMemory>> gpu_state_;
    std::optional<shm::ResultArea> results_;
    std::vector<HostedTensor> tensors_;
    std::vector<GroupTotals> groups_;
    std::map<Rank, Session*> sessions_;
    std::vector<exchange::Member> members_;
    std::map<PeerIndex, float> factors_;
    std::size_t tasks_out_ = 0, gpu_decodes_out_ = 0;
    std::vector<HeldCompletion> held_;
    ByteCount memory_bytes_ = 0;
    codec::PayloadPool payloads_;  // workers take from it, the network thread gives back
    std::deque<StepTimes> step_times_;
    double allreduce_bytes_ = 0, sent_bytes_ = 0, payload_bytes_unshared_ = 0;
    bool is_ended_ = false, is_retired_ = false;
    TimePoint ended_at_{};
    Status end_status_;
};

}  // namespace gradsieve::daemon
