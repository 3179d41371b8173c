#include "client/ledger.hpp"

#include <algorithm>
#include <cstring>

namespace gradsieve::client {
namespace {

/// Failed steps whose text is kept per group; a program that asks later than this is told so.
constexpr std::size_t kFailuresKept = 64;

Status status_of(const shm::Completion& completion) {
    if (completion.code == StatusCode::kOk) return {};
    return {completion.code,
            std::string(completion.text.data(), ::strnlen(completion.text.data(), completion.text.size()))};
}

}  // namespace

Ledger::Ledger(const Registry& registry)
    : registry_(registry), tensors_(registry.tensors().size()), groups_(registry.groups().size()) {}

void Ledger::on_completion(const shm::Completion& completion) {
    switch (completion.kind) {
        case shm::CompletionKind::kStarted: return on_started(completion);
        case shm::CompletionKind::kTensor: return on_tensor(completion);
        case shm::CompletionKind::kStepDone: return on_step_done(completion);
        case shm::CompletionKind::kBroadcast:
            if (!broadcasts_.on_answer(completion.step, status_of(completion))) end_senseless(completion);
            return;
        case shm::CompletionKind::kCheckEqual:
            if (!comparisons_.on_answer(completion.step, status_of(completion))) end_senseless(completion);
            return;
        case shm::CompletionKind::kJobEnded: return on_job_ended(completion);
    }
    end_senseless(completion);
}

void Ledger::end(Status reason) {
    if (ended_.is_ok()) ended_ = std::move(reason);
}

void Ledger::on_started(const shm::Completion& completion) {
    auto* group = group_led_by(completion.index);
    if (group == nullptr || group->first_step != 0 || completion.step == 0) return end_senseless(completion);
    group->first_step = completion.step;
    group->settled = completion.step - 1;
    group->verdicts_from = completion.step;
    ++started_groups_;
}

void Ledger::on_tensor(const shm::Completion& completion) {
    if (completion.index >= tensors_.size()) return end_senseless(completion);
    auto& tensor = tensors_[completion.index];
    // A step may fail before this rank handed in the tensor: the group's verdict says so, nothing to keep here.
    if (completion.step != tensor.submitted) return;
    tensor.answered = completion.step;
    tensor.answer = status_of(completion);
}

void Ledger::on_step_done(const shm::Completion& completion) {
    auto* group = group_led_by(completion.index);
    if (group == nullptr || group->first_step == 0 || completion.step != group->settled + 1)
        return end_senseless(completion);
    group->settled = completion.step;
    if (completion.code == StatusCode::kOk) return;
    if (group->failed.size() == kFailuresKept) {
        group->verdicts_from = group->failed.front().first + 1;
        group->failed.pop_front();
    }
    group->failed.emplace_back(completion.step, status_of(completion));
}

void Ledger::on_job_ended(const shm::Completion& completion) {
    has_left_ = completion.code == StatusCode::kOk;
    end(has_left_ ? Status(StatusCode::kCancelled,
                           "the job was left with detach: allowed is detach as the last call; make a new job")
                  : status_of(completion));
}

void Ledger::end_senseless(const shm::Completion& completion) {
    end({StatusCode::kInternal, "gradsieved said something that makes no sense here (kind " +
                                    std::to_string(static_cast<unsigned>(completion.kind)) + ", index " +
                                    std::to_string(completion.index) + ", step " + std::to_string(completion.step) +
                                    "): allowed is what was asked for; make a new job, and report this text"});
}

Ledger::GroupState* Ledger::group_led_by(std::uint32_t tensor_index) {
    if (tensor_index >= tensors_.size()) return nullptr;
    const auto group_index = registry_.group_of(tensor_index);
    return registry_.groups()[group_index].first_tensor == tensor_index ? &groups_[group_index] : nullptr;
}

const Status* Ledger::failure_of(const GroupState& group, Step step) const {
    const auto found = std::find_if(group.failed.rbegin(), group.failed.rend(),
                                    [&](const auto& failure) { return failure.first == step; });
    return found == group.failed.rend() ? nullptr : &found->second;
}

Result<bool> Ledger::check_submit(std::uint32_t tensor_index, Step step) const {
    const auto& tensor = tensors_[tensor_index];
    const auto& group = groups_[registry_.group_of(tensor_index)];
    const auto subject = [&] {
        return "tensor '" + registry_.tensors()[tensor_index].name + "': step " + std::to_string(step);
    };
    const Step open = group.settled + 1;
    if (tensor.submitted == open) {
        if (step == open + 1)
            return Status(StatusCode::kBusy,
                          subject() + " was handed in while step " + std::to_string(open) +
                              " is neither committed nor failed: allowed is one open step per tensor; wait for "
                              "that step's tensors, then hand in again");
        return Status(StatusCode::kInvalidArgument,
                      subject() + (step == open ? " was handed in already" : " is not next") + ": allowed is " +
                          std::to_string(open + 1) + " once step " + std::to_string(open) + " is done; wait for it");
    }
    if (step == open) return true;
    if (step == group.settled && step > tensor.submitted && failure_of(group, step) != nullptr) return false;
    return Status(StatusCode::kInvalidArgument,
                  subject() + " is not next: allowed is " + std::to_string(open) +
                      " (last settled step of the group: " + std::to_string(group.settled) + "); hand in that one");
}

void Ledger::on_submitted(std::uint32_t tensor_index, Step step) { tensors_[tensor_index].submitted = step; }

bool Ledger::has_open_step(std::uint32_t tensor_index) const {
    return tensors_[tensor_index].submitted > groups_[registry_.group_of(tensor_index)].settled;
}

std::optional<Status> Ledger::outcome(std::uint32_t tensor_index) const {
    const auto& tensor = tensors_[tensor_index];
    if (tensor.submitted == 0)
        return Status(StatusCode::kFailedPrecondition,
                      "tensor '" + registry_.tensors()[tensor_index].name +
                          "': no step was handed in: allowed after submit; call submit first");
    const auto& group = groups_[registry_.group_of(tensor_index)];
    // The tensor's own answer comes first: under skip-step it is a result (of NaN) though the step is not committed.
    if (tensor.answered == tensor.submitted) return tensor.answer;
    if (const auto* failure = failure_of(group, tensor.submitted)) return *failure;
    if (has_ended()) return ended_;
    return std::nullopt;
}

std::optional<Status> Ledger::verdict(std::uint32_t group_index, Step step) const {
    const auto& group = groups_[group_index];
    const auto subject = [&] {
        return "step " + std::to_string(step) + " of group '" + registry_.groups()[group_index].name + "'";
    };
    if (step < group.verdicts_from)
        return Status(StatusCode::kInvalidArgument, subject() + " is from before what this job remembers: allowed is " +
                                                        std::to_string(group.verdicts_from) + " or later; ask sooner");
    if (step > group.settled + 1)
        return Status(StatusCode::kInvalidArgument, subject() + " is ahead: allowed is up to the open step " +
                                                        std::to_string(group.settled + 1) + "; hand it in first");
    if (step <= group.settled) {
        if (const auto* failure = failure_of(group, step)) return *failure;
        return Status();
    }
    if (has_ended()) return ended_;
    return std::nullopt;
}

}  // namespace gradsieve::client
