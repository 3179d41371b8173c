// The calls of a running job: handing in, waiting, and what all ranks do together. See job_core.hpp.
#include "client/digest_of.hpp"
#include "client/job_core.hpp"

#include <array>
#include <cmath>
#include <numeric>

namespace gradsieve::client {
namespace {

constexpr std::array<std::uint32_t, shm::kSamplesLimit> kUnknownSamples{};

}  // namespace

Status foreign_tensor(std::string_view name) {
    return {StatusCode::kInvalidArgument, "tensor '" + std::string(name) +
                                              "' is not of this job: allowed is a tensor that this "
                                              "job's add_tensor gave; pass one of those"};
}

Status JobCore::check_started() const {
    switch (phase_) {
        case Phase::kRunning: return {};
        case Phase::kLeft:
            return {StatusCode::kFailedPrecondition,
                    options_.label() + " was left: allowed before detach; make a new job"};
        default:
            return {StatusCode::kFailedPrecondition,
                    options_.label() + " is not started: allowed after start returned ok; call start"};
    }
}

Status JobCore::check_live() {
    GRADSIEVE_TRY(check_started());
    drain();
    return ledger_->ended();
}

Result<std::uint32_t> JobCore::find_group(std::string_view name) const {
    const auto index = registry_.find_group(name);
    if (index) return *index;
    return Status(StatusCode::kNotFound, options_.label() + ": group '" + std::string(name) +
                                             "' has no tensor: allowed is one of " + registry_.group_list() +
                                             "; name one of them");
}

std::string JobCore::tensor_text(std::uint32_t tensor_index) const {
    return "tensor '" + registry_.tensors()[tensor_index].name + "'";
}

Status JobCore::check_options(std::uint32_t tensor_index, const SubmitOptions& options) const {
    const auto samples_max = registry_.tensors()[tensor_index].samples_max;
    if (options.sample_count < 1 || options.sample_count > samples_max)
        return {StatusCode::kInvalidArgument, tensor_text(tensor_index) + ": sample_count is " +
                                                  std::to_string(options.sample_count) + ": allowed is 1 .. " +
                                                  std::to_string(samples_max) +
                                                  " (samples_max); register the tensor with more"};
    if (!options.samples.empty() && options.samples.size() != options.sample_count)
        return {StatusCode::kInvalidArgument,
                tensor_text(tensor_index) + ": samples has " + std::to_string(options.samples.size()) +
                    " numbers: allowed is one for each of the " + std::to_string(options.sample_count) +
                    " slices, or none; correct the list"};
    for (std::size_t slice = 0; slice < options.samples.size(); ++slice)
        if (options.samples[slice] == 0)
            return {StatusCode::kInvalidArgument,
                    tensor_text(tensor_index) + ": samples[" + std::to_string(slice) +
                        "] is 0: allowed is 1 or more behind each slice; leave the list empty if unknown"};
    if (!std::isfinite(options.scale) || options.scale <= 0)
        return {StatusCode::kInvalidArgument,
                tensor_text(tensor_index) + ": scale is " + std::to_string(options.scale) +
                    ": allowed is finite and above 0 (loss scale / learning rate); correct it"};
    return {};
}

Status JobCore::push(const shm::Submission& submission) {
    auto status = attachment_->session().push(submission);
    return status.is_ok() ? status : status.with_context(options_.label());  // no text unless there is an error
}

Result<std::span<float>> JobCore::slice(std::uint32_t tensor_index, std::uint32_t sample_index) {
    GRADSIEVE_TRY(mark_.check());
    const Lock lock(m_);
    GRADSIEVE_TRY(check_started());
    const auto samples_max = registry_.tensors()[tensor_index].samples_max;
    if (sample_index >= samples_max)
        return Status(StatusCode::kInvalidArgument, tensor_text(tensor_index) + ": sample_index is " +
                                                        std::to_string(sample_index) + ": allowed is 0 .. " +
                                                        std::to_string(samples_max - 1) +
                                                        "; register the tensor with a larger samples_max");
    if (is_off_host(tensor_index)) return not_on_host(tensor_index);
    return attachment_->session().slice(tensor_index, sample_index);
}

Result<std::span<float>> JobCore::second_moment(std::uint32_t tensor_index) {
    GRADSIEVE_TRY(mark_.check());
    const Lock lock(m_);
    GRADSIEVE_TRY(check_started());
    if (!registry_.tensors()[tensor_index].has_second_moment)
        return Status(StatusCode::kFailedPrecondition,
                      tensor_text(tensor_index) +
                          " has no room for a second moment: allowed for "
                          "tensors registered with has_second_moment; set it in add_tensor");
    if (is_off_host(tensor_index)) return not_on_host(tensor_index);
    return attachment_->session().second_moment(tensor_index);
}

Status JobCore::submit(std::uint32_t tensor_index, Step step, const SubmitOptions& options) {
    GRADSIEVE_TRY(mark_.check());
    Lock lock(m_);
    GRADSIEVE_TRY(check_live());
    GRADSIEVE_TRY(check_options(tensor_index, options));
    if (ledger_->broadcasts().is_open() && ledger_->broadcasts().key().subject == tensor_index)
        return {StatusCode::kBusy, tensor_text(tensor_index) +
                                       " is in a broadcast that has not ended: allowed after it; call broadcast again"};
    GRADSIEVE_ASSIGN(bool is_to_send, ledger_->check_submit(tensor_index, step));
    if (is_to_send && is_staged(tensor_index)) {
        GRADSIEVE_TRY(copy_in(lock, tensor_index, options.sample_count, /*has_moment=*/true));
        GRADSIEVE_TRY(check_live());
        GRADSIEVE_ASSIGN(is_to_send, ledger_->check_submit(tensor_index, step));
    }
    if (is_to_send) {
        const std::span<const std::uint32_t> unknown(kUnknownSamples);
        const auto counts = options.samples.empty() ? unknown.first(options.sample_count) : options.samples;
        attachment_->session().set_slice_samples(tensor_index, counts);
        GRADSIEVE_TRY(write_ready(tensor_index, step));
        GRADSIEVE_TRY(push({.kind = shm::SubmissionKind::kAverage,
                            .tensor_index = tensor_index,
                            .step = step,
                            .sample_count = options.sample_count,
                            .batch_samples = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}),
                            .scale = options.scale}));
    }
    ledger_->on_submitted(tensor_index, step);
    set_due(tensor_index, Due::kAverage);
    return {};
}

Status JobCore::await_average(Lock& lock, std::uint32_t tensor_index, TimePoint deadline, Timeout timeout) {
    const auto outcome = wait_for(lock, deadline, [this, tensor_index] { return ledger_->outcome(tensor_index); });
    if (!outcome)
        return timeout_status(tensor_text(tensor_index) + ", step " + std::to_string(ledger_->submitted(tensor_index)),
                              timeout);
    GRADSIEVE_TRY(*outcome);
    return deliver(lock, tensor_index, Due::kAverage, deadline, timeout);
}

Result<std::span<const float>> JobCore::wait(std::uint32_t tensor_index, Timeout timeout) {
    GRADSIEVE_TRY(mark_.check());
    const auto deadline = deadline_after(timeout);
    Lock lock(m_);
    GRADSIEVE_TRY(check_started());
    GRADSIEVE_TRY(await_average(lock, tensor_index, deadline, timeout));
    if (is_off_host(tensor_index)) return std::span<const float>();
    return attachment_->session().result(tensor_index);
}

bool JobCore::is_ready(std::uint32_t tensor_index) {
    if (!mark_.is_same_process()) return true;
    Lock lock(m_);
    if (!check_started().is_ok()) return true;
    drain();
    // A program that only ever asks is to learn of a dead daemon as soon as one that waits.
    const TimePoint now = std::chrono::steady_clock::now();
    if (!ledger_->outcome(tensor_index) && now - daemon_seen_ >= kSleepSlice) look_for_daemon(now);
    const auto outcome = ledger_->outcome(tensor_index);
    if (!outcome) return false;
    if (!outcome->is_ok() || !is_due(tensor_index, Due::kAverage)) return true;
    if (staged_->place(tensor_index).is_copying) return false;
    static_cast<void>(copy_out(lock, tensor_index));  // `wait` tries again and tells
    return true;
}

Status JobCore::finish(Step step, Timeout timeout, std::string_view group) {
    GRADSIEVE_TRY(mark_.check());
    const auto deadline = deadline_after(timeout);
    Lock lock(m_);
    GRADSIEVE_TRY(check_started());
    GRADSIEVE_ASSIGN(const auto group_index, find_group(group));
    const auto verdict =
        wait_for(lock, deadline, [this, group_index, step] { return ledger_->verdict(group_index, step); });
    if (!verdict)
        return timeout_status("step " + std::to_string(step) + " of group '" + std::string(group) + "'", timeout);
    GRADSIEVE_TRY(*verdict);
    return deliver_group(lock, group_index, step, deadline, timeout);
}

Status JobCore::check_broadcast(std::uint32_t tensor_index, Rank root) {
    GRADSIEVE_TRY(check_live());
    if (root >= options_.world_size)
        return {StatusCode::kInvalidArgument, tensor_text(tensor_index) + ": root is " + std::to_string(root) +
                                                  ": allowed is a rank 0 .. " +
                                                  std::to_string(options_.world_size - 1) + "; name one of them"};
    if (!ledger_->has_open_step(tensor_index)) return {};
    return {StatusCode::kBusy, tensor_text(tensor_index) + ": step " +
                                   std::to_string(ledger_->submitted(tensor_index)) +
                                   " is open: allowed is a broadcast between steps; wait for that step first"};
}

Result<std::span<const float>> JobCore::broadcast(std::uint32_t tensor_index, Rank root, Timeout timeout) {
    GRADSIEVE_TRY(mark_.check());
    const auto deadline = deadline_after(timeout);
    Lock lock(m_);
    GRADSIEVE_TRY(check_broadcast(tensor_index, root));
    GRADSIEVE_TRY(await_device(lock, tensor_index));
    if (is_staged(tensor_index)) {
        GRADSIEVE_ASSIGN(const bool is_new, ledger_->broadcasts().check({tensor_index, root}));
        if (is_new) {
            GRADSIEVE_TRY(copy_in(lock, tensor_index, 1, /*has_moment=*/false));
            GRADSIEVE_TRY(check_live());
            set_due(tensor_index, Due::kBroadcast);
        }
    }
    const shm::Submission submission{
        .kind = shm::SubmissionKind::kBroadcast, .tensor_index = tensor_index, .root = root};
    GRADSIEVE_TRY(run_collective(lock, ledger_->broadcasts(), submission, timeout));
    GRADSIEVE_TRY(deliver(lock, tensor_index, Due::kBroadcast, deadline, timeout));
    if (is_off_host(tensor_index)) return std::span<const float>();
    return attachment_->session().result(tensor_index);
}

Status JobCore::check_equal(std::uint64_t digest, Timeout timeout) {
    GRADSIEVE_TRY(mark_.check());
    Lock lock(m_);
    GRADSIEVE_TRY(check_live());
    const shm::Submission submission{.kind = shm::SubmissionKind::kCheckEqual, .digest = digest};
    return run_collective(lock, ledger_->comparisons(), submission, timeout);
}

Result<bool> JobCore::is_check_due(Step step) {
    GRADSIEVE_TRY(mark_.check());
    const Lock lock(m_);
    GRADSIEVE_TRY(check_live());
    if (options_.check_every == 0) return false;
    if (!first_check_) first_check_ = step;
    return step == *first_check_ || step % options_.check_every == 0;
}

Status JobCore::check_parameters(Step step, std::span<const std::span<const std::byte>> parameters, Timeout timeout) {
    GRADSIEVE_ASSIGN(const bool is_due, is_check_due(step));
    if (!is_due) return {};
    const auto digest = digest_of_all(parameters);  // long for a large model, so without the lock
    const auto status = check_equal(digest, timeout);
    if (status.is_ok()) return {};
    return status.with_context("parameters after step " + std::to_string(step));
}

Status JobCore::run_collective(Lock& lock, Collective& kind, shm::Submission submission, Timeout timeout) {
    const auto deadline = deadline_after(timeout);
    const bool is_broadcast = submission.kind == shm::SubmissionKind::kBroadcast;
    const Collective::Key key{is_broadcast ? submission.tensor_index : submission.digest, submission.root};
    GRADSIEVE_ASSIGN(const bool is_new, kind.check(key));
    if (is_new) {
        submission.step = kind.next_number();
        GRADSIEVE_TRY(push(submission));
        kind.begin(key);
    }
    const auto number = kind.number();
    const auto answer = wait_for(lock, deadline, [this, &kind, number]() -> Answer {
        if (auto answered = kind.answer_of(number)) return answered;
        if (ledger_->has_ended()) return ledger_->ended();
        return std::nullopt;
    });
    if (!answer)
        return timeout_status(
            is_broadcast ? "the broadcast of " + tensor_text(submission.tensor_index) : "check_equal of all ranks",
            timeout);
    kind.close(number);
    return *answer;
}

}  // namespace gradsieve::client
