// What this rank knows of its job's steps: what it handed in, what was answered, which steps are settled, why the job
// ended. Fed with completions, asked by every call. Pure bookkeeping without time, memory or sockets; never waits.
// Guarded by the core's lock.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"
#include "client/collective.hpp"
#include "client/registry.hpp"
#include "shm/message.hpp"

#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace gradsieve::client {

class Ledger {
public:
    /// `registry` must outlive the ledger and stay unchanged.
    explicit Ledger(const Registry& registry);

    /// Takes in what the daemon said. A completion that makes no sense ends the job (kInternal), as does kJobEnded.
    void on_completion(const shm::Completion& completion);
    /// The job is over for `reason` (an error); the first reason stays.
    void end(Status reason);

    [[nodiscard]] bool is_running() const noexcept { return started_groups_ == groups_.size(); }
    [[nodiscard]] bool has_ended() const noexcept { return !ended_.is_ok(); }
    [[nodiscard]] const Status& ended() const noexcept { return ended_; }
    [[nodiscard]] bool has_left() const noexcept { return has_left_; }  ///< kJobEnded came without an error

    /// May this tensor hand in `step` now? True: send it. False: the step failed already, so it is only noted, and
    /// `wait` tells. Errors: kBusy, kInvalidArgument (which step is next).
    [[nodiscard]] Result<bool> check_submit(std::uint32_t tensor_index, Step step) const;
    void on_submitted(std::uint32_t tensor_index, Step step);
    /// Has this tensor a step handed in that is neither committed nor failed?
    [[nodiscard]] bool has_open_step(std::uint32_t tensor_index) const;
    [[nodiscard]] Step submitted(std::uint32_t tensor_index) const { return tensors_[tensor_index].submitted; }

    /// What came of the tensor's last step; nothing while it is open. What was answered before the job ended stays.
    [[nodiscard]] std::optional<Status> outcome(std::uint32_t tensor_index) const;
    /// Committed (ok) or failed; nothing while it is open. Errors in it: kInvalidArgument if the step cannot be known
    /// here.
    [[nodiscard]] std::optional<Status> verdict(std::uint32_t group_index, Step step) const;
    [[nodiscard]] Step first_step(std::uint32_t group_index) const { return groups_[group_index].first_step; }

    [[nodiscard]] Collective& broadcasts() noexcept { return broadcasts_; }
    [[nodiscard]] Collective& comparisons() noexcept { return comparisons_; }

private:
    struct TensorState {
        Step submitted = 0;  ///< last step handed in
        Step answered = 0;   ///< last step whose kTensor came
        Status answer;
    };
    struct GroupState {
        Step first_step = 0;  ///< 0 = not started
        Step settled = 0;     ///< last step committed or failed; the next one is open
        std::deque<std::pair<Step, Status>> failed;
        Step verdicts_from = 0;  ///< verdicts of earlier steps are forgotten
    };

    void on_started(const shm::Completion& completion);
    void on_tensor(const shm::Completion& completion);
    void on_step_done(const shm::Completion& completion);
    void on_job_ended(const shm::Completion& completion);
    /// The group whose first tensor is `index`; null if there is none.
    [[nodiscard]] GroupState* group_led_by(std::uint32_t tensor_index);
    [[nodiscard]] const Status* failure_of(const GroupState& group, Step step) const;
    void end_senseless(const shm::Completion& completion);

    const Registry& registry_;
    std::vector<TensorState> tensors_;
    std::vector<GroupState> groups_;
    std::size_t started_groups_ = 0;
    Collective broadcasts_;
    Collective comparisons_;
    Status ended_;
    bool has_left_ = false;
};

}  // namespace gradsieve::client
