// Beginning and end of a job: making the core, attaching, waiting for all ranks, leaving. See job_core.hpp.
#include "client/flag_guard.hpp"
#include "client/job_core.hpp"
#include "client/unlocked.hpp"

#include <thread>
#include <utility>

namespace gradsieve::client {
namespace {

/// Frees the core in its own process only. In a forked child its destructors would do harm: unmapping ranges that
/// MADV_DONTFORK left out takes away whatever the child has mapped there since, and descriptors may be others' by now.
void free_in_own_process(JobCore* core) {
    if (core->belongs_here()) std::default_delete<JobCore>{}(core);
}

Status left_status() {
    return {StatusCode::kFailedPrecondition,
            "the job was left with detach: allowed is detach as the last call; make a new job"};
}

/// Opens the attachment if there is none yet, then waits for its answer. False: not answered until the deadline.
Result<bool> ask_daemon(std::shared_ptr<Attachment>& attachment, const ResolvedOptions& options,
                        const Registry& registry, const ResumePoints& resumes, TimePoint deadline) {
    if (!attachment) {
        auto opened = Attachment::open(options, registry, deadline, resumes);
        if (!opened.is_ok()) {
            if (opened.error().code() == StatusCode::kTimeout) return false;
            return opened.error();
        }
        attachment = std::make_shared<Attachment>(std::move(*opened));
    }
    return attachment->receive_reply(registry, deadline);
}

/// The last run of a job keeps its place until its last step has reached the other nodes: usually some milliseconds.
constexpr std::chrono::milliseconds kBusyPause{50};
bool is_worth_asking_again(const Result<bool>& answered, TimePoint deadline) {
    return !answered.is_ok() && answered.error().code() == StatusCode::kBusy &&
           std::chrono::steady_clock::now() + kBusyPause < deadline;
}

/// A daemon that compares the places of tensors sees staged ones in host memory: why, only this side knows.
Status staging_noted(const Status& refusal, const std::string& staged) {
    if (refusal.code() != StatusCode::kMismatch || staged.empty()) return refusal;
    return {refusal.code(), refusal.text() +
                                " (staged on this rank, in host memory, since GPU memory cannot be shared: " + staged +
                                "; allocate that memory as the other ranks do)"};
}

}  // namespace

Result<std::shared_ptr<JobCore>> JobCore::make(const JobOptions& options) {
    GRADSIEVE_ASSIGN(auto resolved, resolve_options(options));
    auto core = std::make_unique<JobCore>(std::move(resolved));
    return std::shared_ptr<JobCore>(core.release(), free_in_own_process);
}

JobCore::JobCore(ResolvedOptions options) : options_(std::move(options)) {}

Result<AddedTensor> JobCore::add_tensor(std::string_view name, std::span<const std::uint64_t> shape,
                                        const TensorOptions& options) {
    GRADSIEVE_TRY(mark_.check());
    const Lock lock(m_);
    if (phase_ == Phase::kLeft) return left_status().with_context("tensor '" + std::string(name) + "'");
    if (phase_ != Phase::kFresh)
        return Status(StatusCode::kFailedPrecondition,
                      "tensor '" + std::string(name) + "': " + options_.label() + " is started with " +
                          std::to_string(registry_.tensors().size()) +
                          " tensors, and adding to them is not supported yet: allowed is add_tensor before start; "
                          "register all first (one that may come later in a group of its own), or make a new job");
    GRADSIEVE_ASSIGN(const auto index, registry_.add(name, shape, options));
    return AddedTensor{index, registry_.tensors()[index].elements()};
}

Status JobCore::start(Timeout timeout) {
    GRADSIEVE_TRY(mark_.check());
    const auto deadline = deadline_after(timeout);
    Lock lock(m_);
    if (phase_ == Phase::kLeft) return left_status().with_context(options_.label());
    if (phase_ == Phase::kRunning && (early_.empty() || ledger_->has_ended())) return ledger_->ended();
    if (registry_.tensors().empty())
        return {StatusCode::kFailedPrecondition,
                options_.label() + " has 0 tensors: allowed is 1 or more; call add_tensor before start"};
    if (is_starting_)
        return {StatusCode::kBusy, options_.label() + ": another thread is inside start: allowed is one; let it end"};
    const FlagGuard starting(is_starting_);
    GRADSIEVE_TRY(check_required());
    if (phase_ != Phase::kRunning) {
        GRADSIEVE_TRY(attach(lock, deadline, timeout));
        GRADSIEVE_TRY(form(lock, deadline, timeout));
    }
    return bind_early(lock, deadline, timeout);
}

Status JobCore::attach(Lock& lock, TimePoint deadline, Timeout timeout) {
    if (phase_ == Phase::kForming) return {};
    phase_ = Phase::kAttaching;
    auto attachment = attachment_;
    Result<bool> answered = false;
    for (bool is_to_ask = true; is_to_ask;) {
        {
            // A long wait, and other calls are to answer meanwhile; `registry_` is constant from here on.
            const Unlocked unlocked(lock);
            answered = ask_daemon(attachment, options_, registry_, resumes_, deadline);
            is_to_ask = is_worth_asking_again(answered, deadline);
            if (is_to_ask) {
                attachment.reset();
                std::this_thread::sleep_for(kBusyPause);
            }
        }
        if (!answered.is_ok() && attachment && phase_ != Phase::kLeft) {
            auto staged = stage_for_codec(attachment->host_only(), answered.error());
            if (!staged.is_ok()) answered = staged.error();
            is_to_ask = staged.is_ok() && *staged;
            if (is_to_ask) attachment.reset();
        }
        if (phase_ == Phase::kLeft)
            return {StatusCode::kCancelled, options_.label() + " was left with detach during start: make a new job"};
    }
    if (!answered.is_ok()) {
        forget_attempt();
        return staging_noted(answered.error(), staged_text()).with_context(options_.label());
    }
    attachment_ = std::move(attachment);
    if (!*answered) return timeout_status("gradsieved's answer to the request to attach", timeout);
    ledger_.emplace(registry_);
    is_leaving_ = false;
    phase_ = Phase::kForming;
    return {};
}

Status JobCore::form(Lock& lock, TimePoint deadline, Timeout timeout) {
    const auto answer = wait_for(lock, deadline, [this]() -> Answer {
        if (ledger_->has_ended()) return ledger_->ended();
        if (ledger_->is_running()) return Status();
        return std::nullopt;
    });
    if (!answer) return timeout_status("all ranks of the job", timeout);
    if (answer->is_ok()) {
        phase_ = Phase::kRunning;
        return {};
    }
    const bool has_left = ledger_->has_left();
    forget_attempt();
    if (has_left) phase_ = Phase::kLeft;
    return answer->with_context(options_.label());
}

void JobCore::forget_attempt() {
    attachment_.reset();
    ledger_.reset();
    for (const auto index : staged_by_codec_) registry_.set_staged(index, false);
    staged_by_codec_.clear();
    phase_ = Phase::kFresh;
}

Result<Step> JobCore::first_step(std::string_view group) const {
    GRADSIEVE_TRY(mark_.check());
    const Lock lock(m_);
    GRADSIEVE_TRY(check_started());
    GRADSIEVE_ASSIGN(const auto group_index, find_group(group));
    return ledger_->first_step(group_index);
}

Status JobCore::detach(Timeout timeout) {
    GRADSIEVE_TRY(mark_.check());
    Lock lock(m_);
    if (phase_ == Phase::kFresh || phase_ == Phase::kAttaching) {
        phase_ = Phase::kLeft;
        if (!is_starting_) attachment_.reset();  // else the starting thread's own copy
        return {};
    }
    if (phase_ == Phase::kLeft) return {};
    const auto answer = wait_for(lock, deadline_after(timeout), [this]() -> Answer {
        if (!ledger_) return Status();  // refused while it was forming: nothing is left to leave
        if (ledger_->has_left()) return Status();
        if (ledger_->has_ended()) return ledger_->ended();
        if (!is_leaving_) {
            const auto pushed = push({.kind = shm::SubmissionKind::kDetach});
            if (!pushed.is_ok() && pushed.code() != StatusCode::kBusy) return pushed;
            is_leaving_ = pushed.is_ok();
        }
        return std::nullopt;
    });
    if (!answer) return timeout_status("gradsieved's goodbye", timeout);
    if (is_binding_)
        is_hang_up_due_ = true;  // the binding thread listens on the socket still
    else if (attachment_)
        attachment_->hang_up();
    return *answer;
}

void JobCore::leave() noexcept {
    if (!mark_.is_same_process()) return;
    try {
        const Status status = detach(kLeaveTimeout);  // nobody is left to tell
    } catch (...) {  // no memory for a text: the socket closes with the core, and the daemon sees that
    }
}

}  // namespace gradsieve::client
