// The codec threads: each runs one task at a time from its own queue and hands it back. The conductor gives and takes;
// small tasks it runs itself, without a hop. Owned by the daemon, outlives every job.
#pragma once

#include "daemon/hosted_tensor.hpp"
#include "daemon/spsc_queue.hpp"
#include "daemon/wake.hpp"

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

namespace gradsieve::daemon {

class CodecPool {
public:
    CodecPool(std::uint32_t threads, WakeFlag& conductor_wake);
    ~CodecPool();
    CodecPool(const CodecPool&) = delete;
    CodecPool& operator=(const CodecPool&) = delete;

    /// Conductor thread. The task comes back through `take_done`.
    void give(std::unique_ptr<CodecTask> task);
    [[nodiscard]] std::vector<std::unique_ptr<CodecTask>> take_done();
    [[nodiscard]] bool has_done() const noexcept;
    [[nodiscard]] std::size_t thread_count() const noexcept { return workers_.size(); }
    [[nodiscard]] std::size_t queue_depth() const noexcept;

private:
    struct Worker {
        SpscQueue<std::unique_ptr<CodecTask>> todo{4096};
        SpscQueue<std::unique_ptr<CodecTask>> done{4096};
        std::atomic<std::uint32_t> posted{0};            ///< moves with every task given; the worker waits on it
                                                         // owned by the conductor
        std::deque<std::unique_ptr<CodecTask>> backlog;  ///< given while `todo` was full
        std::uint64_t elements_given = 0;                ///< what is still to do
        std::thread thread;
    };
    static void hand_over(Worker& worker);
    void run(Worker& worker);

    WakeFlag& conductor_wake_;
    std::atomic<bool> is_stopping_{false};
    std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace gradsieve::daemon
