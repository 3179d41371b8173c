#include "codec/cuda/gather_threads.hpp"

#include <algorithm>
#include <system_error>

namespace gradsieve::codec::cuda {
namespace {

/// One core copies about 10 GB/s, the bus takes 25 to 50.
constexpr unsigned kMaximumThreads = 3;

}  // namespace

GatherThreads::~GatherThreads() {
    {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void GatherThreads::start(std::function<bool()> work) {
    if (threads_.empty()) start_threads();
    {
        const std::lock_guard lock(mutex_);
        work_ = std::move(work);
        ++batch_;
    }
    wake_.notify_all();
}

void GatherThreads::finish() {
    std::unique_lock lock(mutex_);
    work_ = nullptr;
    // No deadline: only memory copies are waited for.
    idle_.wait(lock, [&] { return active_ == 0; });
}

void GatherThreads::start_threads() {
    const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
    try {
        while (threads_.size() < std::min(kMaximumThreads, cores - 1)) threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {  // a limit on threads: those that are there, then
    }
}

void GatherThreads::run() {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
        wake_.wait(lock, [&] { return is_ending_ || (batch_ != seen && work_ != nullptr); });
        if (is_ending_) return;
        seen = batch_;
        const std::function<bool()> work = work_;
        ++active_;
        lock.unlock();
        while (work()) {}
        lock.lock();
        if (--active_ == 0) idle_.notify_all();
    }
}

}  // namespace gradsieve::codec::cuda
