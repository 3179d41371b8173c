// The GPUs of this node: one worker thread for each that a client has bound memory of. Conductor thread only, but for
// what its comments say.
#pragma once

#include "daemon/gpu_worker.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::daemon {

class GpuPool {
public:
    explicit GpuPool(WakeFlag& conductor_wake) : conductor_wake_(conductor_wake) {}

    /// The worker of the device with this UUID (16 bytes), started if there is none yet. Errors: kUnimplemented (built
    /// without CUDA), kUnavailable (no driver), kNotFound (this daemon does not see that device; those it sees are
    /// named).
    [[nodiscard]] Result<GpuWorker*> worker(std::span<const std::byte, 16> uuid);
    /// Ends the threads after what they were given; tasks given later never run.
    void stop();
    [[nodiscard]] bool has_done() const;
    [[nodiscard]] std::span<const std::unique_ptr<GpuWorker>> workers() const noexcept { return workers_; }

private:
    WakeFlag& conductor_wake_;
    std::vector<std::unique_ptr<GpuWorker>> workers_;
};

/// "GPU-…", as the driver's tools print it.
[[nodiscard]] std::string gpu_uuid_text(std::span<const std::byte, 16> uuid);

}  // namespace gradsieve::daemon
