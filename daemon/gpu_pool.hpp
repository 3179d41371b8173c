// The GPUs of this node: one worker thread for each, or for each set of them that a job uses, once a client has bound
// memory there. Conductor thread only, but for what its comments say.
#pragma once

#include "daemon/gpu_worker.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::daemon {

/// A GPU that holds state or buffers of a job, or did a moment ago; all workers together.
struct GpuView {
    codec::cuda::DeviceInfo device;
    GpuFigures figures;
    std::size_t queued = 0;
};

class GpuPool {
public:
    explicit GpuPool(WakeFlag& conductor_wake, const GpuPace& pace = {})
        : conductor_wake_(conductor_wake), pace_(pace) {}

    /// The device with this UUID (16 bytes). Errors: kUnimplemented (built without CUDA), kUnavailable (no driver),
    /// kNotFound (this daemon does not see that device; those it sees are named).
    [[nodiscard]] Result<codec::cuda::DeviceInfo> device(std::span<const std::byte, 16> uuid);
    /// All that this daemon sees. Errors: kUnimplemented, kUnavailable.
    [[nodiscard]] Result<std::span<const codec::cuda::DeviceInfo>> list();
    /// How many the daemon sees; 0 before the first `device` or `list`.
    [[nodiscard]] std::size_t device_count() const noexcept { return devices_.size(); }
    /// The worker of exactly these devices, which `device` has found, started if there is none yet.
    [[nodiscard]] GpuWorker& worker(std::vector<codec::cuda::DeviceInfo> devices);
    /// The same of ordinals that `list` has named, in any order.
    [[nodiscard]] GpuWorker& worker_of(std::span<const int> ordinals);
    /// What everybody holds of the GPUs. Any thread.
    [[nodiscard]] GpuLedger& ledger() noexcept { return ledger_; }
    /// Ends the threads after what they were given; tasks given later never run.
    void stop();
    [[nodiscard]] bool has_done() const;
    [[nodiscard]] std::span<const std::unique_ptr<GpuWorker>> workers() const noexcept { return workers_; }
    /// Of every device that a worker has used, in the order of the first use.
    [[nodiscard]] std::vector<GpuView> views() const;

private:
    WakeFlag& conductor_wake_;
    const GpuPace pace_;
    std::vector<codec::cuda::DeviceInfo> devices_;
    GpuLedger ledger_;
    std::vector<std::unique_ptr<GpuWorker>> workers_;
};

/// "GPU-…", as the driver's tools print it.
[[nodiscard]] std::string gpu_uuid_text(std::span<const std::byte, 16> uuid);

}  // namespace gradsieve::daemon
