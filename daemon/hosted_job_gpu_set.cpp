// Which GPUs a job uses on this node: those that its local ranks' first requests to bind name. On a node with several,
// the answers wait until every local rank has asked (the client's deadline bounds that), since the state of a tensor is
// laid out over all of them at once. From then on the set stands.
#include "daemon/gpu_pool.hpp"
#include "daemon/hosted_job.hpp"

#include <algorithm>

namespace gradsieve::daemon {

void HostedJob::hold_bind(Session& session, const shm::BindRequest& request, std::vector<UniqueFd> descriptors) {
    const auto first =
        std::ranges::find_if(request.bindings, [](const auto& binding) { return !binding.is_unbinding(); });
    auto device = surroundings_.gpus->device(first->device);
    if (!device.is_ok()) {
        shm::BindReply reply;
        reply.number = request.number;
        reply.status = device.error();
        return answer_bind(session, reply);
    }
    session.is_binding = true;
    held_binds_[session.rank] = {&session, std::move(*device), request, std::move(descriptors)};
    settle_held_binds();
}

void HostedJob::settle_held_binds() {
    if (held_binds_.empty()) return;
    std::erase_if(held_binds_, [](const auto& item) { return item.second.session->is_gone; });
    const auto is_expected = [this](const auto& item) {
        return !item.second->is_gone && !item.second->has_detached && !held_binds_.contains(item.first);
    };
    // With one GPU there is nothing to wait for.
    const bool is_known = surroundings_.gpus->device_count() == 1 || std::ranges::none_of(sessions_, is_expected);
    if (!is_ended_ && !is_known) return;
    if (!is_ended_ && !held_binds_.empty()) fix_gpus();
    for (auto& [rank, held] : std::exchange(held_binds_, {})) {
        held.session->is_binding = false;
        if (!is_ended_) {
            bind(*held.session, held.request, std::move(held.descriptors));
            continue;
        }
        shm::BindReply reply;
        reply.number = held.request.number;
        reply.status = end_status_.is_ok()
                           ? Status(StatusCode::kFailedPrecondition,
                                    "device memory of job '" + key().name +
                                        "': the job ended before all local ranks had bound theirs: bind before any "
                                        "rank detaches")
                           : end_status_;
        answer_bind(*held.session, reply);
    }
}

void HostedJob::fix_gpus() {
    std::vector<codec::cuda::DeviceInfo> devices;
    for (const auto& [rank, held] : held_binds_) devices.push_back(held.device);
    // By ordinal, not by rank: jobs on the same GPUs share one worker, whatever order their ranks have.
    std::ranges::sort(devices, {}, &codec::cuda::DeviceInfo::ordinal);
    const auto repeats = std::ranges::unique(devices, {}, &codec::cuda::DeviceInfo::ordinal);
    devices.erase(repeats.begin(), repeats.end());
    const auto device_count = devices.size();
    gpu_ = &surroundings_.gpus->worker(std::move(devices));
    if (device_count == 1) return;
    std::vector<ElementCount> elements;
    for (const auto& tensor : tensors_) elements.push_back(tensor.on_device ? tensor.elements : 0);
    // One device has a norm, and what a skip goes by; and a chunk of a matrix is none.
    std::vector<std::size_t> whole;
    for (const auto& tensor : tensors_)
        if (codec::has_local_clip(tensor.pipeline) || codec::has_reuse(tensor.pipeline) || tensor.phases)
            whole.push_back(tensor.number);
    const auto ranges = codec::cuda::split_over_devices(elements, device_count, whole);
    for (auto& tensor : tensors_)
        if (tensor.on_device) tensor.gpu_ranges = ranges[tensor.number];
    surroundings_.log->info("device tensors are shared by GPUs " + gpu_->names(), {.job = key().name});
}

Result<std::size_t> HostedJob::gpu_place_of(std::span<const std::byte, 16> uuid) const {
    const auto wanted = gpu_uuid_text(uuid);
    const auto devices = gpu_->devices();
    for (std::size_t place = 0; place < devices.size(); ++place)
        if (devices[place].uuid == wanted) return place;
    return Status(
        StatusCode::kFailedPrecondition,
        "device memory on GPU " + wanted + ": the local ranks of job '" + key().name + "' share " + gpu_->names() +
            ", which their first bindings named: allowed are those; let one rank bind its first tensor there");
}

}  // namespace gradsieve::daemon
