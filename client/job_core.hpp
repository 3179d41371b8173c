// The one object behind a Job and its Tensors: lock, ledger, attachment, and how threads wait for the daemon. C++ and C
// surface are thin words around it. Any thread; every wait has a deadline. In a forked child nothing in here is touched
// but the process mark: locks may be held by threads that do not exist there, and mappings are absent.
#pragma once

#include "base/clock.hpp"
#include "base/status.hpp"
#include "client/attachment.hpp"
#include "client/device_binding.hpp"
#include "client/ledger.hpp"
#include "client/open_bind.hpp"
#include "client/options.hpp"
#include "client/process_mark.hpp"
#include "client/registry.hpp"
#include "client/staging.hpp"
#include "gradsieve/gradsieve.hpp"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

namespace gradsieve::client {

/// What `~Job` waits for the daemon's goodbye.
inline constexpr Timeout kLeaveTimeout{2000};

/// Now + `timeout`, cut to 0 .. ten years, so that Timeout::max() is simply very long.
[[nodiscard]] TimePoint deadline_after(Timeout timeout) noexcept;

struct AddedTensor {
    std::uint32_t index = 0;
    ElementCount elements = 0;
};

/// "tensor 'w' and 3 others"
[[nodiscard]] std::string named(const std::string& first, std::size_t count);
/// kInvalidArgument for a tensor handed to another job than its own.
[[nodiscard]] Status foreign_tensor(std::string_view name);

class JobCore {
public:
    /// Dropping the last reference in a forked child frees nothing: the parent owns it all. Errors: as resolve_options.
    [[nodiscard]] static Result<std::shared_ptr<JobCore>> make(const JobOptions& options);
    explicit JobCore(ResolvedOptions options);
    JobCore(const JobCore&) = delete;
    JobCore& operator=(const JobCore&) = delete;
    ~JobCore() = default;

    [[nodiscard]] Result<AddedTensor> add_tensor(std::string_view name, std::span<const std::uint64_t> shape,
                                                 const TensorOptions& options);
    [[nodiscard]] Status start(Timeout timeout);
    [[nodiscard]] Result<Step> first_step(std::string_view group) const;
    [[nodiscard]] Status detach(Timeout timeout);
    /// detach for destructors: short, silent, harmless in a forked child.
    void leave() noexcept;

    [[nodiscard]] Result<std::span<float>> slice(std::uint32_t tensor_index, std::uint32_t sample_index);
    [[nodiscard]] Result<std::span<float>> second_moment(std::uint32_t tensor_index);
    [[nodiscard]] Status submit(std::uint32_t tensor_index, Step step, const SubmitOptions& options);
    [[nodiscard]] Result<std::span<const float>> wait(std::uint32_t tensor_index, Timeout timeout);
    [[nodiscard]] bool is_ready(std::uint32_t tensor_index);
    [[nodiscard]] Status finish(Step step, Timeout timeout, std::string_view group);
    [[nodiscard]] Result<std::span<const float>> broadcast(std::uint32_t tensor_index, Rank root, Timeout timeout);
    [[nodiscard]] Status check_equal(std::uint64_t digest, Timeout timeout);
    [[nodiscard]] Status check_parameters(Step step, std::span<const std::span<const std::byte>> parameters,
                                          Timeout timeout);
    /// Whether `check_parameters` compares at this step. The first step asked for is the job's start: always due, as is
    /// its repetition. Errors: as any call on a job that does not run.
    [[nodiscard]] Result<bool> is_check_due(Step step);

    /// Tells the daemon where on a device these tensors lie. What is wrong with a buffer is found before anything is
    /// sent; then each message takes effect as a whole. Before `start` all of them are remembered, or none.
    [[nodiscard]] Status change_bindings(std::span<const BindingChange> changes, Timeout timeout);
    [[nodiscard]] Result<bool> is_staged_tensor(std::uint32_t tensor_index) const;

    // job_snapshots.cpp
    [[nodiscard]] Result<Snapshot> request_snapshot(Step step, std::string_view group, Timeout timeout);
    [[nodiscard]] Status resume_from(Step step, std::string_view group, std::uint64_t digest);
    [[nodiscard]] Result<std::vector<std::byte>> export_snapshot(Step step, std::string_view group, Timeout timeout);
    [[nodiscard]] Result<Snapshot> import_snapshot(std::span<const std::byte> bytes, Timeout timeout);
    [[nodiscard]] Status release_snapshots(Step step, std::string_view group, Timeout timeout);

    [[nodiscard]] const ResolvedOptions& options() const noexcept { return options_; }
    [[nodiscard]] bool belongs_here() const noexcept { return mark_.is_same_process(); }

private:
    enum class Phase : std::uint8_t {
        kFresh,      ///< nothing sent, or a refused attempt is over
        kAttaching,  ///< request sent, no answer yet
        kForming,    ///< attached; not all groups started
        kRunning,    ///< all groups started; stays so when the job ends (the ledger tells)
        kLeft,       ///< detached before it ran
    };
    using Lock = std::unique_lock<std::mutex>;
    using Answer = std::optional<Status>;
    /// What a tensor was bound to before `start`.
    struct EarlyBinding {
        DeviceBuffer buffer;
        Status unshareable;  ///< not ok: why the tensor is staged
    };

    // job_start.cpp
    [[nodiscard]] Status attach(Lock& lock, TimePoint deadline, Timeout timeout);
    [[nodiscard]] Status form(Lock& lock, TimePoint deadline, Timeout timeout);
    void forget_attempt();

    // job_wait.cpp
    /// Takes in completions and sleeps until `ask` answers or the deadline passes (nothing then). Lock held, attached.
    template <typename Ask>
    [[nodiscard]] Answer wait_for(Lock& lock, TimePoint deadline, Ask ask);
    /// Sleeps without the lock until the daemon rings after `ticket` was taken, or `until`.
    void sleep_once(Lock& lock, std::uint32_t ticket, TimePoint until);
    /// Takes in all completions that are there.
    void drain();
    /// Ends the job if the daemon is gone. One system call.
    void look_for_daemon(TimePoint now);
    [[nodiscard]] Status timeout_status(const std::string& waited_for, Timeout timeout) const;

    // job_steps.cpp
    /// Ok once `start` succeeded, also after the job ended.
    [[nodiscard]] Status check_started() const;
    /// Started and, as far as is known now, not ended.
    [[nodiscard]] Status check_live();
    [[nodiscard]] Status check_options(std::uint32_t tensor_index, const SubmitOptions& options) const;
    [[nodiscard]] Status push(const shm::Submission& submission);
    /// Until the tensor's last step has an outcome; ok once the average is where the program finds it.
    [[nodiscard]] Status await_average(Lock& lock, std::uint32_t tensor_index, TimePoint deadline, Timeout timeout);
    [[nodiscard]] Status check_broadcast(std::uint32_t tensor_index, Rank root);
    [[nodiscard]] Status run_collective(Lock& lock, Collective& kind, shm::Submission submission, Timeout timeout);
    [[nodiscard]] Result<std::uint32_t> find_group(std::string_view name) const;
    [[nodiscard]] std::string tensor_text(std::uint32_t tensor_index) const;

    // job_snapshots.cpp
    [[nodiscard]] shm::StateRequest state_request(shm::StateRequestKind kind, std::string_view group, Step step) const;
    [[nodiscard]] Status state_failed(const Status& status, Timeout timeout, const std::string& waited_for) const;

    // job_devices.cpp
    [[nodiscard]] Status check_changes(std::span<const BindingChange> changes) const;
    [[nodiscard]] Status check_change(std::uint32_t tensor_index) const;
    /// Loads it the first time.
    [[nodiscard]] Result<std::shared_ptr<const CudaDriver>> driver();
    [[nodiscard]] Status bind_now(Lock& lock, std::span<const BindingChange> changes, TimePoint deadline,
                                  Timeout timeout);
    [[nodiscard]] Result<std::vector<BindingPlan>> plan_changes(std::span<const BindingChange> changes);
    [[nodiscard]] Result<BindingPlan> plan_change(const BindingChange& change);
    /// One thread at a time, as all below of it.
    [[nodiscard]] Status bind_in_turn(Lock& lock, std::span<const BindingChange> changes, TimePoint deadline,
                                      Timeout timeout);
    /// The next one of `open_bind_`.
    [[nodiscard]] Status send_bind_request();
    /// To what `open_bind_` has sent, and noted; its status names the tensors. Errors: none came: kTimeout (it may come
    /// later), or why none will.
    [[nodiscard]] Result<shm::BindReply> take_bind_answer(Lock& lock, TimePoint deadline, Timeout timeout);
    /// Nothing: no answer until the deadline. Sleeps without the lock.
    [[nodiscard]] Result<std::optional<shm::BindReply>> await_bind_reply(Lock& lock, std::uint64_t number,
                                                                         TimePoint deadline);
    [[nodiscard]] bool is_on_device(std::uint32_t tensor_index) const {
        return registry_.tensors()[tensor_index].on_device;
    }
    [[nodiscard]] bool is_staged(std::uint32_t tensor_index) const { return registry_.tensors()[tensor_index].staged; }
    /// Registered with on_device, shared or staged.
    [[nodiscard]] bool is_off_host(std::uint32_t tensor_index) const {
        return is_on_device(tensor_index) || is_staged(tensor_index);
    }
    [[nodiscard]] Status not_on_host(std::uint32_t tensor_index) const;
    /// Before the push of a hand-in. Ok for a tensor in host memory.
    [[nodiscard]] Status write_ready(std::uint32_t tensor_index, Step step);
    /// Waits, without the lock, for what the bound stream holds. Ok for a tensor in host memory.
    [[nodiscard]] Status await_device(Lock& lock, std::uint32_t tensor_index);

    // job_staging.cpp
    /// Before `start`: checks the buffers, decides which tensors are staged, and remembers all.
    [[nodiscard]] Status note_bindings(std::span<const BindingChange> changes);
    /// Not ok if a tensor would be staged that must not be.
    [[nodiscard]] Status check_required() const;
    /// After a refusal: stages what the daemon takes in host memory alone. True: ask again. False: the refusal has
    /// other reasons. Errors: the refusal, with why they are not staged.
    [[nodiscard]] Result<bool> stage_for_codec(std::span<const std::uint32_t> host_only, const Status& refusal);
    /// "tensor 'w' and 3 others"; empty if none is staged.
    [[nodiscard]] std::string staged_text() const;
    /// In `start`, of a running job.
    [[nodiscard]] Status bind_early(Lock& lock, TimePoint deadline, Timeout timeout);
    void bind_staged(const BindingPlan& plan);
    /// Copies what is to be handed in to the slab, without the lock. Other calls may have changed the ledger then.
    [[nodiscard]] Status copy_in(Lock& lock, std::uint32_t tensor_index, std::uint32_t sample_count, bool has_moment);
    /// Copies the result to the device, without the lock; `due` stays if that fails.
    [[nodiscard]] Status copy_out(Lock& lock, std::uint32_t tensor_index);
    /// Until what is due on the device is there: by this thread, or by another one that is at it.
    [[nodiscard]] Status deliver(Lock& lock, std::uint32_t tensor_index, Due due, TimePoint deadline, Timeout timeout);
    /// The same for all tensors of a group that handed `step` in.
    [[nodiscard]] Status deliver_group(Lock& lock, std::uint32_t group_index, Step step, TimePoint deadline,
                                       Timeout timeout);
    [[nodiscard]] bool is_due(std::uint32_t tensor_index, Due due) const {
        return staged_ && is_staged(tensor_index) && staged_->place(tensor_index).due == due;
    }
    void set_due(std::uint32_t tensor_index, Due due);

    // constant after construction
    const ProcessMark mark_;
    const ResolvedOptions options_;

    // guarded by m_
    mutable std::mutex m_;
    Phase phase_ = Phase::kFresh;
    Registry registry_;                            ///< constant from kAttaching on, but for what the codec has staged
    std::vector<std::uint32_t> staged_by_codec_;   ///< of this attempt to start
    ResumePoints resumes_;                         ///< likewise
    std::optional<Ledger> ledger_;                 ///< there exactly while the attachment has a session
    std::shared_ptr<Attachment> attachment_;       ///< in kAttaching the starting thread's alone
    std::optional<Step> first_check_;              ///< step of the first `check_parameters`
    std::shared_ptr<const CudaDriver> driver_;     ///< from the first `bind_device` on
    std::map<std::uint32_t, EarlyBinding> early_;  ///< by tensor index, until they are bound
    std::unique_ptr<DeviceBindings> bindings_;     ///< from the first binding of a running job on
    std::unique_ptr<StagedTensors> staged_;        ///< likewise, of a staged tensor
    std::condition_variable copy_ended_;           ///< some tensor is not being copied any more
    std::uint64_t bind_number_ = 0;                ///< last bind request
    std::optional<OpenBind> open_bind_;            ///< of the call that binds, or of the last one, if that timed out
    bool is_binding_ = false;                      ///< a thread is inside `change_bindings`, and reads the socket
    bool is_hang_up_due_ = false;                  ///< that thread is to hang up when it leaves
    bool is_starting_ = false;                     ///< a thread is inside `start`
    bool is_leaving_ = false;                      ///< kDetach was sent
    TimePoint daemon_seen_{};                      ///< when the socket was looked at last
};

/// How long one sleep may be: so soon a daemon that died without a word is noticed.
inline constexpr std::chrono::milliseconds kSleepSlice{200};

template <typename Ask>
JobCore::Answer JobCore::wait_for(Lock& lock, TimePoint deadline, Ask ask) {
    for (;;) {
        // Before looking: what another thread takes out from here on is rung for later than this, and ends the sleep.
        const auto ticket = ledger_ ? attachment_->session().ticket() : 0;
        drain();
        if (auto answer = ask()) return answer;
        const TimePoint now = std::chrono::steady_clock::now();
        if (now >= deadline) {
            look_for_daemon(now);
            return ask();
        }
        sleep_once(lock, ticket, std::min<TimePoint>(deadline, now + kSleepSlice));
    }
}

}  // namespace gradsieve::client
