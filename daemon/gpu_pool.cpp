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

Result<GpuWorker*> GpuPool::worker(std::span<const std::byte, 16> uuid) {
    const auto wanted = gpu_uuid_text(uuid);
    for (const auto& worker : workers_)
        if (worker->device().uuid == wanted) return worker.get();
    GRADSIEVE_ASSIGN(const auto devices, codec::cuda::list_devices());
    std::string seen;
    for (const auto& device : devices) {
        if (device.uuid == wanted) {
            workers_.push_back(std::make_unique<GpuWorker>(device, conductor_wake_));
            return workers_.back().get();
        }
        seen += (seen.empty() ? "" : ", ") + device.uuid;
    }
    return Status(StatusCode::kNotFound,
                  "device " + wanted + ": this daemon sees " + (seen.empty() ? "none" : seen) +
                      ": let it see the device too (CUDA_VISIBLE_DEVICES, the container's GPUs)");
}

void GpuPool::stop() {
    for (const auto& worker : workers_) worker->stop();
}

bool GpuPool::has_done() const {
    return std::ranges::any_of(workers_, [](const auto& worker) { return worker->has_done(); });
}

}  // namespace gradsieve::daemon
