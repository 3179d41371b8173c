#include "daemon/gpu_pool.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gradsieve::daemon {

std::string gpu_uuid_text(std::span<const std::byte, 16> uuid) {
    std::string text = "GPU-";
    for (std::size_t place = 0; place < uuid.size(); ++place) {
        if (place == 4 || place == 6 || place == 8 || place == 10) text += '-';
        text += fmt::format("{:02x}", std::to_integer<unsigned>(uuid[place]));
    }
    return text;
}

Result<std::span<const codec::cuda::DeviceInfo>> GpuPool::list() {
    if (devices_.empty()) {
        GRADSIEVE_ASSIGN(devices_, codec::cuda::list_devices());
    }
    return std::span<const codec::cuda::DeviceInfo>(devices_);
}

Result<codec::cuda::DeviceInfo> GpuPool::device(std::span<const std::byte, 16> uuid) {
    const auto wanted = gpu_uuid_text(uuid);
    const auto is_wanted = [&](const codec::cuda::DeviceInfo& device) { return device.uuid == wanted; };
    if (const auto found = std::ranges::find_if(devices_, is_wanted); found != devices_.end()) return *found;
    GRADSIEVE_ASSIGN(devices_, codec::cuda::list_devices());
    if (const auto found = std::ranges::find_if(devices_, is_wanted); found != devices_.end()) return *found;
    std::string seen;
    for (const auto& device : devices_) seen += (seen.empty() ? "" : ", ") + device.uuid;
    return Status(StatusCode::kNotFound,
                  "device " + wanted + ": this daemon sees " + (seen.empty() ? "none" : seen) +
                      ": let it see the device too (CUDA_VISIBLE_DEVICES, the container's GPUs)");
}

GpuWorker& GpuPool::worker(std::vector<codec::cuda::DeviceInfo> devices) {
    const auto is_same = [&](const std::unique_ptr<GpuWorker>& worker) {
        return std::ranges::equal(worker->devices(), devices, {}, &codec::cuda::DeviceInfo::ordinal,
                                  &codec::cuda::DeviceInfo::ordinal);
    };
    if (const auto found = std::ranges::find_if(workers_, is_same); found != workers_.end()) return **found;
    workers_.push_back(std::make_unique<GpuWorker>(std::move(devices), ledger_, conductor_wake_, pace_));
    return *workers_.back();
}

GpuWorker& GpuPool::worker_of(std::span<const int> ordinals) {
    std::vector<codec::cuda::DeviceInfo> devices;
    for (const auto& device : devices_)
        if (std::ranges::find(ordinals, device.ordinal) != ordinals.end()) devices.push_back(device);
    return worker(std::move(devices));
}

std::vector<GpuView> GpuPool::views() const {
    std::vector<GpuView> views;
    for (const auto& worker : workers_) {
        const auto figures = worker->figures();
        for (std::size_t place = 0; place < figures.size(); ++place) {
            const auto& device = worker->devices()[place];
            auto view = std::ranges::find_if(views, [&](const auto& one) { return one.device.uuid == device.uuid; });
            if (view == views.end()) view = views.insert(view, {device, {}, 0});
            view->figures.state_bytes += figures[place].state_bytes;
            view->figures.workspace_bytes += figures[place].workspace_bytes;
            view->figures.buffers += figures[place].buffers;
            view->figures.threshold_misses += figures[place].threshold_misses;
            view->figures.has_context |= figures[place].has_context;
            // Of two sets of GPUs, the one that has to stage is what an operator wants to hear of.
            if (figures[place].is_direct)
                view->figures.is_direct = view->figures.is_direct.value_or(true) && *figures[place].is_direct;
            view->queued += worker->queue_depth();
        }
    }
    return views;
}

void GpuPool::stop() {
    for (const auto& worker : workers_) worker->stop();
}

bool GpuPool::has_done() const {
    return std::ranges::any_of(workers_, [](const auto& worker) { return worker->has_done(); });
}

}  // namespace gradsieve::daemon
