// Bindings that are given before `start`, and tensors that are staged because their memory cannot be shared. See
// job_core.hpp; staging.hpp has the copies themselves.
#include "client/job_core.hpp"

#include "client/flag_guard.hpp"
#include "client/unlocked.hpp"

#include <utility>

namespace gradsieve::client {

std::string named(const std::string& first, std::size_t count) {
    if (count <= 1) return first;
    return first + " and " + std::to_string(count - 1) + (count == 2 ? " other" : " others");
}

Status JobCore::note_bindings(std::span<const BindingChange> changes) {
    GRADSIEVE_TRY(check_changes(changes));
    std::vector<std::pair<std::uint32_t, EarlyBinding>> noted;
    for (const auto& [index, buffer] : changes) {
        if (buffer == nullptr || !is_off_host(index)) continue;
        GRADSIEVE_ASSIGN(const auto driver, this->driver());
        GRADSIEVE_ASSIGN(const auto plan, plan_binding(*driver, index, registry_.tensors()[index], *buffer));
        auto shared = BindBatch::try_to_share(*driver, plan);
        if (!shared.is_ok() && shared.code() != StatusCode::kFailedPrecondition)
            return shared.with_context(plan.subject);
        noted.emplace_back(index, EarlyBinding{*buffer, std::move(shared)});
    }
    for (const auto& change : changes) {
        early_.erase(change.tensor_index);
        if (is_staged(change.tensor_index)) registry_.set_staged(change.tensor_index, false);
    }
    for (auto& [index, binding] : noted) {
        registry_.set_staged(index, !binding.unshareable.is_ok());
        early_.emplace(index, std::move(binding));
    }
    return {};
}

Status JobCore::check_required() const {
    if (!options_.requires_cuda_ipc) return {};
    for (const auto& [index, binding] : early_)
        if (is_staged(index))
            return {StatusCode::kFailedPrecondition,
                    tensor_text(index) +
                        " would be staged through host memory, which require = \"cuda-ipc\" forbids: " +
                        binding.unshareable.text()};
    return {};
}

Result<bool> JobCore::stage_for_codec(std::span<const std::uint32_t> host_only, const Status& refusal) {
    if (host_only.empty()) return false;
    if (options_.requires_cuda_ipc)
        return Status(refusal.code(), refusal.text() +
                                          "; staging through host memory, which would do, is forbidden by "
                                          "require = \"cuda-ipc\"");
    const auto count = staged_by_codec_.size();
    for (const auto index : host_only) {
        if (!is_on_device(index)) continue;
        registry_.set_staged(index, true);
        staged_by_codec_.push_back(index);
    }
    return staged_by_codec_.size() > count;
}

std::string JobCore::staged_text() const {
    std::size_t count = 0;
    std::string first;
    for (const auto& tensor : registry_.tensors())
        if (tensor.staged && count++ == 0) first = "tensor '" + tensor.name + "'";
    return named(first, count);
}

Status JobCore::bind_early(Lock& lock, TimePoint deadline, Timeout timeout) {
    if (early_.empty()) return {};
    std::vector<BindingChange> changes;
    for (const auto& [index, binding] : early_) changes.push_back({index, &binding.buffer});
    GRADSIEVE_TRY(bind_now(lock, changes, deadline, timeout));
    early_.clear();
    return {};
}

Result<bool> JobCore::is_staged_tensor(std::uint32_t tensor_index) const {
    GRADSIEVE_TRY(mark_.check());
    const Lock lock(m_);
    return is_staged(tensor_index);
}

void JobCore::bind_staged(const BindingPlan& plan) {
    if (!staged_)
        staged_ =
            std::make_unique<StagedTensors>(driver_, plan.context, attachment_->shared_session(), registry_.tensors());
    staged_->bind(plan);
}

void JobCore::set_due(std::uint32_t tensor_index, Due due) {
    if (is_staged(tensor_index) && staged_) staged_->place(tensor_index).due = due;
}

Status JobCore::copy_in(Lock& lock, std::uint32_t tensor_index, std::uint32_t sample_count, bool has_moment) {
    if (!staged_) return not_bound(tensor_text(tensor_index));
    GRADSIEVE_TRY(staged_->check_place(tensor_index, registry_.tensors()[tensor_index].name));
    auto& place = staged_->place(tensor_index);
    place.due = Due::kNothing;  // the memory holds what is handed in now
    Status status;
    {
        const FlagGuard copying(place.is_copying);
        const Unlocked unlocked(lock);
        status = staged_->copy_in(place, sample_count, has_moment);
    }
    copy_ended_.notify_all();
    return status.is_ok() ? status : status.with_context(options_.label() + ": " + tensor_text(tensor_index));
}

Status JobCore::copy_out(Lock& lock, std::uint32_t tensor_index) {
    auto& place = staged_->place(tensor_index);
    Status status;
    {
        const FlagGuard copying(place.is_copying);
        const Unlocked unlocked(lock);
        status = staged_->copy_out(place);
    }
    copy_ended_.notify_all();
    if (status.is_ok()) place.due = Due::kNothing;
    return status.is_ok() ? status : status.with_context(options_.label() + ": " + tensor_text(tensor_index));
}

Status JobCore::deliver(Lock& lock, std::uint32_t tensor_index, Due due, TimePoint deadline, Timeout timeout) {
    while (is_due(tensor_index, due)) {
        if (!staged_->place(tensor_index).is_copying) return copy_out(lock, tensor_index);
        if (copy_ended_.wait_until(lock, deadline) == std::cv_status::timeout &&
            staged_->place(tensor_index).is_copying)
            return timeout_status("the copy of " + tensor_text(tensor_index) + " to the device by another thread",
                                  timeout);
    }
    return {};
}

Status JobCore::deliver_group(Lock& lock, std::uint32_t group_index, Step step, TimePoint deadline, Timeout timeout) {
    if (!staged_) return {};
    const auto count = static_cast<std::uint32_t>(registry_.tensors().size());
    for (std::uint32_t index = 0; index < count; ++index)
        if (registry_.group_of(index) == group_index && ledger_->submitted(index) == step &&
            is_due(index, Due::kAverage))
            GRADSIEVE_TRY(await_average(lock, index, deadline, timeout));
    return {};
}

}  // namespace gradsieve::client
