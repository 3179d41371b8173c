// Broadcasts of tensors in device memory: a GPU's thread reads the root's values, and writes them into the memory of
// every local rank.
#include "daemon/hosted_job.hpp"

namespace gradsieve::daemon {

Status HostedJob::check_bound(const HostedTensor& tensor, std::span<Session* const> sessions) const {
    for (const auto* session : sessions)
        if (!session->gpu_buffers[session->index_of_number[tensor.number]])
            return {StatusCode::kFailedPrecondition, "broadcast of tensor '" + tensor.name + "': rank " +
                                                         std::to_string(session->rank) +
                                                         " has no memory bound: allowed is a broadcast once every "
                                                         "rank has called bind_device; call it first"};
    return {};
}

void HostedJob::give_copy(HostedTensor& tensor, std::unique_ptr<GpuCopyTask> task) {
    task->tensor = &tensor;
    task->job_hash = exchange::job_hash(key());
    ++tasks_out_;
    ++tensor.tasks_out;
    // Not the tensor's, which is null until its lowest local rank has bound it: others may have.
    gpu_->give({.copy = std::move(task)});
}

void HostedJob::read_device_broadcast(const exchange::ReadBroadcast& action, TimePoint now) {
    auto& tensor = tensors_[action.tensor];
    auto* session = sessions_.at(action.root);
    // No bytes: every rank is told that fewer came than the tensor has.
    if (!check_bound(tensor, {&session, 1}).is_ok())
        return machine_.on_broadcast_bytes(action.tensor, action.number, SharedView{}, now);
    auto task = std::make_unique<GpuCopyTask>();
    task->number = action.number;
    task->is_read = true;
    task->buffers.push_back(session->gpu_buffers[session->index_of_number[action.tensor]].get());
    give_copy(tensor, std::move(task));
}

void HostedJob::deliver_device_broadcast(const exchange::DeliverBroadcast& action) {
    auto& tensor = tensors_[action.tensor];
    std::vector<Session*> sessions;
    for (const auto& [rank, session] : sessions_) sessions.push_back(session);
    if (const auto status = check_bound(tensor, sessions); !status.is_ok())
        return complete_all(shm::CompletionKind::kBroadcast, {.tensor = action.tensor}, action.number, status);
    auto task = std::make_unique<GpuCopyTask>();
    task->number = action.number;
    for (auto* session : sessions)
        task->buffers.push_back(session->gpu_buffers[session->index_of_number[action.tensor]].get());
    task->bytes = action.bytes;
    give_copy(tensor, std::move(task));
}

void HostedJob::on_copy_done(std::unique_ptr<GpuCopyTask> task, TimePoint now) {
    --tasks_out_;
    auto& tensor = *task->tensor;
    --tensor.tasks_out;
    if (is_ended_) return;
    if (!task->is_read)
        return complete_all(shm::CompletionKind::kBroadcast, {.tensor = tensor.number}, task->number, task->status);
    // No bytes if it failed, as above.
    machine_.on_broadcast_bytes(tensor.number, task->number, task->bytes, now);
}

}  // namespace gradsieve::daemon
