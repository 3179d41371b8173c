// The thread of one GPU: opens what clients bind, encodes and decodes what the conductor gives it, many tensors at a
// time. Owns the GPU's context: it appears with the first binding and goes a minute after the last one. The conductor
// gives and takes; nothing of CUDA is called on another thread.
#pragma once

#include "codec/cuda/gpu_decoder.hpp"
#include "daemon/gpu_task.hpp"
#include "daemon/wake.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace gradsieve::daemon {

/// For status; any thread.
struct GpuFigures {
    ByteCount state_bytes = 0;
    ByteCount workspace_bytes = 0;
    std::uint64_t buffers = 0;
    std::uint64_t threshold_misses = 0;
    bool has_context = false;
    std::string failure;  ///< not empty: the device is lost to this process, and why
};

class GpuWorker {
public:
    GpuWorker(codec::cuda::DeviceInfo device, WakeFlag& conductor_wake);
    ~GpuWorker();
    GpuWorker(const GpuWorker&) = delete;
    GpuWorker& operator=(const GpuWorker&) = delete;

    /// Ends the thread after what it was given; tasks given later are only kept. Conductor's or main thread.
    void stop();
    /// Conductor thread. Every task comes back through `take_done`.
    void give(GpuTask task);
    [[nodiscard]] std::deque<GpuTask> take_done();
    [[nodiscard]] bool has_done() const;
    [[nodiscard]] std::size_t queue_depth() const;

    [[nodiscard]] const codec::cuda::DeviceInfo& device() const noexcept { return device_; }
    [[nodiscard]] GpuFigures figures() const;

private:
    /// What exists while there is a context.
    struct Context;

    void run();
    void run_batch(std::deque<GpuTask>& batch);
    [[nodiscard]] Status ensure_context();
    [[nodiscard]] Status bind(GpuBindTask& task);
    void encode(std::span<CodecTask*> tasks);
    void decode(std::span<CodecTask*> tasks);
    [[nodiscard]] Status copy(GpuCopyTask& task);
    [[nodiscard]] Status check_limit(const GpuBindTask& task) const;
    [[nodiscard]] Status take_norm(CodecTask& task);
    /// After a failure: was it the device's last?
    void look_after(const Status& status);
    void publish_figures();

    // constant after construction
    const codec::cuda::DeviceInfo device_;
    WakeFlag& conductor_wake_;
    // worker thread
    std::unique_ptr<Context> context_;
    std::uint64_t buffers_open_ = 0;
    ByteCount state_bytes_ = 0;
    std::string failure_;
    // guarded by mutex_
    mutable std::mutex mutex_;
    std::condition_variable has_news_;
    std::deque<GpuTask> todo_;
    std::deque<GpuTask> done_;
    GpuFigures figures_;
    bool is_stopping_ = false;

    std::thread thread_;
};

}  // namespace gradsieve::daemon
