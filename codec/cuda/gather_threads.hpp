// A few threads that help the decoder's own to gather payload bytes, and sleep between batches. Started with the first
// batch that is large enough; ended with the object.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gradsieve::codec::cuda {

class GatherThreads {
public:
    GatherThreads() = default;
    GatherThreads(const GatherThreads&) = delete;
    GatherThreads& operator=(const GatherThreads&) = delete;
    ~GatherThreads();

    /// Has up to `wanted` threads call `work` until it says false, beside the caller; one piece of work at a time. It
    /// stays until `finish`. With fewer threads than wanted, or none, the caller has more to do itself.
    void start(std::function<bool()> work, unsigned wanted);
    /// Returns when no thread is inside `work` any more, and none will be.
    void finish();

private:
    void start_threads();
    void run();

    std::mutex mutex_;
    // Guarded by mutex_.
    std::condition_variable wake_, idle_;
    std::function<bool()> work_;
    unsigned openings_ = 0;  ///< how many threads may still take up the work
    unsigned active_ = 0;
    bool is_ending_ = false;
    // Of the caller.
    std::vector<std::thread> threads_;
};

}  // namespace gradsieve::codec::cuda
