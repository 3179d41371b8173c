// The thread of one GPU, or of several that jobs use together: opens what clients bind, encodes and decodes what the
// conductor gives it, many tensors at a time. The GPUs' contexts appear with the first binding and go a minute after
// the last one, unless another worker uses them. The conductor gives and takes; nothing of CUDA is called on its
// thread.
#pragma once

#include "daemon/gpu_ledger.hpp"
#include "daemon/gpu_task.hpp"
#include "daemon/wake.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <thread>

namespace gradsieve::daemon {

/// What a worker has on one of its GPUs, for status.
struct GpuFigures {
    ByteCount state_bytes = 0;
    ByteCount workspace_bytes = 0;
    std::uint64_t buffers = 0;    ///< whose memory it is
    std::uint64_t unreached = 0;  ///< buffers of any of the worker's GPUs that its kernels do not reach
    std::uint64_t threshold_misses = 0;
    bool has_context = false;
    std::string failure;  ///< not empty: the device is lost to this process, and why
    /// Whether it reaches all memory of the worker's other GPUs; none while it has no context, or one GPU.
    std::optional<bool> is_direct{};
};

/// How workers use their GPUs.
struct GpuPace {
    unsigned multiprocessors = 0;  ///< of each GPU that a pass fills at most; 0: all
    /// Of the tensors that are encoded together, unless one alone has more. Two such batches are under way: while the
    /// payloads of one are coded, copied out and sent, the next one's passes run.
    ElementCount batch_elements = ElementCount{1} << 25U;
};

struct GpuContext;

class GpuWorker {
public:
    /// `devices`: at least one. `ledger` outlives the worker.
    GpuWorker(std::vector<codec::cuda::DeviceInfo> devices, GpuLedger& ledger, WakeFlag& conductor_wake,
              const GpuPace& pace);
    ~GpuWorker();
    GpuWorker(const GpuWorker&) = delete;
    GpuWorker& operator=(const GpuWorker&) = delete;

    /// Ends the thread after what it was given; tasks given later are only kept. Conductor's or main thread.
    void stop();
    /// Conductor thread. Every task comes back through `take_done`.
    void give(GpuTask task);
    /// The same of several, which no other thread sees one by one: they are coded in as few batches as they may.
    void give(std::span<GpuTask> tasks);
    [[nodiscard]] std::deque<GpuTask> take_done();
    [[nodiscard]] bool has_done() const;
    [[nodiscard]] std::size_t queue_depth() const;

    [[nodiscard]] std::span<const codec::cuda::DeviceInfo> devices() const noexcept { return devices_; }
    /// "GPU-…", or several: "GPU-…, GPU-…".
    [[nodiscard]] std::string names() const;
    /// One for each device; any thread.
    [[nodiscard]] std::vector<GpuFigures> figures() const;

private:
    void run();
    void spin_for_work() const;
    void run_batch(std::deque<GpuTask>& batch);
    [[nodiscard]] Status ensure_context();
    void give_context_back();
    [[nodiscard]] Status bind(GpuBindTask& task);
    // gpu_worker_state.cpp
    [[nodiscard]] Status set_up(GpuStateSetup& inout_setup);
    [[nodiscard]] Status check(GpuStateCheckTask& inout_task);
    [[nodiscard]] Status read(GpuStateReadTask& inout_task);
    // gpu_worker_codec.cpp
    /// Those of a batch that is coded are handed back at once.
    void encode(std::span<GpuTask*> tasks);
    /// Those whose pipeline may skip.
    void encode_or_reuse(std::span<GpuTask*> tasks);
    void decode(std::span<CodecTask*> tasks);
    [[nodiscard]] Status take_norm(CodecTask& task);
    /// Of a tensor of which this node sends nothing in the step.
    [[nodiscard]] Status keep_state(const CodecTask& task);
    // gpu_worker_phases.cpp
    /// Of those of the tasks that are first phases: what the encoder's pass left becomes their payloads.
    [[nodiscard]] Status finish_first_phases(std::span<GpuTask* const> tasks, const codec::cuda::GpuEncoder& encoder,
                                             std::span<codec::EncodeResult> inout_results);
    /// They are handed back at once.
    void encode_second_phases(std::span<GpuTask* const> tasks);
    void decode_last_phases(std::span<CodecTask* const> tasks);
    // gpu_worker.cpp
    void hand_back(std::span<GpuTask* const> tasks);
    /// After a failure: was it a device's last?
    void look_after(const Status& status);
    [[nodiscard]] std::size_t place_of(int ordinal) const;
    /// While there is a context.
    [[nodiscard]] const codec::cuda::Stream& stream_of(int ordinal) const;
    void release(GpuReleaseTask& task);
    void publish_figures();

    // constant after construction
    const std::vector<codec::cuda::DeviceInfo> devices_;
    const std::vector<int> ordinals_;
    GpuLedger& ledger_;
    WakeFlag& conductor_wake_;
    const GpuPace pace_;
    // worker thread
    std::unique_ptr<GpuContext> context_;  ///< while there is one
    std::vector<GpuFigures> holdings_;     ///< one for each device
    std::size_t host_states_ = 0;          ///< mapped for the devices
    // guarded by mutex_
    mutable std::mutex mutex_;
    std::condition_variable has_news_;
    std::deque<GpuTask> todo_;
    std::deque<GpuTask> done_;
    std::vector<GpuFigures> figures_;
    bool is_stopping_ = false;
    // any thread
    std::atomic<bool> has_todo_ = false;  ///< a hint: something is in todo_

    std::thread thread_;
};

}  // namespace gradsieve::daemon
