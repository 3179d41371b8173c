// Tensors that lie on a device: telling the daemon where, and when their gradients are made. See job_core.hpp;
// docs/shared-memory.md has the order of work on the device and messages.
#include "client/flag_guard.hpp"
#include "client/job_core.hpp"
#include "client/unlocked.hpp"

#include <algorithm>

namespace gradsieve::client {

Status JobCore::not_on_host(std::uint32_t tensor_index) const {
    return {StatusCode::kFailedPrecondition,
            tensor_text(tensor_index) +
                " is on a device and has no slab: allowed is the memory given to bind_device; write there, or register "
                "the tensor without on_device"};
}

Status JobCore::check_change(std::uint32_t tensor_index) const {
    if (!is_off_host(tensor_index) && registry_.tensors()[tensor_index].elements() > 0)
        return {StatusCode::kFailedPrecondition,
                tensor_text(tensor_index) +
                    " is in host memory: allowed is a tensor registered with on_device; set it in add_tensor"};
    if (staged_ && staged_->place(tensor_index).is_copying)
        return {StatusCode::kBusy, tensor_text(tensor_index) +
                                       " is being copied by another thread: allowed is binding and unbinding after "
                                       "that; let submit, wait or broadcast end first"};
    if (!ledger_ || !ledger_->has_open_step(tensor_index)) return {};
    return {StatusCode::kBusy,
            tensor_text(tensor_index) + ": step " + std::to_string(ledger_->submitted(tensor_index)) +
                " is open: allowed is binding and unbinding between steps; wait for that step first"};
}

Status JobCore::check_changes(std::span<const BindingChange> changes) const {
    std::vector<std::uint32_t> indices;
    for (const auto& change : changes) {
        GRADSIEVE_TRY(check_change(change.tensor_index));
        indices.push_back(change.tensor_index);
    }
    std::ranges::sort(indices);
    const auto twice = std::ranges::adjacent_find(indices);
    if (twice == indices.end()) return {};
    return {StatusCode::kInvalidArgument,
            tensor_text(*twice) + " is named twice: allowed is each tensor once; bind it to one buffer"};
}

Result<std::shared_ptr<const CudaDriver>> JobCore::driver() {
    if (!driver_) {
        GRADSIEVE_ASSIGN(driver_, CudaDriver::load(options_.cuda_driver));
    }
    return driver_;
}

Status JobCore::change_bindings(std::span<const BindingChange> changes, Timeout timeout) {
    GRADSIEVE_TRY(mark_.check());
    const auto deadline = deadline_after(timeout);
    Lock lock(m_);
    if (phase_ == Phase::kFresh) return note_bindings(changes);
    GRADSIEVE_TRY(check_live());
    GRADSIEVE_TRY(bind_now(lock, changes, deadline, timeout));
    for (const auto& change : changes) early_.erase(change.tensor_index);
    return {};
}

Status JobCore::bind_now(Lock& lock, std::span<const BindingChange> changes, TimePoint deadline, Timeout timeout) {
    if (is_binding_)
        return {StatusCode::kBusy, options_.label() +
                                       ": another thread binds or unbinds device memory: allowed is one at a time; let "
                                       "it end, or bind many tensors with one bind_devices"};
    const FlagGuard binding(is_binding_);
    auto status = bind_in_turn(lock, changes, deadline, timeout);
    if (is_hang_up_due_) attachment_->hang_up();
    return status;
}

Status JobCore::bind_in_turn(Lock& lock, std::span<const BindingChange> changes, TimePoint deadline, Timeout timeout) {
    if (open_bind_ && open_bind_->sent() && !open_bind_->is_for(changes)) {
        // An earlier call timed out, and the daemon takes no other request before it has answered that one. What it
        // says is noted; a refusal is no news for this call.
        GRADSIEVE_TRY(take_bind_answer(lock, deadline, timeout).status());
    }
    GRADSIEVE_TRY(check_changes(changes));
    if (!open_bind_ || !open_bind_->sent()) {
        open_bind_.reset();
        GRADSIEVE_ASSIGN(auto plans, plan_changes(changes));
        std::erase_if(plans, [this](const BindingPlan& plan) {
            if (!is_staged(plan.binding.tensor_index)) return false;
            bind_staged(plan);
            return true;
        });
        open_bind_.emplace(changes, std::move(plans));
    }
    while (!open_bind_->is_done()) {
        if (!open_bind_->sent()) GRADSIEVE_TRY(send_bind_request());
        GRADSIEVE_ASSIGN(const auto reply, take_bind_answer(lock, deadline, timeout));
        GRADSIEVE_TRY(reply.status);
    }
    return {};
}

Result<std::vector<BindingPlan>> JobCore::plan_changes(std::span<const BindingChange> changes) {
    std::vector<BindingPlan> plans;
    plans.reserve(changes.size());
    for (const auto& change : changes) {
        if (!is_off_host(change.tensor_index)) continue;  // no elements: nothing to bind
        const bool was_ever_bound = is_staged(change.tensor_index) ? staged_ != nullptr : bindings_ != nullptr;
        if (change.buffer == nullptr && !was_ever_bound) continue;
        GRADSIEVE_ASSIGN(auto plan, plan_change(change));
        plans.push_back(std::move(plan));
    }
    return plans;
}

Result<BindingPlan> JobCore::plan_change(const BindingChange& change) {
    if (change.buffer == nullptr) {
        BindingPlan plan;
        plan.binding.tensor_index = change.tensor_index;
        plan.subject = tensor_text(change.tensor_index);
        return plan;
    }
    GRADSIEVE_ASSIGN(auto driver, this->driver());
    const auto& tensor = registry_.tensors()[change.tensor_index];
    if (tensor.staged) return plan_binding(*driver, change.tensor_index, tensor, *change.buffer);
    if (!bindings_) {
        auto session = attachment_->shared_session();
        bindings_ = std::make_unique<DeviceBindings>(std::move(driver), session->ready_words(), session);
    }
    GRADSIEVE_ASSIGN(auto plan, bindings_->plan(change.tensor_index, tensor, *change.buffer));
    GRADSIEVE_TRY(BindBatch::check_plan(plan));
    return plan;
}

Status JobCore::send_bind_request() {
    auto batch = open_bind_->next_batch(bindings_->driver());
    if (!batch.is_ok()) {
        const auto& subject = open_bind_->next_plan().subject;
        if (batch.error().code() != StatusCode::kFailedPrecondition || options_.requires_cuda_ipc)
            return batch.error().with_context(subject);
        return {batch.error().code(), subject + ": " + batch.error().text() +
                                          "; or bind it before start, which copies it through host memory then"};
    }
    auto& request = batch->request();
    const auto number = request.number = ++bind_number_;
    const auto descriptors = batch->descriptors();
    GRADSIEVE_TRY(shm::check_bind_request(request, registry_.tensors(), descriptors.size()));
    if (auto sent = attachment_->send_bind_request(request, descriptors); !sent.is_ok())
        return sent.with_context(options_.label());
    open_bind_->on_sent(std::move(*batch), number);
    return {};
}

Result<shm::BindReply> JobCore::take_bind_answer(Lock& lock, TimePoint deadline, Timeout timeout) {
    const auto& batch = open_bind_->sent()->batch;
    const auto subject = named(batch.plans().front().subject, batch.plans().size());
    bindings_->on_sent(batch);
    auto reply = await_bind_reply(lock, open_bind_->sent()->number, deadline);
    if (reply.is_ok() && !*reply) {
        bindings_->on_lost(batch);
        return timeout_status("gradsieved's answer to the request to bind device memory of " + subject, timeout);
    }
    if (!reply.is_ok()) {
        bindings_->on_lost(batch);
        open_bind_->on_answered();  // none will come
        return reply.error();
    }
    auto& answer = **reply;
    if (answer.status.is_ok()) {
        bindings_->on_done(batch);
    } else {
        bindings_->on_refused(batch);
        answer.status = answer.status.with_context(options_.label() + ": binding " + subject);
    }
    open_bind_->on_answered();
    return std::move(answer);
}

Result<std::optional<shm::BindReply>> JobCore::await_bind_reply(Lock& lock, std::uint64_t number, TimePoint deadline) {
    const auto attachment = attachment_;
    for (;;) {
        const TimePoint now = std::chrono::steady_clock::now();
        const auto until = std::min<TimePoint>(deadline, now + kSleepSlice);
        auto reply = [&] {
            const Unlocked unlocked(lock);
            return attachment->receive_bind_reply(number, until);
        }();
        if (reply.is_ok() && *reply) return reply;
        if (!reply.is_ok()) {
            look_for_daemon(now);  // its last words explain more than its silence
            return ledger_->has_ended() ? ledger_->ended() : reply.error().with_context(options_.label());
        }
        drain();
        if (ledger_->has_ended()) return ledger_->ended();
        if (now >= deadline) return reply;
    }
}

Status JobCore::await_device(Lock& lock, std::uint32_t tensor_index) {
    if (!is_on_device(tensor_index)) return {};
    if (!bindings_) return not_bound(tensor_text(tensor_index));
    GRADSIEVE_ASSIGN(const auto place, bindings_->place_of(tensor_index, registry_.tensors()[tensor_index].name));
    const auto driver = bindings_->shared_driver();
    const auto status = [&]() -> Status {
        const Unlocked unlocked(lock);
        const ContextScope scope(*driver, place.context);
        GRADSIEVE_TRY(scope.status());
        return driver->synchronize(place.stream);
    }();
    return status.is_ok() ? check_live() : status.with_context(options_.label());
}

Status JobCore::write_ready(std::uint32_t tensor_index, Step step) {
    if (!is_on_device(tensor_index)) return {};
    if (!bindings_) return not_bound(tensor_text(tensor_index));
    auto status = bindings_->write_ready(tensor_index, registry_.tensors()[tensor_index].name, step);
    return status.is_ok() ? status : status.with_context(options_.label());
}

}  // namespace gradsieve::client
